//! The inline functions of `rdma_cma.h`.

use crate::{rdma_cm_id, sockaddr};

/// The local address of an id.
///
/// # Safety
///
/// `id` is a live id. What the result points to is valid as long, and the library may write to it while it resolves or
/// binds the id, or reads an event of it.
#[inline]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller passes a live id; no reference is formed.
    let addr = unsafe { &raw mut (*id).route.addr.__bindgen_anon_1 };
    addr.cast()
}

/// The peer's address of an id.
///
/// # Safety
///
/// As for [`rdma_get_local_addr`].
#[inline]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller passes a live id; no reference is formed.
    let addr = unsafe { &raw mut (*id).route.addr.__bindgen_anon_2 };
    addr.cast()
}
