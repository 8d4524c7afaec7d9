use crate::cm::{CmId, EventChannel};
use crate::error::Error;
use crate::verbs::{Buf, CompletionQueue, Pool, QueuePair};

/// What a [`Connection`](crate::Connection) is made of, for a program that goes on with it by itself:
/// [`Connection::into_parts`](crate::Connection::into_parts).
///
/// The order is the order of dropping. Who takes it apart drops the id last but for the channel, or lets the crate see to it:
/// an id lives as long as its queue pair.
#[derive(Debug)]
#[non_exhaustive]
pub struct Parts {
    /// The connected queue pair. Its requests, those that are posted included, carry the number 0.
    pub qp: QueuePair,
    /// Where the requests of both its queues complete; it has a channel to wait on.
    pub cq: CompletionQueue,
    /// Messages that had been polled, and that nobody had received, the oldest first.
    pub received: Vec<Buf>,
    /// Why the connection has ended, if it is known already: its event was read then, and comes no more.
    pub ended: Option<Error>,
    /// The buffers that are free.
    pub pool: Pool,
    /// The id: `disconnect` ends the connection, whose end is an event.
    pub id: CmId,
    /// Where the events of the id are read.
    pub channel: EventChannel,
}
