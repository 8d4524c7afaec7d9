#![expect(unsafe_code, reason = "owns a pointer to an ibv_context")]

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use rdma_sys::{ibv_context, ibv_device_attr, ibv_port_attr, ibv_transport_type};

use crate::error::{Error, Result, errno_of_verbs};

/// An open RDMA device (`ibv_context`), shared by everything made on it.
///
/// It comes from the connection manager, which opens the device when an id is bound to it: see
/// [`CmId::context`](crate::CmId::context). The device stays open while a `Context`, or anything made on one, is alive.
/// Cloning shares it.
///
/// librdmacm keeps a device that was used once open until it learns of its removal. A device can be removed while a process
/// uses it if the events of every id on it are read, and what was made on it is dropped when
/// [`DeviceRemoval`](crate::EventKind::DeviceRemoval) comes; a process that has used it and holds nothing on it any more, or
/// drops an id without reading that event, holds up the removal until it ends.
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
        let mut attr = ibv_device_attr::default();
        // SAFETY: `ibv_query_device` wants an open device, which the caller provides, and room for the answer, which is `attr`.
        let returned = unsafe { rdma_sys::ibv_query_device(raw.as_ptr(), &raw mut attr) };
        errno_of_verbs(returned).map_err(|errno| Error::os("ibv_query_device", errno))?;
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
                limits: DeviceLimits(attr),
                name: name.to_string_lossy().into_owned(),
                iwarp: transport == ibv_transport_type::IBV_TRANSPORT_IWARP,
                _keeper: keeper,
            }),
        })
    }

    /// A reference that does not keep the device open.
    pub(crate) fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.inner))
    }

    /// The name of the device, such as `rxe0` or `mlx5_0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the device can hold at most, asked once when it was opened.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.inner.limits
    }

    /// Whether the device speaks iWARP, which differs from InfiniBand and RoCE in limits, statuses and operations.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        self.inner.iwarp
    }

    /// Whether a port of the device is an InfiniBand port, and not an Ethernet one (RoCE, iWARP).
    pub(crate) fn is_infiniband_port(&self, port: u8) -> Result<bool> {
        let mut attr = ibv_port_attr::default();
        // SAFETY: `ibv_query_port` wants an open device and room for the answer.
        let returned = unsafe { rdma_sys::ibv_query_port(self.as_raw(), port, &raw mut attr) };
        errno_of_verbs(returned).map_err(|errno| Error::os("ibv_query_port", errno))?;
        Ok(u32::from(attr.link_layer) == rdma_sys::IBV_LINK_LAYER_INFINIBAND)
    }

    /// The raw device. It belongs to librdmacm: it must not be closed.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_context {
        self.inner.raw.as_ptr()
    }
}

/// A [`Context`] that does not keep the device open.
pub(crate) struct WeakContext(Weak<Inner>);

impl WeakContext {
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

/// What a device can hold at most (`ibv_device_attr`).
#[derive(Clone, Copy)]
pub struct DeviceLimits(ibv_device_attr);

impl DeviceLimits {
    /// RDMA reads and atomics that a queue pair answers at a time (`max_qp_rd_atom`): the limit of `responder_resources`.
    #[must_use]
    pub fn max_qp_rd_atom(&self) -> u32 {
        positive(self.0.max_qp_rd_atom)
    }

    /// RDMA reads and atomics that a queue pair asks at a time (`max_qp_init_rd_atom`): the limit of `initiator_depth`.
    #[must_use]
    pub fn max_qp_init_rd_atom(&self) -> u32 {
        positive(self.0.max_qp_init_rd_atom)
    }

    /// Outstanding work requests on a queue of a queue pair (`max_qp_wr`).
    #[must_use]
    pub fn max_qp_wr(&self) -> u32 {
        positive(self.0.max_qp_wr)
    }

    /// Pieces of memory in a work request (`max_sge`).
    #[must_use]
    pub fn max_sge(&self) -> u32 {
        positive(self.0.max_sge)
    }

    /// Entries of a completion queue (`max_cqe`).
    #[must_use]
    pub fn max_cqe(&self) -> u32 {
        positive(self.0.max_cqe)
    }

    /// Bytes of a memory region (`max_mr_size`).
    #[must_use]
    pub fn max_mr_size(&self) -> u64 {
        self.0.max_mr_size
    }
}

impl fmt::Debug for DeviceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLimits")
            .field("max_qp_rd_atom", &self.max_qp_rd_atom())
            .field("max_qp_init_rd_atom", &self.max_qp_init_rd_atom())
            .field("max_qp_wr", &self.max_qp_wr())
            .field("max_sge", &self.max_sge())
            .field("max_cqe", &self.max_cqe())
            .field("max_mr_size", &self.max_mr_size())
            .finish_non_exhaustive()
    }
}

/// A limit is an `int` in C and never below zero; if it were, nothing would fit.
fn positive(limit: i32) -> u32 {
    u32::try_from(limit).unwrap_or(0)
}
