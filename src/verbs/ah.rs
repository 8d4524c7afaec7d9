#![expect(unsafe_code, reason = "owns a pointer to an ibv_ah")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::ibv_ah;

use super::address::AddressVector;
use super::pd::ProtectionDomain;
use super::port::LinkLayer;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs, pointer_of};

const OP: &str = "ibv_create_ah";

/// The way to another machine's port, as the device keeps it (`ibv_ah`): what datagrams are sent along.
///
/// It lives until the last clone is dropped.
#[doc(alias = "ibv_ah")]
#[doc(alias = "ibv_destroy_ah")]
#[derive(Clone)]
pub struct AddressHandle {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// `raw` is an address handle in `pd` that nobody else destroys.
struct Inner {
    raw: NonNull<ibv_ah>,
    address: AddressVector,
    pd: ProtectionDomain,
}

// SAFETY: the pointer is only handed to libibverbs, and to the provider in a post, which reads what it points to.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`; nothing is written through `&Inner`.
unsafe impl Sync for Inner {}

impl ProtectionDomain {
    /// Makes an address handle, for datagrams from queue pairs of this domain.
    ///
    /// Calls `ibv_create_ah` ([man 3](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)). Blocks: no on soft-RoCE and
    /// InfiniBand; providers of RoCE hardware may ask the network for the destination's Ethernet address, for up to seconds.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for a port or an `sgid_index` that does not exist;
    /// [`AddrNotAvailable`](ErrorKind::AddrNotAvailable) (`ENODATA`) for an `sgid_index` without an address;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an address without a GID on an Ethernet port. What else the provider reports,
    /// such as `EHOSTUNREACH`.
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, address: &AddressVector) -> Result<AddressHandle> {
        let mut attr = *address.as_raw();
        // SAFETY: `ibv_create_ah` wants a domain, which `self` is, and attributes that it reads during the call.
        let raw = unsafe { rdma_sys::ibv_create_ah(self.as_raw(), &raw mut attr) };
        let raw = pointer_of(raw).map_err(|errno| self.no_ah(address, errno))?;
        // INVARIANT: just made in this domain, and known to nobody else.
        Ok(AddressHandle {
            inner: Arc::new(Inner {
                raw,
                address: *address,
                pd: self.clone(),
            }),
        })
    }

    /// Why `ibv_create_ah` left `errno`, as far as it can be found out.
    fn no_ah(&self, address: &AddressVector, errno: i32) -> Error {
        if errno == libc::ENODATA {
            return Error::os_as(OP, errno, ErrorKind::AddrNotAvailable);
        }
        let port = match self.context().port(address.port_num()) {
            Ok(port) if errno == libc::EINVAL => port,
            Err(error) if errno == libc::EINVAL => return error,
            _ => return Error::os(OP, errno),
        };
        if address.dgid().is_some() {
            let own = self
                .context()
                .gid(address.port_num(), address.sgid_index().into());
            own.err().unwrap_or_else(|| Error::os(OP, errno))
        } else if port.link_layer() == LinkLayer::Ethernet {
            Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "the address has no GID, and over Ethernet (RoCE) only a GID leads anywhere",
            )
        } else {
            Error::os(OP, errno)
        }
    }
}

impl AddressHandle {
    /// The address that it was made of.
    #[must_use]
    pub fn address(&self) -> AddressVector {
        self.inner.address
    }

    /// The domain that it was made in.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// The raw address handle, valid while this value or a clone of it is.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_ah {
        self.inner.raw.as_ptr()
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle")
            .field("address", &self.inner.address)
            .field("pd", &self.inner.pd)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `ibv_destroy_ah` wants an address handle that no posted send names: queues hold a clone until such sends have
        // completed, so this is the last share. The invariant says that nobody else destroys it.
        let returned = unsafe { rdma_sys::ibv_destroy_ah(self.raw.as_ptr()) };
        // A removed device may refuse; the handle is leaked then.
        debug_assert!(
            errno_of_verbs(returned).is_ok() || std::thread::panicking() || returned == libc::EIO,
            "ibv_destroy_ah: {returned}"
        );
    }
}
