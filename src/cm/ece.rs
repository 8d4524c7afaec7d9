#![expect(unsafe_code, reason = "calls the ECE functions of an id")]

use rdma_sys::ibv_ece;

use super::id::CmId;
use super::phase::Phase;
use crate::error::{Error, Result, errno_of_rdma};

/// Enhanced connection establishment: what a vendor's devices tell each other while they connect (`ibv_ece`).
///
/// With a queue pair of the connection manager's, the library does this by itself; these are for an
/// [external](CmId::create_external_qp) one.
#[doc(alias = "ibv_ece")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ece {
    /// Whose options these are; never 0.
    pub vendor_id: u32,
    /// The vendor's options.
    pub options: u32,
}

impl CmId {
    /// Says what this side's queue pair can do. Before connect, or before accepting.
    ///
    /// Calls `rdma_set_local_ece` ([man 3](https://man7.org/linux/man-pages/man3/rdma_set_local_ece.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) with a queue pair of the connection manager's, or later; `EINVAL` for a vendor of 0.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_local_ece(&self, ece: Ece) -> Result<()> {
        const OP: &str = "rdma_set_local_ece";
        let control = self.handle().lock();
        self.expect_no_managed_qp(OP)?;
        self.expect(OP, "an id that is not connecting", |phase| {
            phase < Phase::Connecting
        })?;
        let mut raw = ibv_ece {
            vendor_id: ece.vendor_id,
            options: ece.options,
            comp_mask: 0,
        };
        // SAFETY: `rdma_set_local_ece` wants an id and a structure that it reads during the call. It reads `id->qp`, which the
        // lock protects.
        let returned = unsafe { rdma_sys::rdma_set_local_ece(self.as_raw(), &raw mut raw) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| self.error_here(OP, errno))
    }

    /// What the peer's queue pair can do, for a request or after [`ConnectResponse`](super::EventKind::ConnectResponse);
    /// `None` when the peer, or a library on the way, knows nothing of it.
    ///
    /// Calls `rdma_get_remote_ece` ([man 3](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) with a queue pair of the connection manager's.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Option<Ece>> {
        const OP: &str = "rdma_get_remote_ece";
        let control = self.handle().lock();
        self.expect_no_managed_qp(OP)?;
        let mut raw = ibv_ece::default();
        // The reader of a CONNECT_RESPONSE writes what this reads.
        let gate = control.channel.gate();
        // SAFETY: `rdma_get_remote_ece` wants an id and room for the answer. It reads `id->qp`, which the lock protects.
        let returned = unsafe { rdma_sys::rdma_get_remote_ece(self.as_raw(), &raw mut raw) };
        let result = errno_of_rdma(returned);
        drop(gate);
        drop(control);
        result.map_err(|errno| self.error_here(OP, errno))?;
        Ok((raw.vendor_id != 0).then_some(Ece {
            vendor_id: raw.vendor_id,
            options: raw.options,
        }))
    }

    /// For what the library refuses when it has a queue pair on the id. The id's lock is held.
    fn expect_no_managed_qp(&self, op: &'static str) -> Result<()> {
        if self.has_qp() {
            return Err(Error::state(
                op,
                "an id without a queue pair of the connection manager's",
                "there is one",
            ));
        }
        Ok(())
    }
}
