#![expect(unsafe_code, reason = "exports C symbols and owns descriptors")]

use std::collections::VecDeque;
use std::ffi::c_int;

use crate::c::rdma_event_channel;
use crate::call::Errno;
use crate::doom::doom;
use crate::message::Queued;
use crate::poison::Obj;
use crate::world::{World, changed, world};

/// An event channel: the open file of the connection manager, and what is queued on it.
pub(crate) struct Channel {
    pub(crate) c: Obj<rdma_event_channel>,
    pub(crate) signal: Signal,
    pub(crate) queue: VecDeque<Queued>,
    /// How many threads are inside `rdma_get_cm_event`.
    pub(crate) readers: u32,
}

/// A descriptor that is readable while something is queued.
#[derive(Debug)]
pub(crate) struct Signal {
    fd: c_int,
    raised: bool,
}

impl Signal {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: takes two numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(libc::EMFILE);
        }
        Ok(Self { fd, raised: false })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd
    }

    /// Makes the descriptor readable or not.
    pub(crate) fn set(&mut self, raised: bool) {
        if self.raised == raised {
            return;
        }
        self.raised = raised;
        let mut count = 1_u64;
        if raised {
            // SAFETY: `write` wants 8 readable bytes here.
            let _ = unsafe { libc::write(self.fd, (&raw const count).cast(), 8) };
        } else {
            // SAFETY: `read` wants 8 writable bytes here. The counter is 1, so it does not wait.
            let _ = unsafe { libc::read(self.fd, (&raw mut count).cast(), 8) };
        }
    }

    /// Whether a read may wait: `EBADF` when the descriptor was closed behind the library's back.
    pub(crate) fn is_blocking(&self) -> Result<bool, Errno> {
        // SAFETY: takes two numbers and gives one.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFL) };
        if flags < 0 {
            return Err(libc::EBADF);
        }
        Ok(flags & libc::O_NONBLOCK == 0)
    }

    pub(crate) fn close(&mut self) {
        // SAFETY: the descriptor is this value's own, and it is not used after this.
        unsafe { libc::close(self.fd) };
        self.fd = -1;
    }
}

impl World {
    /// Queues an event where its id is.
    pub(crate) fn push(&mut self, queued: Queued) {
        let Some(id) = self.ids.find(queued.id) else {
            return;
        };
        if id.automatic {
            self.automatic(&queued);
            return;
        }
        let file = id.file;
        if let Some(channel) = self.channels.find_mut(file) {
            channel.queue.push_back(queued);
            channel.signal.set(true);
        }
        changed();
    }

    /// Takes out of a channel's queue what `chosen` says.
    pub(crate) fn withdraw(
        &mut self,
        channel: usize,
        chosen: impl Fn(&Queued) -> bool,
    ) -> Vec<Queued> {
        let Some(channel) = self.channels.find_mut(channel) else {
            return Vec::new();
        };
        if channel.queue.is_empty() {
            return Vec::new();
        }
        let (taken, left): (VecDeque<_>, VecDeque<_>) =
            channel.queue.drain(..).partition(|queued| chosen(queued));
        channel.queue = left;
        channel.signal.set(!channel.queue.is_empty());
        taken.into()
    }
}

export! { pointer:
    fn rdma_create_event_channel() -> *mut rdma_event_channel {
        let signal = Signal::new()?;
        let c = Obj::new(rdma_event_channel { fd: signal.fd() });
        let raw = c.raw();
        let channel = Channel { c, signal, queue: VecDeque::new(), readers: 0 };
        world().channels.insert(raw.addr(), channel);
        Ok(raw)
    }
}

export! { plain:
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
        let mut world = world();
        let address = channel.addr();
        if world.channel(address).readers > 0 {
            doom!("the channel is destroyed while a thread reads events from it");
        }
        let uses = |id: &crate::id::Id| id.file == address || id.c.look(|c| c.channel.addr()) == address;
        let ids = world.ids.iter().filter(|(_, id)| !id.automatic && uses(id)).count();
        if ids > 0 {
            doom!("the channel is destroyed before its ids: {ids} of them live");
        }
        let unacked = world.events.iter().filter(|(_, event)| event.channel == address).count();
        if unacked > 0 {
            doom!("the channel is destroyed before {unacked} of its events were acknowledged");
        }
        if let Some(mut channel) = world.channels.remove(address) {
            channel.signal.close();
            world.bury("event channel", channel.c);
        }
    }
}
