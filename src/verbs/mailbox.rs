//! How rings get into a completion queue's table and out of it again: the posting side writes here, the poller reads.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ring::{Extra, MAX_RINGS};
use super::ring_arc::RingArc;
use crate::error::{Error, Result};

/// The indices of a completion queue's own rings are even, from 2; the odd ones are those of shared receive queues, which have
/// the same index in every completion queue of the device.
const FIRST: u32 = 2;
pub(super) const STEP: u32 = 2;

/// What the posting side tells the poller. A ring that is in both lists was attached first: its index is not used again before
/// the poller has seen its end.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Completions of these rings may come.
    pub(super) attached: Vec<RingArc>,
    /// The queues of these rings, by their indices and with so many requests, are gone; what is left of them may still be in the
    /// completion queue.
    pub(super) retired: Vec<(u32, u32)>,
}

/// The room of a completion queue, its ring indices, and the mail to its poller.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    dirty: AtomicBool,
    capacity: u32,
    /// Readable when mail came for a poller that may be asleep; none where nobody can sleep.
    bell: Option<Bell>,
}

/// An eventfd that is rung once for a poller that does not hear, however much mail comes.
#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    /// Whether it was rung since it was silenced.
    rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        // Who has rung it already has written to it, or will: `silence` takes back the flag after what was written.
        if !self.rung.swap(true, Ordering::AcqRel) {
            // It fails when it has rung 2^64 times: then it is readable.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// What was mailed before a ring that this silences is seen by a look into the mailbox that comes after.
    fn silence(&self) {
        // It fails when it has not rung.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        self.rung.swap(false, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct State {
    mail: Mail,
    room: u32,
    free: Vec<u32>,
    next: u32,
}

impl State {
    /// The room that is left after a queue of `depth` requests, for the call `op`.
    fn room_for(&self, op: &'static str, depth: u32) -> Result<u32> {
        self.room.checked_sub(depth).ok_or_else(|| {
            Error::too_large(
                op,
                "number of requests of the queue pair that the completion queue must hold",
                u64::from(depth),
                u64::from(self.room),
                "make the completion queue as large as all queues of its queue pairs together",
            )
        })
    }
}

impl Mailbox {
    /// A mailbox for a queue with room for `capacity` completions.
    pub(super) fn new(capacity: u32, bell: Option<OwnedFd>) -> Self {
        Self {
            bell: bell.map(|fd| Bell {
                fd,
                rung: AtomicBool::new(false),
            }),
            state: Mutex::new(State {
                mail: Mail::default(),
                room: capacity,
                free: Vec::new(),
                next: FIRST,
            }),
            dirty: AtomicBool::new(false),
            capacity,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a ring of `depth` requests of up to `pieces` buffers, for which the queue has room, and tells the poller. `extra` is
    /// what few rings have; `op` is the call that makes the ring's queue pair.
    pub(super) fn attach(
        &self,
        op: &'static str,
        depth: u32,
        pieces: u32,
        extra: Option<Extra>,
    ) -> Result<RingArc> {
        let mut state = self.lock();
        let room = state.room_for(op, depth)?;
        let index = match state.free.pop() {
            Some(index) => index,
            None if state.next < MAX_RINGS => {
                state.next += STEP;
                state.next - STEP
            }
            None => {
                return Err(Error::too_large(
                    op,
                    "number of queues attached to the completion queue",
                    u64::from(MAX_RINGS / STEP),
                    u64::from(MAX_RINGS / STEP - 1),
                    "use a second completion queue",
                ));
            }
        };
        state.room = room;
        let ring = RingArc::with(depth, pieces, index, false, extra);
        state.mail.attached.push(ring.clone());
        self.dirty.store(true, Ordering::Release);
        Ok(ring)
    }

    /// Lets the queue report the requests of the ring of a shared receive queue, too, whose index is odd.
    pub(super) fn attach_shared(&self, op: &'static str, ring: &RingArc) -> Result<()> {
        let mut state = self.lock();
        state.room = state.room_for(op, ring.depth())?;
        state.mail.attached.push(ring.clone());
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Tells the poller that the queue of ring `index`, which held `depth` requests, is gone.
    pub(super) fn retire(&self, index: u32, depth: u32) {
        self.lock().mail.retired.push((index, depth));
        self.dirty.store(true, Ordering::Release);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Silences the bell.
    pub(super) fn hear(&self) {
        if let Some(bell) = &self.bell {
            bell.silence();
        }
    }

    /// Takes the mail, if there is any.
    pub(super) fn collect(&self) -> Mail {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Mail::default();
        }
        std::mem::take(&mut self.lock().mail)
    }

    /// Gives room and index of a ring back: no completion of it is left in the queue.
    pub(super) fn release(&self, index: u32, depth: u32) {
        let mut state = self.lock();
        state.room += depth;
        if index % STEP == FIRST % STEP {
            state.free.push(index);
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use rustix::event::{EventfdFlags, eventfd};

    const OP: &str = "ibv_create_qp";

    #[test]
    fn rings_never_need_more_room_than_the_queue_has() {
        let mailbox = Mailbox::new(10, None);
        let first = mailbox.attach(OP, 7, 1, None).unwrap().index();
        let error = mailbox.attach(OP, 4, 1, None).unwrap_err();
        assert_eq!((error.kind(), error.op()), (ErrorKind::TooLarge, OP));
        assert!(
            error.to_string().contains("is 4, the limit is 3"),
            "{error}"
        );
        let second = mailbox.attach(OP, 3, 1, None).unwrap().index();
        assert_eq!((first, second), (2, 4));
        mailbox.release(first, 7);
        assert_eq!(mailbox.attach(OP, 7, 1, None).unwrap().index(), first);
    }

    #[test]
    fn the_index_of_a_shared_queue_is_not_the_completion_queues_to_give() {
        let mailbox = Mailbox::new(10, None);
        let ring = RingArc::new(6, 1, 7);
        mailbox.attach_shared(OP, &ring).unwrap();
        assert_eq!(
            mailbox.attach_shared(OP, &ring).unwrap_err().kind(),
            ErrorKind::TooLarge
        );
        mailbox.release(7, 6);
        assert_eq!(mailbox.attach(OP, 10, 1, None).unwrap().index(), 2);
    }

    #[test]
    fn the_bell_rings_once_until_it_is_heard() {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).unwrap();
        let heard = bell.try_clone().unwrap();
        let rings = || {
            let mut count = [0; 8];
            rustix::io::read(&heard, &mut count).map(|_| u64::from_ne_bytes(count))
        };
        let mailbox = Mailbox::new(4, Some(bell));
        let index = mailbox.attach(OP, 4, 1, None).unwrap().index();
        assert!(rings().is_err(), "nobody need wake for a new ring");
        mailbox.retire(index, 4);
        mailbox.retire(index, 4);
        assert_eq!(rings(), Ok(1));
        mailbox.hear();
        mailbox.retire(index, 4);
        assert_eq!(rings(), Ok(1));
        mailbox.hear();
        assert!(rings().is_err());
    }

    #[test]
    fn mail_is_read_once() {
        let mailbox = Mailbox::new(4, None);
        let index = mailbox.attach(OP, 4, 1, None).unwrap().index();
        mailbox.retire(index, 4);
        let mail = mailbox.collect();
        let attached: Vec<u32> = mail.attached.iter().map(|ring| ring.index()).collect();
        assert_eq!((attached, mail.retired), (vec![2], vec![(2, 4)]));
        let mail = mailbox.collect();
        assert!(
            mail.attached.is_empty() && mail.retired.is_empty(),
            "{mail:?}"
        );
    }
}
