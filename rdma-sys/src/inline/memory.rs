//! Registration of memory, and memory of the device itself.

use core::ffi::{c_int, c_uint, c_void};

use super::context::through_context;
use crate::{
    ib_uverbs_advise_mr_advice, ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd, ibv_sge,
};

#[cfg(target_os = "freebsd")]
unsafe extern "C" {
    /// Registers memory. Returns null with `errno` on failure.
    pub fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr;
}

/// Registers memory. Returns null with `errno` on failure.
///
/// In C this is a macro that picks one of two functions by the access flags. This always takes the newer one, which
/// every supported library has and to which the older one leads.
///
/// # Safety
///
/// - `pd` is a live protection domain.
/// - `addr` is valid for `length` bytes, for reading and, with flags that let the device write, for writing, until the
///   region is deregistered. Nobody else uses them while the device may write.
#[cfg(not(target_os = "freebsd"))]
#[inline]
pub unsafe fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promises are what the function asks for; the device's address is the process's own.
    unsafe { ibv_reg_mr_iova(pd, addr, length, addr.expose_provenance() as u64, access) }
}

/// Registers memory under a device address of the caller's choice. Returns null with `errno` on failure.
///
/// # Safety
///
/// As for [`ibv_reg_mr`].
#[cfg(not(target_os = "freebsd"))]
#[inline]
pub unsafe fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    #[expect(
        clippy::cast_sign_loss,
        reason = "a set of flags, which the two functions spell with different types"
    )]
    let access = access as c_uint;
    // SAFETY: the caller's promises are what the function asks for.
    unsafe { crate::ibv_reg_mr_iova2(pd, addr, length, iova, access) }
}

through_context! {
    /// Advises the device about the use of memory. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `pd` is a live protection domain, and `sg_list` has `num_sge` elements.
    fn ibv_advise_mr(
        pd: *mut ibv_pd,
        advice: ib_uverbs_advise_mr_advice,
        flags: u32,
        sg_list: *mut ibv_sge,
        num_sge: u32,
    ) -> c_int = advise_mr of pd;

    /// Makes a region that swallows writes and reads as zeroes. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `pd` is a live protection domain.
    fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr = alloc_null_mr of pd;

    /// Allocates memory of the device. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `attr` points to initialised attributes.
    fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm = alloc_dm on context;

    /// Frees memory of the device. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `dm` is live, and is not used again once this has returned 0.
    fn ibv_free_dm(dm: *mut ibv_dm) -> c_int = free_dm of dm;

    /// Registers memory of the device. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `pd` is a live protection domain, and `dm` is live until the region is deregistered.
    fn ibv_reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: c_uint) -> *mut ibv_mr
        = reg_dm_mr of pd;
}

/// Copies into memory of the device. Returns 0 or an errno.
///
/// # Safety
///
/// `dm` is live, and `host_addr` is valid for reading `length` bytes.
#[inline]
pub unsafe fn ibv_memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller passes live device memory.
    let entry = unsafe { (*dm).memcpy_to_dm };
    // SAFETY: a driver that has device memory sets both entries when it allocates it.
    let entry = unsafe { entry.unwrap_unchecked() };
    // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
    unsafe { entry(dm, dm_offset, host_addr, length) }
}

/// Copies out of memory of the device. Returns 0 or an errno.
///
/// # Safety
///
/// `dm` is live, and `host_addr` is valid for writing `length` bytes.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the caller passes live device memory.
    let entry = unsafe { (*dm).memcpy_from_dm };
    // SAFETY: a driver that has device memory sets both entries when it allocates it.
    let entry = unsafe { entry.unwrap_unchecked() };
    // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
    unsafe { entry(host_addr, dm, dm_offset, length) }
}
