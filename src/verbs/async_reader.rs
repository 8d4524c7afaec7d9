#![expect(unsafe_code, reason = "reads the asynchronous events of a device")]
//! Asynchronous events, and why reading them is safe.
//!
//! C writes to the object of an event when the event is acknowledged, and some providers when it is read (bnxt_re, cxgb4 and
//! mana flush the queue pair). C's own protection is that `ibv_destroy_*` waits, while the event is between the two, for the
//! acknowledgement, though some providers have torn parts of the object down by then. So reading and acknowledging are one step
//! here, under a lock of the device (`Context::events_read`) that making and destroying the objects of this crate shares
//! (`Context::objects_change`): an event is read only while no object of the device is half made or half gone, and one that
//! is gone has no event any more, since the kernel throws its events away when it is destroyed. That lock is the last one to be
//! taken: its holder calls C, and takes no other. An object that others have made on the raw device has C's protection.
//!
//! The descriptor is made non-blocking before the first read. It must be: the kernel may throw an event away between `poll` and
//! `read`, and a read that waits would hold the lock. Nobody depends on its being blocking: librdmacm and the providers never
//! read it, and who reads it beside this crate by the raw device steals events.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rdma_sys::ibv_async_event;
use rustix::io::Errno;

use super::async_event::AsyncEvent;
use super::context::Context;
use crate::error::{Error, Result, errno_of_rdma};
use crate::os::{self, Watch};

const GET: &str = "ibv_get_async_event";

/// The reader of a device's asynchronous events: one per device at a time.
///
/// Each event is copied and acknowledged before it is handed out, so nothing that a program keeps can make the end of a queue
/// pair wait. Events come also of objects that were made before the reader; those that nobody has read when their object is
/// destroyed never come. The connection manager has events of its own, which come from
/// [`EventChannel`](crate::EventChannel); it never reads these.
///
/// It keeps the device open: drop it when [`DEVICE_FATAL`](super::AsyncEventType::DEVICE_FATAL) comes, so that the device can be
/// removed. Several threads may wait on it: each event goes to one of them.
#[doc(alias = "ibv_get_async_event")]
#[doc(alias = "ibv_ack_async_event")]
#[derive(Debug)]
pub struct AsyncEvents {
    /// Before `claim`: it watches a descriptor of the device.
    watch: Watch,
    claim: Claim,
}

/// The right to read a device's events.
#[derive(Debug)]
struct Claim(Context);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.give_up_async_events();
    }
}

impl Context {
    /// Starts to read the device's asynchronous events: what happens to its ports, and failures of its objects.
    ///
    /// Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) while another reader of the device lives;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device without events; `EMFILE` when the process has no file
    /// descriptor left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn watch(context: &rdmacm::Context) -> Result<(), rdmacm::Error> {
    /// use rdmacm::AsyncEventType;
    ///
    /// let events = context.async_events()?;
    /// while let Some(event) = events.wait(None)? {
    ///     println!("{event}");
    ///     if event.event_type() == AsyncEventType::DEVICE_FATAL {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "async_fd")]
    pub fn async_events(&self) -> Result<AsyncEvents> {
        if !self.claim_async_events() {
            return Err(Error::state(
                GET,
                "a device whose asynchronous events nobody reads",
                "there is a reader already: one serves the whole device",
            ));
        }
        let claim = Claim(self.clone());
        let Some(fd) = self.async_fd() else {
            return Err(Error::unsupported(
                GET,
                "asynchronous events",
                "this device",
            ));
        };
        rustix::io::ioctl_fionbio(fd, true)
            .map_err(|errno| Error::os(GET, errno.raw_os_error()))?;
        let watch = Watch::new(fd)?;
        Ok(AsyncEvents { watch, claim })
    }

    /// The descriptor that the device's events are read from; `None` where there is none.
    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the context of an open device is readable, and its `async_fd` is set before it is handed out.
        let fd = unsafe { (*self.as_raw()).async_fd };
        if fd < 0 {
            return None;
        }
        // SAFETY: the descriptor stays open as long as the device, which `self` keeps open.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl AsyncEvents {
    /// Takes the next event; `None` when there is none now, or a [`wake`](Self::wake) was there to be taken.
    ///
    /// Calls `ibv_get_async_event` and `ibv_ack_async_event`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)). Blocks: while an object of the device is
    /// being made or destroyed.
    ///
    /// # Errors
    ///
    /// [`DeviceRemoved`](crate::ErrorKind::DeviceRemoved) (`EIO`) after the last event of a device that is gone.
    pub fn try_event(&self) -> Result<Option<AsyncEvent>> {
        let event = self.read()?;
        if event.is_none() {
            self.watch.take_wake();
        }
        Ok(event)
    }

    /// Waits for the next event, at most for `patience`; `None` waits for ever. Gives `None` when time has run out, or when
    /// another thread has called [`wake`](Self::wake).
    ///
    /// Blocks: yes, but never inside the library. A signal does not end the wait.
    ///
    /// # Errors
    ///
    /// As for [`try_event`](Self::try_event).
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<AsyncEvent>> {
        let deadline = os::deadline_after(patience);
        loop {
            if let Some(event) = self.read()? {
                return Ok(Some(event));
            }
            if self.watch.take_wake() {
                return Ok(None);
            }
            // Another thread may take the event that woke this one, or the kernel: then the wait goes on.
            let [ready] = os::wait_readable([self.as_fd()], deadline)?;
            if !ready {
                return Ok(None);
            }
        }
    }

    /// Wakes one thread that waits for an event, or the next one that will: its wait gives `None`.
    ///
    /// Each call wakes one. Blocks: no.
    pub fn wake(&self) {
        self.watch.wake();
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.claim.0
    }

    fn read(&self) -> Result<Option<AsyncEvent>> {
        let context = self.context();
        let reading = context.events_read();
        let mut raw = ibv_async_event::default();
        loop {
            // SAFETY: `ibv_get_async_event` wants an open device and room for the answer. What the event is of is whole: those
            // who make and destroy objects share the lock that is held here alone.
            let returned = unsafe { rdma_sys::ibv_get_async_event(context.as_raw(), &raw mut raw) };
            match errno_of_rdma(returned) {
                Ok(()) => break,
                Err(errno) if errno == Errno::INTR.raw_os_error() => {}
                Err(errno) if errno == Errno::AGAIN.raw_os_error() => return Ok(None),
                Err(errno) => return Err(Error::os(GET, errno)),
            }
        }
        // SAFETY: just read, and not acknowledged; the lock is held.
        let event = unsafe { AsyncEvent::copy_of(&raw) };
        // SAFETY: `ibv_ack_async_event` wants an event that was not acknowledged, and writes to its object, which is alive as
        // above.
        unsafe { rdma_sys::ibv_ack_async_event(&raw mut raw) };
        drop(reading);
        Ok(Some(event))
    }
}

impl AsFd for AsyncEvents {
    /// A descriptor that is readable when an event can be taken: for `poll`, `epoll` and async runtimes, never to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

impl AsRawFd for AsyncEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
