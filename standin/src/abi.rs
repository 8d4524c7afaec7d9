//! What the stand-in and the tests that steer it agree on. The tests include this file.

/// Changes when anything here does.
pub(crate) const VERSION: u32 = 5;

/// The kinds of objects whose number is counted, in the order of `standin_live`.
pub(crate) const KINDS: [&str; 11] = [
    "event channel",
    "id",
    "event",
    "protection domain",
    "memory region",
    "completion queue",
    "completion channel",
    "queue pair",
    "shared receive queue",
    "address handle",
    "memory window",
];

/// One call, as it was seen: `entered` and `left` are numbers out of one sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) entered: u64,
    pub(crate) left: u64,
    pub(crate) thread: u64,
    /// The function's name, which is never freed.
    pub(crate) name: *const u8,
    pub(crate) name_len: usize,
    /// The first arguments; the rest is 0.
    pub(crate) args: [usize; 4],
    pub(crate) returned: i64,
    /// The errno that a failed call has left.
    pub(crate) errno: i32,
}

/// An event to be put on an id's channel, or to be the answer to a call. Without an event number there is no answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// The number of the event; -1 for none.
    pub(crate) event: i64,
    pub(crate) status: i32,
    /// Not 0: handed out as it is, without what the library does when it reads such an event. 2: and with garbage in its
    /// union.
    pub(crate) raw: i32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) private_data: *const u8,
    pub(crate) private_data_len: usize,
}

/// What a device is to be like. -1 leaves a value as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevicePlan {
    /// `ibv_transport_type`.
    pub(crate) transport: i32,
    pub(crate) max_qp_rd_atom: i32,
    pub(crate) max_qp_init_rd_atom: i32,
    /// 1: the library finds no device for an id (node GUID 0) and says so, as new ones do; 2: hands out ADDR_RESOLVED and
    /// leaves `verbs` null, as old ones do; 0: it finds the device.
    pub(crate) hidden: i32,
    /// Whether memory may be registered without being pinned.
    pub(crate) on_demand: i32,
}

/// How many sides a queue pair has: sends, then receives.
pub(crate) const SIDES: usize = 2;

/// How a post is to fail.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    /// What the call returns, as it is: also a negative number.
    pub(crate) errno: i32,
    /// What happens to the caller's `bad_wr`: 1: it names the request at `place` of the list, 0: nothing, 2: null, 3: it
    /// names none of the list.
    pub(crate) names: u32,
    pub(crate) place: u32,
    /// How many requests of the list the device takes all the same.
    pub(crate) taken: u32,
}

/// What a request says that is posted to a send queue; what its operation has not is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    /// An immediate value in network order, or a key.
    pub(crate) extra: u32,
    pub(crate) rkey: u32,
    pub(crate) lkey: u32,
    /// Of inline data.
    pub(crate) first_byte: u32,
}

/// How often something was posted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Posts {
    pub(crate) calls: u64,
    /// In how many requests.
    pub(crate) requests: u64,
    /// The requests of the last call.
    pub(crate) last: u64,
}
