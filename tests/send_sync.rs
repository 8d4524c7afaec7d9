//! Which public types may move to another thread, and which may be shared: every one of them.

use rdmacm::*;
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// For each type, that it is both `Send` and `Sync`.
macro_rules! send_and_sync {
    ($($type:ty),* $(,)?) => {
        $(assert_impl_all!($type: Send, Sync);)*
        const SEND_AND_SYNC: &[&str] = &[$(stringify!($type)),*];
    };
}

// Shared handles: the C functions behind them lock, or are called under this crate's own locks.
// Owned values: what they hold belongs to them alone. Plain data. Posting and polling halves: `&self` reads numbers only.
send_and_sync!(
    Access,
    AddressHandle,
    AddressVector,
    Answer,
    AsyncEvent,
    AsyncEventType,
    AsyncEvents,
    AsyncSource,
    AtomicCapability,
    Attachment,
    Bare<'static>,
    Batch<'static>,
    Buf,
    Capacities,
    Closer,
    CmId,
    Completion<'static>,
    CompletionQueue,
    ConnParam<'static>,
    ConnRequest,
    ConnectParam<'static>,
    Connection,
    Connector,
    Context,
    CqHandle,
    Datagram<'static>,
    DatagramBuf,
    DatagramInit,
    DatagramPair,
    DatagramReceiveQueue,
    DatagramSendQueue,
    DatagramWork,
    Destination,
    DeviceFlags,
    DeviceLimits,
    Ece,
    Error,
    ErrorKind,
    Event,
    EventChannel,
    EventKind,
    EventStatus,
    Exposed,
    ExposedDmaBuf,
    Fetch,
    Foreign<'static>,
    Gid,
    GidEntry,
    GidType,
    Grh,
    HandedBack<Exposed>,
    HugePage,
    Incoming<'static>,
    InitQp,
    Inline<'static>,
    JoinState,
    Lent<'static>,
    LentMut<'static>,
    LinkLayer,
    Listener,
    LookupFailure,
    LookupRequest,
    LookupStatus,
    MappedMemory,
    Membership,
    Mtu,
    Negotiated,
    Notice,
    Offer<'static>,
    OnDemandOperations,
    OnDemandPaging,
    Op,
    Options,
    Partly,
    Parts,
    Peer,
    Pieces<'static>,
    Pool,
    Port,
    PortFlags,
    PortState,
    ProtectionDomain,
    QpAttributes,
    QpEndpoint,
    QpState,
    QueuePair,
    QueuePairInit,
    QueueToken,
    RawRefused<rdma_sys::ibv_send_wr>,
    ReceiveQueue,
    Received<'static>,
    Refused,
    Registration,
    RejectReason,
    Rejection,
    RemoteEnd,
    RemoteMemory,
    Request,
    ResetQp,
    RetryCount,
    Returned<'static, 'static>,
    ReturnedMut<'static, 'static>,
    RnrRetry,
    RtrQp,
    RtsParam,
    Scope<'static, 'static>,
    Scoped<'static, 'static>,
    SendQueue,
    Sent<'static>,
    SharedReceiveQueue,
    Status,
    Token,
    Transport,
    Window,
    WindowType,
    Work,
    WrList,
);

// A shared completion queue would let two threads consume one ring; polling takes `&mut`, which this keeps true.
assert_not_impl_any!(CompletionQueue: Clone);
assert_not_impl_any!(Buf: Clone);
assert_not_impl_any!(ConnRequest: Clone);
assert_not_impl_any!(QueuePair: Clone);
assert_not_impl_any!(SendQueue: Clone);

#[test]
fn the_table_names_every_public_type() {
    let exports = include_str!("../src/lib.rs");
    let mut missing = Vec::new();
    let lists = exports.split("pub use self::").skip(1);
    for list in lists.filter_map(|list| list.split('{').nth(1)?.split('}').next()) {
        // Types, and neither functions nor constants.
        let is_type = |name: &&str| {
            let mut letters = name.chars();
            letters.next().is_some_and(char::is_uppercase)
                && letters.next().is_some_and(char::is_lowercase)
        };
        for name in list.split(',').map(str::trim).filter(is_type) {
            let known = |entry: &&str| {
                entry
                    .split('<')
                    .next()
                    .is_some_and(|entry| entry.trim() == name)
            };
            if !SEND_AND_SYNC.iter().any(known) {
                missing.push(name);
            }
        }
    }
    // An alias, and traits.
    assert_eq!(
        missing,
        [
            "Result",
            "Loan",
            "LoanMut",
            "Memory",
            "MemoryOwner",
            "Payload",
            "Single",
            "Sink"
        ]
    );
}

#[test]
fn the_table_is_sorted_and_names_each_type_once() {
    let unsorted = SEND_AND_SYNC.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(unsorted, None);
}
