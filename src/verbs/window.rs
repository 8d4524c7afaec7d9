#![expect(unsafe_code, reason = "posts work requests")]

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_send_wr__bindgen_ty_1 as Extra,
    ibv_send_wr__bindgen_ty_4 as Further, ibv_send_wr__bindgen_ty_4__bindgen_ty_1 as BindMw,
    ibv_wr_opcode,
};

use super::device_flags::DeviceFlags;
use super::exposed::Exposed;
use super::op::Op;
use super::refused::Refused;
use super::registration::Access;
use super::remote::RemoteMemory;
use super::send_limits::{OP as POST_SEND, post_error};
use super::send_queue::SendQueue;
use super::windows::{Opened, RawWindow, Windows};
use crate::error::{Error, ErrorKind, Result, pointer_of};

const BIND_MW: &str = "ibv_bind_mw";

/// A memory window (`ibv_mw`): opens a part of exposed memory to the peer of one queue pair, and closes it again, much faster
/// than memory is registered.
///
/// [`SendQueue::bind`] opens, [`SendQueue::invalidate`] closes; with a window of type 2 the peer can close it, too, by
/// [`Work::send_with_invalidate`](super::Work::send_with_invalidate), so that both sides learn of it in one message. Each time
/// it is opened it has another key. A window that is dropped opens nothing any more, and so does one whose queue pair has ended.
///
/// What is open is decided by the device. This side keeps books of what it has asked for, and refuses what cannot be right; that
/// memory is freed only when no window opens it is ensured by the deregistration, which fails while one does.
///
/// # What soft-RoCE does differently
///
/// Of Linux 6.1:
///
/// - A window that is invalidated twice crashes the machine, by whichever side. This crate invalidates each key once; agree with
///   the peer who ends a window.
/// - A window lets the peer reach beyond its range, as far as the registered memory goes.
/// - [`Received::invalidated`](super::Received::invalidated) is `None` for a message that has invalidated a window: let the
///   message say so.
#[doc(alias = "ibv_mw")]
#[derive(Debug)]
pub struct Window {
    raw: Arc<RawWindow>,
    /// Those of the queue pair that the window is for.
    windows: Arc<Windows>,
    kind: WindowType,
}

/// The kinds of memory windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mw_type")]
pub enum WindowType {
    /// Ended by this side only.
    #[doc(alias = "IBV_MW_TYPE_1")]
    Type1,
    /// Ended by either side.
    #[doc(alias = "IBV_MW_TYPE_2")]
    Type2,
}

impl WindowType {
    /// The best that a device has.
    fn of(flags: DeviceFlags) -> Option<Self> {
        if flags.intersects(DeviceFlags::MEM_WINDOW_TYPE_2A | DeviceFlags::MEM_WINDOW_TYPE_2B) {
            Some(Self::Type2)
        } else if flags.contains(DeviceFlags::MEM_WINDOW) {
            Some(Self::Type1)
        } else {
            None
        }
    }

    fn raw(self) -> ibv_mw_type {
        match self {
            Self::Type1 => ibv_mw_type::IBV_MW_TYPE_1,
            Self::Type2 => ibv_mw_type::IBV_MW_TYPE_2,
        }
    }
}

impl Window {
    /// Which kind it is: type 2 where the device has it.
    #[must_use]
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The key by which the peer reaches memory, as far as this side knows.
    #[must_use]
    pub fn key(&self) -> Option<u32> {
        self.raw.lock().key()
    }

    /// Takes note that `key` has ended: to be called when the completion of an [`invalidate`](SendQueue::invalidate) has come, or
    /// when the peer says that it has invalidated the window ([`Received::invalidated`](super::Received::invalidated)).
    ///
    /// After this the memory can be [revoked](Exposed::revoke), and the window bound again.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for another key than the [window's](Self::key).
    pub fn invalidated(&mut self, key: u32) -> Result<()> {
        let mut state = self.raw.lock();
        if state.key() != Some(key) {
            return Err(Error::plain(
                POST_SEND,
                ErrorKind::InvalidInput,
                "the key is not the one that the window opens memory by",
            ));
        }
        state.opened = None;
        Ok(())
    }

    /// Frees the window and says whether that worked. What it opened is closed.
    ///
    /// Calls `ibv_dealloc_mw` ([man 3](https://man7.org/linux/man-pages/man3/ibv_dealloc_mw.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// What the device reports. The window is leaked then, with the memory that it opens.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn dealloc(self) -> Result<()> {
        self.raw.end()
    }
}

impl SendQueue {
    /// Makes a memory window for the peer of this queue pair, of type 2 where the device has it. It opens nothing yet.
    ///
    /// Calls `ibv_alloc_mw` ([man 3](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) where the device has none, as soft-iWARP; `ENOMEM` when it has none left;
    /// [`State`](ErrorKind::State) after the end of the queue pair.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_window(&self) -> Result<Window> {
        const OP: &str = "ibv_alloc_mw";
        let pd = &self.qp.pd;
        let Some(kind) = WindowType::of(pd.context().limits().flags()) else {
            return Err(Error::unsupported(OP, "memory windows", "the device"));
        };
        // SAFETY: `ibv_alloc_mw` wants a domain, which `pd` is.
        let raw = unsafe { rdma_sys::ibv_alloc_mw(pd.as_raw(), kind.raw()) };
        let raw = pointer_of(raw).map_err(|errno| Error::os(OP, errno))?;
        // SAFETY: just made in `pd`, and known to nobody else.
        let raw = Arc::new(unsafe { RawWindow::new(raw, pd.clone()) });
        let windows = Arc::clone(self.qp.windows());
        windows.add(&raw)?;
        Ok(Window { raw, windows, kind })
    }

    /// Opens the bytes `range` of `memory` to the peer for `access`, and gives what to tell the peer.
    ///
    /// A message that tells it may be posted to this queue at once: requests are carried out in order. The completion, a
    /// [`Bare`](super::Bare), says whether it worked: if not, as [`MW_BIND`](crate::Status::MW_BIND), and the queue pair is in
    /// its error state. The memory is one that was
    /// [exposed for windows](super::ProtectionDomain::expose_for_windows); it stays registered while the window is bound.
    ///
    /// Calls `ibv_post_send`, or `ibv_bind_mw` ([man 3](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html)) for a window
    /// of type 1. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for every request of the queue; [`State`](ErrorKind::State) for a window that is bound already, or was made for
    /// another queue pair, and for memory that was not exposed for windows; [`InvalidInput`](ErrorKind::InvalidInput)
    /// for memory of another domain, no bytes, bytes that are not inside, or no access.
    #[doc(alias = "ibv_bind_mw")]
    #[doc(alias = "IBV_WR_BIND_MW")]
    #[doc(alias("ibv_wr_bind_mw", "ibv_mw_bind", "ibv_mw_bind_info", "ibv_inc_rkey"))]
    pub fn bind(
        &mut self,
        window: &mut Window,
        memory: &Exposed,
        range: Range<usize>,
        access: Access,
        user: u64,
    ) -> Result<RemoteMemory, Refused<()>> {
        let opened = self.check_bind(window, memory, range, access);
        let opened = opened.map_err(|error| Refused::with(error, ()))?;
        let windowed = Arc::clone(&window.raw);
        let mut state = windowed.lock();
        let raw = state
            .raw(BIND_MW)
            .map_err(|error| Refused::with(error, ()))?;
        if state
            .opened
            .as_ref()
            .is_some_and(|opened| !opened.is_ending)
        {
            let error = Error::state(
                BIND_MW,
                "an unbound window",
                "this one opens memory already; invalidate it",
            );
            return Err(Refused::with(error, ()));
        }
        let bind_info = ibv_mw_bind_info {
            mr: memory.region().as_raw(),
            addr: opened.addr(),
            length: opened.len().into(),
            mw_access_flags: access.remote(),
        };
        let posted = match window.kind {
            WindowType::Type2 => self.bind_type_2(raw, bind_info, user),
            WindowType::Type1 => self.bind_type_1(Op::Bind, raw, bind_info, user),
        };
        // SAFETY: the window is alive while its state is locked, and nobody else writes to it meanwhile.
        let key = unsafe { (*raw.as_ptr()).rkey };
        let device_has_it = match &posted {
            Ok(()) => true,
            Err(refused) => refused.is_kept(),
        };
        if device_has_it {
            state.opened = Some(Opened {
                key,
                region: Arc::clone(memory.region()),
                is_ending: false,
            });
        }
        posted.map(|()| RemoteMemory::new(opened.addr(), key, opened.len()))
    }

    /// What a window opens by `range`, if this queue can bind it.
    fn check_bind(
        &self,
        window: &Window,
        memory: &Exposed,
        range: Range<usize>,
        access: Access,
    ) -> Result<RemoteMemory> {
        self.check_window(BIND_MW, window)?;
        if memory.protection_domain() != window.raw.protection_domain() {
            return Err(Error::plain(
                BIND_MW,
                ErrorKind::InvalidInput,
                "the memory is exposed in another protection domain than the queue pair's",
            ));
        }
        if !memory.is_for_windows() {
            return Err(Error::state(
                BIND_MW,
                "memory that is exposed for windows",
                "this was exposed without; use expose_for_windows",
            ));
        }
        let part = range.end.checked_sub(range.start).and_then(|len| {
            let (start, len) = (u32::try_from(range.start).ok()?, u32::try_from(len).ok()?);
            memory.remote().part(start, len)
        });
        match part {
            Some(part) if !part.is_empty() && access.remote() != 0 => Ok(part),
            _ => Err(Error::plain(
                BIND_MW,
                ErrorKind::InvalidInput,
                "a window opens at least one byte inside the memory, for at least one kind of access",
            )),
        }
    }

    fn check_window(&self, op: &'static str, window: &Window) -> Result<()> {
        if Arc::ptr_eq(self.qp.windows(), &window.windows) {
            return Ok(());
        }
        Err(Error::state(
            op,
            "a window of this queue pair",
            "it was made for another one",
        ))
    }

    fn bind_type_2(
        &mut self,
        raw: NonNull<ibv_mw>,
        bind_info: ibv_mw_bind_info,
        user: u64,
    ) -> Result<(), Refused<()>> {
        // SAFETY: the caller has the window locked, so it is alive and nobody else writes to it.
        let key = rdma_sys::ibv_inc_rkey(unsafe { (*raw.as_ptr()).rkey });
        // SAFETY: the window is alive, as above, and the caller borrows the region that is bound to it.
        let posted = unsafe {
            self.post_bare(Op::Bind, user, |wr| {
                wr.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
                wr.__bindgen_anon_2 = Further {
                    bind_mw: BindMw {
                        mw: raw.as_ptr(),
                        rkey: key,
                        bind_info,
                    },
                };
            })
        };
        if !matches!(&posted, Err(refused) if !refused.is_kept()) {
            // The next bind names the window by its key of that time.
            // SAFETY: as above.
            unsafe { (*raw.as_ptr()).rkey = key };
        }
        posted
    }

    fn bind_type_1(
        &mut self,
        op: Op,
        raw: NonNull<ibv_mw>,
        bind_info: ibv_mw_bind_info,
        user: u64,
    ) -> Result<(), Refused<()>> {
        let wr_id = self.put_bare(op, user)?;
        let mut bind = ibv_mw_bind {
            wr_id,
            send_flags: rdma_sys::IBV_SEND_SIGNALED,
            bind_info,
        };
        // SAFETY: `ibv_bind_mw` wants a queue pair, which `qp` keeps; a window of type 1, which the caller has locked; a
        // description that is readable during the call, with a region that is registered, which the caller borrows.
        let returned = unsafe { rdma_sys::ibv_bind_mw(self.raw(), raw.as_ptr(), &raw mut bind) };
        if returned == 0 {
            return Ok(());
        }
        // It names no request, so the device may have it: it stays posted.
        Err(Refused::kept(post_error(BIND_MW, returned)))
    }

    /// Closes what `window` opens. When its completion has come, call [`Window::invalidated`].
    ///
    /// The completion is a fence: no access by the window's key arrives after it. Calls `ibv_post_send`, or for a window of
    /// type 1 `ibv_bind_mw` with a length of 0. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for every request of the queue; [`State`](ErrorKind::State) for a window that opens nothing, is being invalidated, or
    /// was made for another queue pair.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    #[doc(alias = "ibv_wr_local_inv")]
    pub fn invalidate(&mut self, window: &mut Window, user: u64) -> Result<(), Refused<()>> {
        let check = self.check_window(POST_SEND, window);
        check.map_err(|error| Refused::with(error, ()))?;
        let windowed = Arc::clone(&window.raw);
        let mut state = windowed.lock();
        let raw = state
            .raw(POST_SEND)
            .map_err(|error| Refused::with(error, ()))?;
        let Some(opened) = state.opened.as_mut().filter(|opened| !opened.is_ending) else {
            let error = Error::state(
                POST_SEND,
                "a window that is bound",
                "this one opens nothing, or is being invalidated",
            );
            return Err(Refused::with(error, ()));
        };
        let posted = match window.kind {
            // SAFETY: the request names a key and nothing else.
            WindowType::Type2 => unsafe {
                self.post_bare(Op::Invalidate, user, |wr| {
                    wr.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
                    wr.__bindgen_anon_1 = Extra {
                        invalidate_rkey: opened.key,
                    };
                })
            },
            WindowType::Type1 => {
                let nothing = ibv_mw_bind_info {
                    mr: opened.region.as_raw(),
                    addr: opened.region.start().as_ptr().addr() as u64,
                    length: 0,
                    mw_access_flags: 0,
                };
                self.bind_type_1(Op::Invalidate, raw, nothing, user)
            }
        };
        if !matches!(&posted, Err(refused) if !refused.is_kept()) {
            opened.is_ending = true;
        }
        posted
    }
}

impl fmt::Display for WindowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "type 1",
            Self::Type2 => "type 2",
        })
    }
}
