#![expect(
    unsafe_code,
    reason = "calls rdma_connect and rdma_accept on datagram ids"
)]

use std::fmt;
use std::net::SocketAddr;

use rdma_sys::{rdma_conn_param, rdma_ud_param};

use super::id::CmId;
use super::param::{Message, check_private_data};
use super::pending::{Failed, Pending, REJECT};
use super::phase::Phase;
use super::unacked::{Unacked, private_data};
use crate::error::{Result, errno_of_rdma};
use crate::status::LookupStatus;
use crate::verbs::{AddressVector, HandedBack};

const ACCEPT: &str = "rdma_accept";
const CONNECT: &str = "rdma_connect";

/// The queue key of every datagram queue pair of the connection manager (`RDMA_UDP_QKEY`). A reply has none of its own.
#[doc(alias = "RDMA_UDP_QKEY")]
pub const UDP_QKEY: u32 = rdma_sys::RDMA_UDP_QKEY;

/// A peer's question which queue pair to send datagrams to, from an id made with [`CmId::new_datagram`]: a request of service ID
/// resolution (SIDR), as InfiniBand calls it.
///
/// Answered once, by a method that consumes it; dropped, it is rejected. No connection comes of it, and no event follows.
#[must_use = "dropping a look-up request rejects the peer"]
pub struct LookupRequest {
    pending: Pending,
}

/// Where to send datagrams: the answer to a look-up, or a multicast group.
#[doc(alias = "rdma_ud_param")]
#[derive(Clone)]
pub struct Destination {
    address: AddressVector,
    qp_num: u32,
    qkey: u32,
    private_data: Box<[u8]>,
}

/// A look-up that was not answered with a destination.
#[derive(Clone)]
pub struct LookupFailure {
    status: LookupStatus,
    private_data: Box<[u8]>,
}

impl LookupRequest {
    pub(super) fn new(unacked: Unacked, id: CmId) -> Self {
        Self {
            pending: Pending::new(unacked, id),
        }
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.pending.id.peer_addr()
    }

    /// The address that the peer asks about.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.pending.id.local_addr()
    }

    /// The id of the request: its device is where the queue pair of an answer must be.
    #[must_use]
    pub fn id(&self) -> &CmId {
        &self.pending.id
    }

    /// What the peer sent with its question: always 180 bytes, padded with zeros.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.pending.unacked.private_data()
    }

    /// Answers with the number of a datagram queue pair, whose key is [`UDP_QKEY`], and up to 136 bytes of private data.
    ///
    /// Calls `rdma_accept` ([man 3](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)); the request's event is
    /// acknowledged after it has returned, and the id destroyed. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for more private data: the request comes back.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, qp_num: u32, private_data: &[u8]) -> Result<(), HandedBack<Self>> {
        match self.call_accept(qp_num, private_data) {
            Ok(()) => {
                drop(self.pending.answered());
                Ok(())
            }
            Err(failed) => Err(failed.hand_back(self)),
        }
    }

    fn call_accept(&self, qp_num: u32, private_data: &[u8]) -> Result<(), Failed> {
        let private_data_len =
            check_private_data(ACCEPT, Message::LookupAnswer, false, private_data)
                .map_err(Failed::Before)?;
        let mut param = rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len,
            qp_num,
            ..rdma_conn_param::default()
        };
        let id = &self.pending.id;
        let control = id.handle().lock();
        id.handle().phase().advance(Phase::Connecting);
        // SAFETY: `rdma_accept` wants the id of a request that was not answered, which `self` is; parameters and private data
        // that it reads during the call; and that the event is not acknowledged before it returns: `self` holds it.
        let returned = unsafe { rdma_sys::rdma_accept(id.as_raw(), &raw mut param) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| Failed::Called(id.error_here(ACCEPT, errno)))
    }

    /// Rejects the question, with up to 136 bytes of private data.
    ///
    /// Calls `rdma_reject` ([man 3](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for more: the question is rejected without them.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        let length = check_private_data(REJECT, Message::LookupAnswer, false, private_data)?;
        self.pending
            .reject(rdma_sys::rdma_reject, private_data, length)
    }
}

impl fmt::Debug for LookupRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupRequest")
            .field("id", &self.pending.id)
            .finish_non_exhaustive()
    }
}

impl CmId {
    /// Asks the peer which queue pair to send datagrams to, with up to 180 bytes of private data.
    ///
    /// For a datagram id whose route is resolved. What follows is [`LookedUp`](super::EventKind::LookedUp) or
    /// [`LookupFailed`](super::EventKind::LookupFailed).
    ///
    /// Calls `rdma_connect` ([man 3](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for more private data: the id can be used again.
    #[doc(alias = "rdma_connect")]
    pub fn look_up(&self, private_data: &[u8]) -> Result<()> {
        let private_data_len = check_private_data(CONNECT, Message::Lookup, false, private_data)?;
        let control = self.handle().lock();
        self.expect_service(CONNECT, true)?;
        self.expect(CONNECT, "an id whose route is resolved", |phase| {
            phase == Phase::RouteResolved
        })?;
        let mut param = rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len,
            ..rdma_conn_param::default()
        };
        // The answer may come before the call returns.
        self.handle().phase().advance(Phase::Connecting);
        // SAFETY: `rdma_connect` wants an id with a device, which one whose route is resolved has, and parameters and private
        // data that it reads during the call.
        let returned = unsafe { rdma_sys::rdma_connect(self.as_raw(), &raw mut param) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| {
            self.handle()
                .phase()
                .undo(Phase::Connecting, Phase::RouteResolved);
            self.error_here(CONNECT, errno)
        })
    }
}

impl Destination {
    /// # Safety
    ///
    /// `ud` is of an event that is not acknowledged and for which the library filled it.
    pub(super) unsafe fn copy_of(ud: &rdma_ud_param) -> Self {
        Self {
            address: AddressVector::from_raw(ud.ah_attr),
            qp_num: ud.qp_num,
            qkey: ud.qkey,
            // SAFETY: the caller's own obligation.
            private_data: unsafe { private_data_of(ud) },
        }
    }

    /// A multicast group: its `private_data` is no pointer to data.
    pub(super) fn of_group(ud: &rdma_ud_param) -> Self {
        Self {
            address: AddressVector::from_raw(ud.ah_attr),
            qp_num: ud.qp_num,
            qkey: ud.qkey,
            private_data: Box::default(),
        }
    }

    /// The way there.
    #[must_use]
    pub fn address(&self) -> AddressVector {
        self.address
    }

    /// The number of the queue pair there; of a group, the number that stands for all of its members'.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Its key: [`UDP_QKEY`]; a group over InfiniBand may have another.
    #[must_use]
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    /// What the peer sent with its answer: always 136 bytes, padded with zeros; of a group, none.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("address", &self.address)
            .field("qp_num", &self.qp_num)
            .field("qkey", &self.qkey)
            .field("private_data_len", &self.private_data.len())
            .finish()
    }
}

impl LookupFailure {
    /// # Safety
    ///
    /// As for [`Destination::copy_of`].
    pub(super) unsafe fn copy_of(status: i32, ud: &rdma_ud_param) -> Self {
        Self {
            status: LookupStatus::new(status),
            // SAFETY: the caller's own obligation.
            private_data: unsafe { private_data_of(ud) },
        }
    }

    /// Why.
    #[must_use]
    pub fn status(&self) -> LookupStatus {
        self.status
    }

    /// What the peer sent with a rejection: 136 bytes, padded with zeros. Empty when nobody was there to send any.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }
}

impl fmt::Debug for LookupFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupFailure")
            .field("status", &self.status)
            .field("private_data_len", &self.private_data.len())
            .finish()
    }
}

/// # Safety
///
/// `ud` is of an event that is not acknowledged and for which the library filled it.
unsafe fn private_data_of(ud: &rdma_ud_param) -> Box<[u8]> {
    // SAFETY: the library has filled these two fields together, and the caller keeps the event.
    unsafe { private_data(ud.private_data, ud.private_data_len) }.into()
}
