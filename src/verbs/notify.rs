#![expect(unsafe_code, reason = "arms an ibv_cq")]

//! Sleeping until a completion queue has something: its channel, what arms it, and the descriptor to watch.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rdma_sys::ibv_comp_channel;
use rustix::event::EventfdFlags;

use super::comp_channel::CompChannel;
use super::context::Context;
use super::cq::CompletionQueue;
use crate::error::{Error, Result, errno_of_verbs};
use crate::os;

/// What tells a poller that sleeps.
#[derive(Debug)]
pub(super) struct Events {
    channel: CompChannel,
    /// Readable when the channel or the mailbox's bell is. The channel's own descriptor is not given out: an event that
    /// somebody else reads from it is never acknowledged, and the end of the queue waits for that.
    watch: OwnedFd,
}

/// Which completions end a sleep: the second argument of `ibv_req_notify_cq`.
#[derive(Clone, Copy)]
enum Wanted {
    Any = 0,
    Solicited = 1,
}

impl Events {
    /// Makes a channel, and a bell for the mailbox.
    pub(super) fn new(context: &Context) -> Result<(Self, OwnedFd)> {
        let channel = CompChannel::new(context)?;
        let (watch, bell) = os::eventfd_beside(channel.as_fd(), EventfdFlags::empty())?;
        Ok((Self { channel, watch }, bell))
    }

    /// The channel to make the queue with.
    pub(super) fn as_raw(&self) -> *mut ibv_comp_channel {
        self.channel.as_raw()
    }
}

impl CompletionQueue {
    /// Waits until a completion can be polled: true, or until `patience` ends: false. `None` waits for ever.
    ///
    /// Arms the queue, looks once more and only then sleeps, so that no completion is missed; reads and acknowledges the
    /// channel's events itself.
    ///
    /// Calls `ibv_req_notify_cq` and `ibv_get_cq_event`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)). Blocks: yes.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when the queue was made without a channel; what the kernel or the provider reports.
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_req_notify_cq")]
    #[doc(alias = "rdma_get_send_comp")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn wait(&mut self, patience: Option<Duration>) -> Result<bool> {
        self.wait_for(Wanted::Any, patience)
    }

    /// As [`wait`](Self::wait), but sleeps on through completions that are not [solicited](Self::arm_solicited). At the
    /// end of `patience` it looks for those, too: not every device wakes a sleeper for requests that failed, so that there is
    /// no waiting for ever.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub fn wait_solicited(&mut self, patience: Duration) -> Result<bool> {
        self.wait_for(Wanted::Solicited, Some(patience))
    }

    fn wait_for(&mut self, wanted: Wanted, patience: Option<Duration>) -> Result<bool> {
        let deadline = os::deadline_after(patience);
        loop {
            if self.arm_for(wanted)? {
                return Ok(true);
            }
            let Some(watch) = self.event_fd() else {
                return Err(no_channel("ibv_get_cq_event"));
            };
            if os::wait_readable([watch], deadline)? == [false] {
                return self.has_entry();
            }
        }
    }

    /// Asks to be told of the next completion, then looks once more: true when a completion can be polled now, and there is
    /// nothing to wait for.
    ///
    /// After false, [`event_fd`](Self::event_fd) becomes readable with the next completion, or when there is something else for
    /// the queue's owner to do: then arm again, and poll. So an event loop misses nothing:
    ///
    /// ```no_run
    /// # fn run(cq: &mut rdmacm::CompletionQueue, wait: impl Fn(std::os::fd::BorrowedFd<'_>)) -> Result<(), rdmacm::Error> {
    /// loop {
    ///     while let Some(completion) = cq.poll()? {
    ///         println!("{completion:?}");
    ///     }
    ///     if !cq.arm()? {
    ///         // `poll`, `epoll` or an async runtime, beside whatever else there is to wait for.
    ///         wait(cq.event_fd().expect("made with a channel"));
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// Calls `ibv_req_notify_cq`, and `ibv_get_cq_event` for what is pending
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when the queue was made without a channel; what the kernel or the provider reports.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) -> Result<bool> {
        self.arm_for(Wanted::Any)
    }

    /// As [`arm`](Self::arm), but asks to be told of the next solicited completion only: of a message, or a write with an
    /// immediate value, that the peer sent with [`solicited`](crate::Work::solicited), or of a request that failed.
    ///
    /// Sends of one's own, and messages that are not solicited, wake nobody and wait to be polled. Looks once more for
    /// completions of both kinds, and is true when there is one. An [`arm`](Self::arm) that has not been answered yet stays:
    /// then the next completion of any kind is told.
    ///
    /// Soft RoCE does not tell of all requests that fail: look now and then, or watch for the event that ends the connection.
    /// Over iWARP, whose soft device never tells of a message so, this is [`arm`](Self::arm).
    ///
    /// Calls `ibv_req_notify_cq` with `solicited_only`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`arm`](Self::arm).
    #[doc(alias = "ibv_req_notify_cq")]
    #[doc(alias = "solicited_only")]
    pub fn arm_solicited(&mut self) -> Result<bool> {
        self.arm_for(Wanted::Solicited)
    }

    fn arm_for(&mut self, wanted: Wanted) -> Result<bool> {
        const OP: &str = "ibv_req_notify_cq";
        if !self.unread.is_empty() {
            return Ok(true);
        }
        let Some(events) = self.shared.events() else {
            return Err(no_channel(OP));
        };
        if self.armed {
            self.shared.mailbox().hear();
            // SAFETY: the channel's only queue is this one.
            unsafe { events.channel.drain() }?;
        }
        self.armed = true;
        let wanted = match self.shared.context().is_iwarp() {
            true => Wanted::Any,
            false => wanted,
        };
        // SAFETY: `ibv_req_notify_cq` wants a queue that was made with a channel, which was checked.
        let returned = unsafe { rdma_sys::ibv_req_notify_cq(self.shared.as_raw(), wanted as i32) };
        errno_of_verbs(returned).map_err(|errno| Error::os(OP, errno))?;
        self.has_entry()
    }

    /// The descriptor to wait for after [`arm`](Self::arm), never to be read; `None` when the queue was made without a channel.
    ///
    /// An async runtime that owns what it watches, as tokio's `AsyncFd`, takes a
    /// [clone](BorrowedFd::try_clone_to_owned) of it: see the example `tokio_echo`.
    #[must_use]
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.events()?.watch.as_fd())
    }
}

fn no_channel(op: &'static str) -> Error {
    Error::state(
        op,
        "a completion queue with a channel (`create_cq_with_channel`)",
        "this one was made without",
    )
}
