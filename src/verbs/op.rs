/// What a work request did.
#[doc(alias = "ibv_wc_opcode")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Op {
    /// Sent a message.
    #[doc(alias = "IBV_WC_SEND")]
    Send,
    /// Took a message from the peer.
    #[doc(alias = "IBV_WC_RECV")]
    #[doc(alias = "IBV_WC_RECV_RDMA_WITH_IMM")]
    Receive,
    /// Wrote to the peer's memory.
    #[doc(alias = "IBV_WC_RDMA_WRITE")]
    Write,
    /// Read from the peer's memory.
    #[doc(alias = "IBV_WC_RDMA_READ")]
    Read,
    /// Added to eight bytes of the peer's memory.
    #[doc(alias = "IBV_WC_FETCH_ADD")]
    FetchAdd,
    /// Compared eight bytes of the peer's memory, and swapped them.
    #[doc(alias = "IBV_WC_COMP_SWAP")]
    CompareSwap,
    /// Bound a memory window.
    #[doc(alias = "IBV_WC_BIND_MW")]
    Bind,
    /// Invalidated a memory window.
    #[doc(alias = "IBV_WC_LOCAL_INV")]
    Invalidate,
}
