//! Functions that the installed library may not have: everything newer than rdma-core 39.
//!
//! Each answers with the C function, or with `None` where the library is too old:
//!
//! ```
//! match rdma_sys::probe::rdma_write_cm_event() {
//!     Some(_write) => println!("rdma-core 60 or later"),
//!     None => println!("older"),
//! }
//! ```
//!
//! They are looked up when first asked for. A plain reference would put the function's name and version into the program,
//! and the loader refuses to start a program with a version that the library has not, even if the function is never
//! called.
//!
//! To have the function is not to have the feature: the driver and the kernel must have it too, and say so by an error.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::{
    ibv_buf, ibv_comp_cntr, ibv_comp_cntr_caps, ibv_comp_cntr_init_attr, ibv_context, ibv_dm,
    ibv_dmah, ibv_dmah_init_attr, ibv_mr, ibv_mr_init_attr, ibv_pd, ibv_qp,
    ibv_qp_attach_comp_cntr_attr, rdma_addrinfo, rdma_cm_event_type, rdma_cm_id,
};

const LIBRDMACM: &CStr = c"librdmacm.so.1";
const LIBIBVERBS: &CStr = c"libibverbs.so.1";

/// Marks a symbol that has not been looked up. No function has this address.
const UNKNOWN: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

/// A function that may be missing, and what is known about it: null once it is known to be missing.
struct Symbol {
    library: &'static CStr,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(library: &'static CStr, name: &'static CStr) -> Self {
        Self {
            library,
            name,
            address: AtomicPtr::new(UNKNOWN),
        }
    }

    /// The function's address, or null.
    fn address(&self) -> *mut c_void {
        // Relaxed: nothing but the address itself is passed on, and every thread would find the same.
        let known = self.address.load(Ordering::Relaxed);
        if known == UNKNOWN {
            self.look_up()
        } else {
            known
        }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // The library is there already, because this crate links to it. Its own handle finds the symbol even from a
        // plugin that was loaded with RTLD_LOCAL, where musl's RTLD_DEFAULT does not.
        // SAFETY: the name is a C string; with RTLD_NOLOAD no code is loaded or run.
        let library =
            unsafe { libc::dlopen(self.library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            // A program that calls none of the library's functions is linked without it. It may be loaded later.
            return core::ptr::null_mut();
        }
        // SAFETY: a handle just got, and a C string.
        let address = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        // SAFETY: gives back what dlopen counted. The library stays, held by the program that was linked with it.
        unsafe { libc::dlclose(library) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Declares functions to look up.
macro_rules! probes {
    ($($library:ident: $(
        $(#[$doc:meta])*
        fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;
    )*)*) => {
        $($(
            $(#[$doc])*
            #[must_use]
            pub fn $name() -> Option<unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?> {
                static SYMBOL: Symbol = Symbol::new($library, {
                    match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    }
                });
                let address = SYMBOL.address();
                if address.is_null() {
                    return None;
                }
                // SAFETY: the library's function of this name, which has had this one signature since it was added.
                Some(unsafe {
                    core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?>(address)
                })
            }
        )*)*

        /// Which of these functions the loaded libraries have, by name.
        #[must_use]
        pub fn all() -> [(&'static str, bool); [$($(stringify!($name)),*),*].len()] {
            [$($((stringify!($name), $name().is_some())),*),*]
        }
    };
}

probes! {
    LIBRDMACM:
        /// Starts to resolve a name or a service; the answer is an event. rdma-core 60.
        fn rdma_resolve_addrinfo(
            id: *mut rdma_cm_id,
            node: *const c_char,
            service: *const c_char,
            hints: *const rdma_addrinfo,
        ) -> c_int;
        /// Reads what `rdma_resolve_addrinfo` has found. rdma-core 60.
        fn rdma_query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int;
        /// Writes an event of the user's own to an id's channel. rdma-core 60.
        fn rdma_write_cm_event(id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64) -> c_int;
    LIBIBVERBS:
        /// Allocates hints for how the device accesses memory. rdma-core 59.
        fn ibv_alloc_dmah(context: *mut ibv_context, attr: *mut ibv_dmah_init_attr) -> *mut ibv_dmah;
        /// Frees such hints. rdma-core 59.
        fn ibv_dealloc_dmah(dmah: *mut ibv_dmah) -> c_int;
        /// Registers memory by attributes. rdma-core 59.
        fn ibv_reg_mr_ex(pd: *mut ibv_pd, mr_init_attr: *mut ibv_mr_init_attr) -> *mut ibv_mr;
        /// Exports device memory as a dma-buf. rdma-core 62.
        fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int;
        /// Reads a port's speed in units of 100 Mb/s. rdma-core 62.
        fn ibv_query_port_speed(context: *mut ibv_context, port_num: u32, port_speed: *mut u64) -> c_int;
        /// Allocates memory that suits the device. rdma-core 64.
        fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void;
        /// Frees such memory. rdma-core 64.
        fn ibv_free_buf(buf: *mut ibv_buf);
        /// Registers a part of such memory. rdma-core 64.
        fn ibv_reg_buf_mr(
            pd: *mut ibv_pd,
            buf: *mut ibv_buf,
            addr: *mut c_void,
            length: usize,
            access: c_int,
        ) -> *mut ibv_mr;
        /// Exports such memory as a dma-buf. rdma-core 65.
        fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int;
        /// What [`ibv_query_comp_cntr_caps`](crate::ibv_query_comp_cntr_caps) calls. rdma-core 65.
        fn _ibv_query_comp_cntr_caps(
            context: *mut ibv_context,
            caps: *mut ibv_comp_cntr_caps,
            caps_size: usize,
        ) -> c_int;
        /// Makes a counter of completions. rdma-core 65.
        fn ibv_create_comp_cntr(
            context: *mut ibv_context,
            cc_attr: *mut ibv_comp_cntr_init_attr,
        ) -> *mut ibv_comp_cntr;
        /// Ends a counter. rdma-core 65.
        fn ibv_destroy_comp_cntr(comp_cntr: *mut ibv_comp_cntr) -> c_int;
        /// Sets a counter. rdma-core 65.
        fn ibv_set_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: u64) -> c_int;
        /// Sets a counter's errors. rdma-core 65.
        fn ibv_set_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: u64) -> c_int;
        /// Adds to a counter. rdma-core 65.
        fn ibv_inc_comp_cntr(comp_cntr: *mut ibv_comp_cntr, amount: u64) -> c_int;
        /// Adds to a counter's errors. rdma-core 65.
        fn ibv_inc_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, amount: u64) -> c_int;
        /// Reads a counter. rdma-core 65.
        fn ibv_read_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: *mut u64) -> c_int;
        /// Reads a counter's errors. rdma-core 65.
        fn ibv_read_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: *mut u64) -> c_int;
        /// Lets a queue pair count in a counter. rdma-core 65.
        fn ibv_qp_attach_comp_cntr(
            qp: *mut ibv_qp,
            comp_cntr: *mut ibv_comp_cntr,
            attr: *mut ibv_qp_attach_comp_cntr_attr,
        ) -> c_int;
}
