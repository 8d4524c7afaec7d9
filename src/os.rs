//! Waiting for file descriptors with a deadline.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The moment at which a wait ends: `None` is never.
pub(crate) type Deadline = Option<Instant>;

/// The deadline of a wait that starts now. A duration that the clock cannot hold is for ever.
pub(crate) fn deadline_after(patience: Option<Duration>) -> Deadline {
    Instant::now().checked_add(patience?)
}

/// Waits until one of `fds` is readable or `deadline` has come, and says which are readable.
///
/// A signal does not end the wait. When the deadline has passed already the descriptors are still looked at once.
pub(crate) fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Deadline,
) -> Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A duration too long for the kernel's clock is as good as for ever.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => return Ok(polled.map(|fd| !fd.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::os("poll", errno.raw_os_error())),
        }
    }
}

/// Makes an eventfd, and a descriptor that is readable when `fd` or it is: the latter comes first. `fd` stays open for at least as
/// long.
pub(crate) fn eventfd_beside(
    fd: BorrowedFd<'_>,
    flags: EventfdFlags,
) -> Result<(OwnedFd, OwnedFd)> {
    let os_error = |op| move |errno: Errno| Error::os(op, errno.raw_os_error());
    let flags = flags | EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let beside = eventfd(0, flags).map_err(os_error("eventfd"))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os_error("epoll_create"))?;
    for fd in [fd, beside.as_fd()] {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(os_error("epoll_ctl"))?;
    }
    Ok((epoll, beside))
}

/// A descriptor that is readable when another one is, or a waker. The other one is a library's and is not given out: whoever
/// reads from it, or makes it blocking, steals events or stops their reader.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: OwnedFd,
    /// An eventfd that counts the wakes that nobody has taken yet.
    waker: OwnedFd,
    /// At least as many, so that nobody asks the kernel where there are none.
    wakes: AtomicUsize,
}

impl Watch {
    /// Watches `fd`, which stays open for at least as long.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> Result<Self> {
        let (epoll, waker) = eventfd_beside(fd, EventfdFlags::SEMAPHORE)?;
        Ok(Self {
            epoll,
            waker,
            wakes: AtomicUsize::new(0),
        })
    }

    /// Wakes one who waits, or the next one who will.
    pub(crate) fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::AcqRel);
        // It fails when 2^64 wakes are pending: then nobody is left asleep.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Has those who wait look at `fd`, the watched one, again, where the kernel wakes nobody for what came to it.
    pub(crate) fn look_again(&self, fd: BorrowedFd<'_>) {
        let data = epoll::EventData::new_u64(0);
        // It fails for a descriptor that is not watched, and this one is.
        let _ = epoll::modify(&self.epoll, fd, data, epoll::EventFlags::IN);
    }

    /// Whether it is to be readable with nothing to be read from the watched one, too.
    pub(crate) fn keep_readable(&self, yes: bool) {
        // The waker can always be written to.
        let mut interest = epoll::EventFlags::IN;
        interest.set(epoll::EventFlags::OUT, yes);
        let data = epoll::EventData::new_u64(0);
        // It fails for a descriptor that is not watched, and this one is.
        let _ = epoll::modify(&self.epoll, &self.waker, data, interest);
    }

    /// Takes one wake, if one is pending.
    pub(crate) fn take_wake(&self) -> bool {
        let taken = self.wakes.load(Ordering::Acquire) > 0
            && rustix::io::read(&self.waker, &mut [0; 8]).is_ok();
        if taken {
            self.wakes.fetch_sub(1, Ordering::AcqRel);
        }
        taken
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_readable_one_of_two_is_named() {
        let (quiet, _quiet_end) = UnixStream::pair().unwrap();
        let (loud, mut loud_end) = UnixStream::pair().unwrap();
        loud_end.write_all(b"x").unwrap();
        let ready = wait_readable([quiet.as_fd(), loud.as_fd()], None).unwrap();
        assert_eq!(ready, [false, true]);
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let (quiet, _end) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let ready = wait_readable(
            [quiet.as_fd()],
            deadline_after(Some(Duration::from_millis(20))),
        );
        assert_eq!(ready.unwrap(), [false]);
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_deadline_of_the_past_looks_once() {
        let (loud, mut loud_end) = UnixStream::pair().unwrap();
        loud_end.write_all(b"x").unwrap();
        let ready = wait_readable([loud.as_fd()], Some(Instant::now())).unwrap();
        assert_eq!(ready, [true]);
    }

    #[test]
    fn a_watch_is_readable_for_its_descriptor_and_for_each_wake() {
        let (watched, mut end) = UnixStream::pair().unwrap();
        let watch = Watch::new(watched.as_fd()).unwrap();
        let ready = || wait_readable([watch.as_fd()], Some(Instant::now())).unwrap()[0];
        assert!(!ready() && !watch.take_wake());
        watch.wake();
        watch.wake();
        assert!(ready() && watch.take_wake());
        assert!(ready() && watch.take_wake());
        assert!(!ready() && !watch.take_wake());
        watch.keep_readable(true);
        assert!(ready() && !watch.take_wake());
        watch.keep_readable(false);
        assert!(!ready());
        end.write_all(b"x").unwrap();
        assert!(ready() && !watch.take_wake());
    }

    #[test]
    fn a_patience_without_end_is_no_deadline() {
        assert_eq!(deadline_after(None), None);
        assert_eq!(deadline_after(Some(Duration::MAX)), None);
    }
}
