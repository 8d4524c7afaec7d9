//! What the stand-in and the tests that steer it agree on. The tests include this file.

/// Changes when anything here does.
pub(crate) const VERSION: u32 = 2;

/// The kinds of objects whose number is counted, in the order of `standin_live`.
pub(crate) const KINDS: [&str; 10] = [
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
}
