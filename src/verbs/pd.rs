#![expect(unsafe_code, reason = "owns a pointer to an ibv_pd")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::ibv_pd;

use super::context::Context;
use crate::error::{Error, Result, errno_of_verbs, pointer_of};

/// A protection domain (`ibv_pd`): memory and queue pairs of one domain may be used together.
///
/// It lives as long as anything made in it. Cloning shares it.
#[doc(alias = "ibv_pd")]
#[doc(alias = "ibv_dealloc_pd")]
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// `raw` is a domain of `context` that nobody else frees.
struct Inner {
    raw: NonNull<ibv_pd>,
    context: Context,
}

// SAFETY: the pointer is only handed to libibverbs, whose functions on a domain may be called from any thread.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`; nothing is written through `&Inner`.
unsafe impl Sync for Inner {}

impl Context {
    /// Makes a protection domain, inside which memory and queue pairs belong together.
    ///
    /// Calls `ibv_alloc_pd` ([man 3](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the device or the kernel has no room for another one.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain> {
        ProtectionDomain::new(self)
    }
}

impl ProtectionDomain {
    fn new(context: &Context) -> Result<Self> {
        // SAFETY: `ibv_alloc_pd` wants an open device, which a `Context` is.
        let raw = unsafe { rdma_sys::ibv_alloc_pd(context.as_raw()) };
        let raw = pointer_of(raw).map_err(|errno| Error::os("ibv_alloc_pd", errno))?;
        // INVARIANT: just allocated on `context`, and known to nobody else.
        Ok(Self {
            inner: Arc::new(Inner {
                raw,
                context: context.clone(),
            }),
        })
    }

    /// The device that the domain is on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The raw domain, valid while this handle is.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_pd {
        self.inner.raw.as_ptr()
    }
}

impl PartialEq for ProtectionDomain {
    /// Whether both are the same domain.
    fn eq(&self, other: &Self) -> bool {
        self.inner.raw == other.inner.raw
    }
}

impl Eq for ProtectionDomain {}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("context", &self.inner.context)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `ibv_dealloc_pd` wants a domain that is in use by nothing: every object made in it holds a share of this
        // `Inner`, so none is left; the invariant says that nobody else frees it.
        let returned = unsafe { rdma_sys::ibv_dealloc_pd(self.raw.as_ptr()) };
        // A removed device may refuse; the domain is leaked then, and the device with it stays open in C.
        debug_assert!(
            errno_of_verbs(returned).is_ok() || std::thread::panicking() || returned == libc::EIO,
            "ibv_dealloc_pd: {returned}"
        );
    }
}
