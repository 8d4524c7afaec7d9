#![expect(unsafe_code, reason = "owns a pointer to an ibv_context")]

use std::ffi::CStr;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use rdma_sys::{ibv_context, ibv_device_attr_ex, ibv_transport_type};

use super::device_limits::DeviceLimits;
use super::port::LinkLayer;
use crate::error::{Error, Result, errno_of_verbs};

/// An open RDMA device (`ibv_context`), shared by everything made on it.
///
/// It comes only from an id that is bound to a device, which the connection manager opens then:
/// [`CmId::context`](crate::CmId::context), C's `id->verbs`. There is no way to open a device by its name; an id bound to one of
/// its addresses ([`CmId::bind_addr`](crate::CmId::bind_addr)) will do, and need not be kept. The device stays open while a `Context`, or anything made on one, is alive.
/// Cloning shares it.
///
/// librdmacm keeps a device that was used once open until it learns of its removal. A device can be removed while a process
/// uses it if the events of every id on it are read, and what was made on it is dropped when
/// [`DeviceRemoval`](crate::EventKind::DeviceRemoval) comes; a process that has used it and holds nothing on it any more
/// holds up the removal until it ends.
#[doc(alias = "ibv_context")]
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// `raw` is an open device, and stays open while `_keeper` is alive.
struct Inner {
    raw: NonNull<ibv_context>,
    limits: DeviceLimits,
    name: String,
    iwarp: bool,
    /// Held together while objects are made and destroyed, alone while an asynchronous event of one is read. The last lock to
    /// be taken: whoever holds it takes no other.
    objects: RwLock<()>,
    /// Whether somebody reads the asynchronous events.
    async_events_read: AtomicBool,
    /// Whether reliable queue pairs, and whether others, are made for calls only if windows are not among these.
    no_window_calls: [AtomicBool; 2],
    _keeper: Box<dyn Send + Sync>,
}

// SAFETY: libibverbs lets every thread use a context; the fields beside the pointer are never written after construction.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`: `ibv_*` functions on a context take their own locks, and nothing here is written through `&Inner`.
unsafe impl Sync for Inner {}

impl Context {
    /// Takes over `raw`, an open device that `keeper` keeps open.
    ///
    /// # Safety
    ///
    /// `raw` is an open device and stays open until `keeper` is dropped.
    pub(crate) unsafe fn from_raw(
        raw: NonNull<ibv_context>,
        keeper: Box<dyn Send + Sync>,
    ) -> Result<Self> {
        // SAFETY: the caller provides an open device.
        let limits = unsafe { query(raw) }?;
        // SAFETY: the context of an open device is readable, and its `device` is set from open to close.
        let device = unsafe { (*raw.as_ptr()).device };
        // SAFETY: the device of an open context stays allocated, and its name is a terminated string inside it.
        let name = unsafe { rdma_sys::ibv_get_device_name(device) };
        // SAFETY: as above: `name` points to a terminated string that lives as long as the device is open.
        let name = unsafe { CStr::from_ptr(name) };
        // SAFETY: as above: the device is readable while it is open.
        let transport = unsafe { (*device).transport_type };
        // INVARIANT: the caller vouches for `raw` and `keeper`.
        Ok(Self {
            inner: Arc::new(Inner {
                raw,
                limits,
                name: name.to_string_lossy().into_owned(),
                iwarp: transport == ibv_transport_type::IBV_TRANSPORT_IWARP,
                objects: RwLock::new(()),
                async_events_read: AtomicBool::new(false),
                no_window_calls: Default::default(),
                _keeper: keeper,
            }),
        })
    }

    /// A reference that does not keep the device open.
    pub(crate) fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.inner))
    }

    /// The name of the device, such as `rxe0` or `mlx5_0`.
    #[doc(alias = "ibv_get_device_name")]
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the device can hold at most, asked once when it was opened.
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.inner.limits
    }

    /// Whether the device speaks iWARP, which differs from InfiniBand and RoCE in limits, statuses and operations.
    #[doc(alias = "ibv_transport_type")]
    #[doc(alias = "IBV_TRANSPORT_IWARP")]
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        self.inner.iwarp
    }

    /// Whether it was seen that the provider makes queue pairs for calls only if windows are not among these; for a caller to
    /// set.
    pub(super) fn no_window_calls(&self, reliable: bool) -> &AtomicBool {
        &self.inner.no_window_calls[usize::from(reliable)]
    }

    /// Whether a port of the device is an InfiniBand port, and not an Ethernet one (RoCE, iWARP).
    pub(crate) fn is_infiniband_port(&self, port: u8) -> Result<bool> {
        Ok(self.port(port)?.link_layer() == LinkLayer::InfiniBand)
    }

    /// To be held around the making and the destruction of whatever asynchronous events may be of: queue pairs, completion
    /// queues, shared receive queues. No other lock is taken meanwhile, and this one not again.
    pub(crate) fn objects_change(&self) -> RwLockReadGuard<'_, ()> {
        let objects = self.inner.objects.read();
        objects.unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held while an asynchronous event is read, copied and acknowledged.
    pub(super) fn events_read(&self) -> RwLockWriteGuard<'_, ()> {
        let objects = self.inner.objects.write();
        objects.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the right to read the asynchronous events; false when somebody has it.
    pub(super) fn claim_async_events(&self) -> bool {
        !self.inner.async_events_read.swap(true, Ordering::Acquire)
    }

    /// Gives that right back.
    pub(super) fn give_up_async_events(&self) {
        self.inner.async_events_read.store(false, Ordering::Release);
    }

    /// The raw device. It belongs to librdmacm: it must not be closed.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_context {
        self.inner.raw.as_ptr()
    }
}

/// Asks an open device what it is and can hold.
///
/// # Safety
///
/// `raw` is an open device.
unsafe fn query(raw: NonNull<ibv_context>) -> Result<DeviceLimits> {
    let mut attr = ibv_device_attr_ex::default();
    // SAFETY: `ibv_query_device_ex` wants an open device, which the caller provides, no input or one, and room for the answer.
    // Where the provider or the kernel does not have it, it asks for the old attributes and leaves the rest 0.
    let returned =
        unsafe { rdma_sys::ibv_query_device_ex(raw.as_ptr(), ptr::null(), &raw mut attr) };
    errno_of_verbs(returned).map_err(|errno| Error::os("ibv_query_device_ex", errno))?;
    Ok(DeviceLimits::new(attr))
}

/// A [`Context`] that does not keep the device open.
pub(crate) struct WeakContext(Weak<Inner>);

impl WeakContext {
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn upgrade(&self) -> Option<Context> {
        self.0.upgrade().map(|inner| Context { inner })
    }
}

impl PartialEq for Context {
    /// Whether both are the same open device.
    fn eq(&self, other: &Self) -> bool {
        self.inner.raw == other.inner.raw
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}
