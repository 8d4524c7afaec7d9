/// What a work request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Op {
    /// Sent a message.
    Send,
    /// Took a message from the peer.
    Receive,
    /// Wrote to the peer's memory.
    Write,
    /// Read from the peer's memory.
    Read,
    /// Added to eight bytes of the peer's memory.
    FetchAdd,
    /// Compared eight bytes of the peer's memory, and swapped them.
    CompareSwap,
    /// Bound a memory window.
    Bind,
    /// Invalidated a memory window.
    Invalidate,
}
