#![expect(unsafe_code, reason = "reads the union in an rdma_cm_event")]

use std::fmt;
use std::net::IpAddr;

use rdma_sys::{rdma_cm_event, rdma_cm_event_type, rdma_conn_param};

use super::event_status::EventStatus;
use super::handle::Token;
use super::lookup::{Destination, LookupFailure, LookupRequest};
use super::param::Negotiated;
use super::phase::Phase;
use super::request::ConnRequest;
use super::unacked::private_data;
use crate::error::{Cause, Error, ErrorKind};
use crate::status::{RejectReason, Rejection};

/// Something that happened to an id (`rdma_cm_event`).
///
/// Everything in it is a copy, acknowledged before it was handed out; only a [`ConnRequest`] still holds its event.
#[doc(alias = "rdma_cm_event")]
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// The number of the id that it happened to: for a connection request, the listener's.
    pub token: Token,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to an id.
#[doc(alias = "rdma_cm_event_type")]
#[doc(alias = "rdma_event_str")]
#[derive(Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The address is resolved: the id has its device. Next is the route.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddrResolved,
    /// The address could not be resolved. The id is bound now, and [`resolve_addr`](super::CmId::resolve_addr) can be called
    /// again.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddrError(EventStatus),
    /// The route is resolved. Next is connect.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved,
    /// The route could not be resolved. [`resolve_route`](super::CmId::resolve_route) can be called again.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError(EventStatus),
    /// A peer wants to connect.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest(ConnRequest),
    /// The peer has accepted, and the [external](super::CmId::create_external_qp) queue pair must be made ready:
    /// [`establish`](super::CmId::establish).
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse(Answer),
    /// The connection could not be made.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError(EventStatus),
    /// The peer does not answer.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable(EventStatus),
    /// The peer rejected the connection, or nobody listens at its address.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected(Rejection),
    /// The connection stands.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established(Answer),
    /// A peer asks which queue pair to send datagrams to: a request of service ID resolution (SIDR).
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    LookupRequest(LookupRequest),
    /// The answer to a look-up (SIDR): where to send datagrams.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    LookedUp(Destination),
    /// A look-up (SIDR) was not answered with a destination.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    LookupFailed(LookupFailure),
    /// The connection is down.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected(EventStatus),
    /// The device is being removed: drop what was made on it.
    #[doc(alias = "RDMA_CM_EVENT_DEVICE_REMOVAL")]
    DeviceRemoval,
    /// The network device behind the address has changed (bonding). The connection stays.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_CHANGE")]
    AddrChange,
    /// The queue pair's number may be used again.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit,
    /// A datagram id is in a [multicast group](super::Membership).
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoined {
        /// The group, as it was given to the join.
        group: IpAddr,
        /// Where to send to all of it: its GID and LID, the number that stands for every member's queue pair, and its key.
        destination: Destination,
    },
    /// A multicast group could not be joined, or has ended. The membership must still be left.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError {
        /// The group, as it was given to the join.
        group: IpAddr,
        /// Why.
        status: EventStatus,
    },
    /// A name is resolved by the kernel's service (rdma-core 60).
    #[doc(alias = "RDMA_CM_EVENT_ADDRINFO_RESOLVED")]
    AddrinfoResolved,
    /// A name could not be resolved by the kernel's service (rdma-core 60).
    #[doc(alias = "RDMA_CM_EVENT_ADDRINFO_ERROR")]
    AddrinfoError(EventStatus),
    /// A program has written this event to the id itself (rdma-core 60).
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    User {
        /// What it wrote.
        arg: u64,
    },
    /// The library has written this event to the id itself (rdma-core 60).
    #[doc(alias = "RDMA_CM_EVENT_INTERNAL")]
    Internal {
        /// What it wrote.
        arg: u64,
    },
    /// An event that this crate has no name for.
    Other {
        /// The number of the event.
        code: u32,
        /// Its status, as it came.
        status: i32,
    },
}

/// What came with the peer's answer to a connect.
///
/// On the accepting side ESTABLISHED carries nothing over InfiniBand and RoCE: both depths are 0 and there is no data. What was
/// negotiated there is what accept was given: see [`CmId::negotiated`](super::CmId::negotiated).
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    negotiated: Negotiated,
    private_data: Box<[u8]>,
}

impl Event {
    /// The event's failure as an error of the step that it ends; `None` for an event that is no failure.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.failure_of(match self.kind {
            EventKind::AddrError(_) => "rdma_resolve_addr",
            EventKind::RouteError(_) => "rdma_resolve_route",
            EventKind::MulticastError { .. } => "rdma_join_multicast_ex",
            EventKind::AddrinfoError(_) => "rdma_resolve_addrinfo",
            EventKind::Disconnected(_) | EventKind::DeviceRemoval => "rdma_get_cm_event",
            _ => "rdma_connect",
        })
    }

    /// The event's failure as an error of `op`, the step that waited for it.
    pub(crate) fn failure_of(&self, op: &'static str) -> Option<Error> {
        Some(match &self.kind {
            EventKind::AddrError(status)
            | EventKind::RouteError(status)
            | EventKind::ConnectError(status)
            | EventKind::Unreachable(status)
            | EventKind::MulticastError { status, .. }
            | EventKind::AddrinfoError(status) => status.to_error(op),
            EventKind::Rejected(rejection) => Error::new(op, Cause::Rejected(rejection.clone())),
            EventKind::LookupFailed(failure) => Error::lookup(op, failure.status()),
            EventKind::Disconnected(_) => Error::plain(
                op,
                ErrorKind::Disconnected,
                "the peer has ended the connection",
            ),
            EventKind::DeviceRemoval => {
                Error::plain(op, ErrorKind::DeviceRemoved, "the RDMA device was removed")
            }
            _ => return None,
        })
    }
}

impl EventKind {
    /// Copies an event that is no request. `errno` is what `rdma_get_cm_event` left; `datagram` is whether its id is a
    /// datagram id; `group` is the multicast group that the event is of.
    ///
    /// # Safety
    ///
    /// `event` came from `rdma_get_cm_event` and is not acknowledged.
    pub(super) unsafe fn copy_of(
        event: &rdma_cm_event,
        errno: i32,
        datagram: bool,
        group: Option<IpAddr>,
    ) -> Self {
        let status = EventStatus::new(event.status, errno);
        if datagram {
            // SAFETY: for a datagram id the library fills `ud` or leaves the union zeroed. Of the numbers of rdma-core 60 and
            // later, which use `arg` instead, nothing of it is looked at below, and of those of multicast, which use
            // `private_data` for something else, no pointer.
            let ud = unsafe { &event.param.ud };
            match (event.event, group) {
                (rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED, _) => {
                    // SAFETY: `ud` was filled for this event, and the event is not acknowledged.
                    return Self::LookedUp(unsafe { Destination::copy_of(ud) });
                }
                (rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE, _) => {
                    // SAFETY: as above.
                    return Self::LookupFailed(unsafe { LookupFailure::copy_of(event.status, ud) });
                }
                (rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_JOIN, Some(group)) => {
                    return Self::MulticastJoined {
                        group,
                        destination: Destination::of_group(ud),
                    };
                }
                (rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_ERROR, Some(group)) => {
                    return Self::MulticastError { group, status };
                }
                _ => {}
            }
        }
        // SAFETY: the library fills `conn` for every event of a connected service or leaves the union zeroed. A datagram id gets
        // none of the events that it is looked at for, and of the numbers of rdma-core 60 and later, which use `arg` instead,
        // nothing of it is looked at below.
        let conn = unsafe { &event.param.conn };
        match event.event {
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddrResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR => Self::AddrError(status),
            rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR => Self::RouteError(status),
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => {
                // SAFETY: `conn` was filled for this event, and the event is not acknowledged.
                Self::ConnectResponse(unsafe { Answer::copy_of(conn) })
            }
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR => Self::ConnectError(status),
            rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable(status),
            rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => Self::Rejected(Rejection::new(
                RejectReason::new(event.status),
                // SAFETY: as for CONNECT_RESPONSE.
                unsafe { private_data_of(conn) },
            )),
            rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: as for CONNECT_RESPONSE.
                Self::Established(unsafe { Answer::copy_of(conn) })
            }
            rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected(status),
            rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE => Self::AddrChange,
            rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDRINFO_RESOLVED => Self::AddrinfoResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDRINFO_ERROR => Self::AddrinfoError(status),
            rdma_cm_event_type::RDMA_CM_EVENT_USER => Self::User { arg: arg(event) },
            rdma_cm_event_type::RDMA_CM_EVENT_INTERNAL => Self::Internal { arg: arg(event) },
            other => Self::Other {
                code: other.0,
                status: event.status,
            },
        }
    }

    /// The number that a multicast group was joined with: the `private_data` of its events, which is no pointer to data.
    pub(super) fn group_number(event: &rdma_cm_event) -> Option<Token> {
        matches!(
            event.event,
            rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_JOIN
                | rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_ERROR
        )
        .then(|| {
            // SAFETY: for the events of multicast the library fills `ud`.
            let ud = unsafe { &event.param.ud };
            Token::from_context(ud.private_data)
        })
    }

    /// The multicast group that the event is of.
    pub(super) fn group(&self) -> Option<IpAddr> {
        match self {
            Self::MulticastJoined { group, .. } | Self::MulticastError { group, .. } => {
                Some(*group)
            }
            _ => None,
        }
    }

    /// Libraries before rdma-core 56 report an address as resolved when the device behind it has vanished, and then follow a
    /// null pointer; later ones report this.
    pub(super) fn or_no_device(self, has_device: bool) -> Self {
        match self {
            Self::AddrResolved if !has_device => {
                Self::AddrError(EventStatus::new(-1, libc::ENODEV))
            }
            other => other,
        }
    }

    /// The phase that the event moves its id to.
    pub(super) fn phase(&self) -> Option<Phase> {
        Some(match self {
            Self::AddrResolved => Phase::AddrResolved,
            Self::RouteResolved => Phase::RouteResolved,
            Self::ConnectResponse(_) => Phase::Responded,
            Self::Established(_) | Self::LookedUp(_) => Phase::Established,
            Self::Disconnected(_) => Phase::Disconnected,
            Self::ConnectError(_)
            | Self::Unreachable(_)
            | Self::Rejected(_)
            | Self::LookupFailed(_) => Phase::Failed,
            Self::DeviceRemoval => Phase::Removed,
            // Back to where it was.
            Self::AddrError(_) | Self::RouteError(_) => return None,
            Self::ConnectRequest(_)
            | Self::LookupRequest(_)
            | Self::AddrChange
            | Self::TimewaitExit
            | Self::MulticastJoined { .. }
            | Self::MulticastError { .. }
            | Self::AddrinfoResolved
            | Self::AddrinfoError(_)
            | Self::User { .. }
            | Self::Internal { .. }
            | Self::Other { .. } => return None,
        })
    }
}

impl Answer {
    /// # Safety
    ///
    /// `conn` is of an event that is not acknowledged and for which the library filled it.
    unsafe fn copy_of(conn: &rdma_conn_param) -> Self {
        Self {
            negotiated: Negotiated {
                responder_resources: conn.responder_resources,
                initiator_depth: conn.initiator_depth,
            },
            // SAFETY: the caller's own obligation.
            private_data: unsafe { private_data_of(conn) },
        }
    }

    /// The depths that both sides have agreed on.
    #[must_use]
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// What the peer sent with its answer: over InfiniBand and RoCE always 196 bytes, padded with zeros; over iWARP as many
    /// as were sent.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("negotiated", &self.negotiated)
            .field("private_data_len", &self.private_data.len())
            .finish()
    }
}

/// The number of an event that a program, or the library, has written.
fn arg(event: &rdma_cm_event) -> u64 {
    // SAFETY: the union is zeroed when the event is made, and eight plain bytes for whatever is written to it.
    unsafe { event.param.arg }
}

/// # Safety
///
/// `conn` is of an event that is not acknowledged and for which the library filled it.
unsafe fn private_data_of(conn: &rdma_conn_param) -> Box<[u8]> {
    // SAFETY: the library has filled these two fields together, and the caller keeps the event.
    unsafe { private_data(conn.private_data, conn.private_data_len) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event as the library hands it out, with its union zeroed.
    fn event(code: u32, status: i32) -> rdma_cm_event {
        // SAFETY: all zeros is a valid event: null pointers, and a union of plain data.
        let mut event: rdma_cm_event = unsafe { std::mem::zeroed() };
        event.event = rdma_cm_event_type(code);
        event.status = status;
        event
    }

    #[test]
    fn an_address_without_a_device_is_not_resolved() {
        let kind = EventKind::AddrResolved.or_no_device(false);
        let EventKind::AddrError(status) = kind else {
            panic!("{kind:?}");
        };
        assert_eq!(status.errno(), Some(libc::ENODEV));
        let kind = EventKind::AddrResolved.or_no_device(true);
        assert!(matches!(kind, EventKind::AddrResolved), "{kind:?}");
    }

    #[test]
    fn an_event_without_a_name_keeps_its_number() {
        for code in [20, 42, 1000] {
            // SAFETY: a zeroed union reads as parameters without data.
            let kind = unsafe { EventKind::copy_of(&event(code, -5), 0, false, None) };
            assert!(
                matches!(kind, EventKind::Other { code: c, status: -5 } if c == code),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn every_event_of_the_header_but_a_request_has_a_name() {
        for code in
            (0..20).filter(|&code| code != rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST.0)
        {
            let group = matches!(code, 12 | 13).then_some(IpAddr::from([224, 0, 0, 1]));
            // SAFETY: a zeroed union reads as parameters without data.
            let kind = unsafe { EventKind::copy_of(&event(code, 0), 0, group.is_some(), group) };
            assert_eq!(kind.group(), group);
            assert!(!matches!(kind, EventKind::Other { .. }), "{code}: {kind:?}");
        }
    }

    #[test]
    fn an_event_without_private_data_has_an_empty_slice() {
        let rejected = rdma_cm_event_type::RDMA_CM_EVENT_REJECTED.0;
        // SAFETY: a zeroed union reads as parameters without data.
        let kind = unsafe { EventKind::copy_of(&event(rejected, 8), 0, false, None) };
        let EventKind::Rejected(rejection) = kind else {
            panic!("not a rejection");
        };
        assert_eq!(rejection.reason(), RejectReason::INVALID_SERVICE_ID);
        assert_eq!(rejection.private_data(), b"");
    }
}
