use std::fmt;
use std::os::fd::AsFd;

use super::pd::ProtectionDomain;
use super::region::Region;
use super::registration::Access;
use super::remote::RemoteMemory;
use crate::error::Result;

/// Memory of another device, or of the kernel (a dma-buf), that the peer may touch at any time.
///
/// This process does not see its bytes: they move between the peer and, say, a graphics card. What a peer writes arrives as in
/// a file: whoever else has the dma-buf finds it there.
///
/// # Invariants
///
/// The length of `region` fits a `u32`.
pub struct ExposedDmaBuf {
    region: Region<()>,
    offset: u64,
    access: Access,
}

impl ProtectionDomain {
    /// Registers `len` bytes at `offset` of the dma-buf `fd` and opens them to the peers of the queue pairs in this domain.
    ///
    /// The descriptor may be closed afterwards. Calls `ibv_reg_dmabuf_mr`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the device cannot reach a dma-buf, as soft-RoCE of Linux 6.1;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for no bytes, a descriptor of anything else, or bytes that are not in
    /// it; [`TooLarge`](crate::ErrorKind::TooLarge) for 4 GiB or more or above the device's `max_mr_size`.
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn expose_dmabuf(
        &self,
        fd: impl AsFd,
        offset: u64,
        len: usize,
        access: Access,
    ) -> Result<ExposedDmaBuf> {
        let region = Region::register_dmabuf(self, fd.as_fd(), offset, len, access.with_local())?;
        // INVARIANT: `register_dmabuf` has checked the length.
        Ok(ExposedDmaBuf {
            region,
            offset,
            access,
        })
    }
}

impl ExposedDmaBuf {
    /// What to tell the peer, so that it can reach the memory. Its address is the offset in the dma-buf.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        #[expect(clippy::cast_possible_truncation, reason = "the invariant")]
        let len = self.region.len() as u32;
        RemoteMemory::new(self.offset, self.region.rkey(), len)
    }

    /// How many bytes.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// What the peer may do with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The domain that the memory is registered in.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.region.protection_domain()
    }

    /// Takes the memory back from the peers: after this no write of theirs arrives.
    ///
    /// Calls `ibv_dereg_mr` ([man 3](https://man7.org/linux/man-pages/man3/ibv_dereg_mr.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// `EBUSY` and what else the device reports. The registration is leaked then.
    #[doc(alias = "ibv_dereg_mr")]
    #[doc(alias = "close")]
    pub fn revoke(self) -> Result<()> {
        self.region.end().map(drop)
    }
}

impl fmt::Debug for ExposedDmaBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedDmaBuf")
            .field("remote", &self.remote())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
