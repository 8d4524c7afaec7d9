use std::sync::atomic::{AtomicU8, Ordering};

/// How far an id has come. The order is the order of a connection's life: phases only move forward, but from a resolution that
/// fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Made, and nothing more.
    Idle,
    /// Has a local address.
    Bound,
    /// Waits for connection requests.
    Listening,
    /// `rdma_resolve_addr` was called.
    ResolvingAddr,
    /// The device and the addresses are known.
    AddrResolved,
    /// `rdma_resolve_route` was called.
    ResolvingRoute,
    /// The way to the peer is known.
    RouteResolved,
    /// Came with a connection request that is not answered yet.
    Requested,
    /// `rdma_connect` or `rdma_accept` was called.
    Connecting,
    /// The peer has accepted; the user's own queue pair is to be made ready.
    Responded,
    /// The connection stands.
    Established,
    /// The connection is down.
    Disconnected,
    /// A step failed: the id is of no more use.
    Failed,
    /// The device is gone.
    Removed,
}

const ALL: [Phase; 14] = [
    Phase::Idle,
    Phase::Bound,
    Phase::Listening,
    Phase::ResolvingAddr,
    Phase::AddrResolved,
    Phase::ResolvingRoute,
    Phase::RouteResolved,
    Phase::Requested,
    Phase::Connecting,
    Phase::Responded,
    Phase::Established,
    Phase::Disconnected,
    Phase::Failed,
    Phase::Removed,
];

impl Phase {
    /// What the id is, for an error that says why a call was not made.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Idle => "the id is new",
            Self::Bound => "the id is bound and nothing more",
            Self::Listening => "the id listens",
            Self::ResolvingAddr => "the id's address is still being resolved",
            Self::AddrResolved => "the id has its address resolved, not its route",
            Self::ResolvingRoute => "the id's route is still being resolved",
            Self::RouteResolved => "the id has its route resolved and is not connected",
            Self::Requested => "the id is a request that is not answered yet",
            Self::Connecting => "the id is connecting",
            Self::Responded => "the id waits to be established",
            Self::Established => "the id is connected",
            Self::Disconnected => "the id is disconnected",
            Self::Failed => "the id has failed; a new attempt needs a new id",
            Self::Removed => "the id's device is gone",
        }
    }
}

/// A [`Phase`] that the reader of events and the caller of functions both move on.
#[derive(Debug)]
pub(super) struct PhaseCell(AtomicU8);

impl PhaseCell {
    pub(super) fn new(phase: Phase) -> Self {
        Self(AtomicU8::new(phase as u8))
    }

    pub(super) fn get(&self) -> Phase {
        ALL[usize::from(self.0.load(Ordering::Acquire))]
    }

    /// Moves on to `phase`, unless the id is further already.
    pub(super) fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Goes back after a call that did not happen, or whose event is a failure that can be tried again, unless an event has
    /// moved the id on meanwhile.
    pub(super) fn undo(&self, from: Phase, to: Phase) {
        // A failure means that the id is further already, which is what is wanted.
        let _ = self
            .0
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_numbers() {
        for (number, phase) in ALL.into_iter().enumerate() {
            assert_eq!(usize::from(phase as u8), number);
        }
    }

    #[test]
    fn phases_move_forward_and_an_undo_never_hides_an_event() {
        let cell = PhaseCell::new(Phase::Requested);
        cell.advance(Phase::Connecting);
        cell.advance(Phase::Established);
        cell.advance(Phase::Connecting);
        assert_eq!(cell.get(), Phase::Established);
        cell.undo(Phase::Connecting, Phase::Requested);
        assert_eq!(cell.get(), Phase::Established);

        let cell = PhaseCell::new(Phase::Connecting);
        cell.undo(Phase::Connecting, Phase::RouteResolved);
        assert_eq!(cell.get(), Phase::RouteResolved);
    }
}
