//! What travels between the two ends of a connection, and into events.

use crate::c::{ibv_ah_attr, rdma_conn_param};
use crate::inject::Answer;

/// The parameters in a message or an event.
#[derive(Clone, Default)]
pub(crate) struct Param {
    pub(crate) private_data: Vec<u8>,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

/// What a datagram event has instead.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) private_data: Vec<u8>,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

#[derive(Clone)]
pub(crate) enum Load {
    Conn(Param),
    Datagram(Datagram),
}

/// An event as the kernel queues it.
#[derive(Clone)]
pub(crate) struct Queued {
    /// The id that it counts on.
    pub(crate) id: usize,
    /// The number of the event.
    pub(crate) code: u32,
    pub(crate) status: i32,
    pub(crate) load: Load,
    /// The new id of a request.
    pub(crate) child: Option<usize>,
    /// The number of the group that it is about.
    pub(crate) group: Option<u64>,
    /// Handed out as it is.
    pub(crate) raw: bool,
    /// With garbage in its union.
    pub(crate) garbage: bool,
}

impl Queued {
    pub(crate) fn new(id: usize, code: crate::c::rdma_cm_event_type, status: i32) -> Self {
        Self {
            id,
            code: code.0,
            status,
            load: Load::Conn(Param::default()),
            child: None,
            group: None,
            raw: false,
            garbage: false,
        }
    }

    pub(crate) fn with(mut self, param: Param) -> Self {
        self.load = Load::Conn(param);
        self
    }

    pub(crate) fn datagram(mut self, datagram: Datagram) -> Self {
        self.load = Load::Datagram(datagram);
        self
    }

    /// What a test has planned; `None` when it planned that nothing comes.
    pub(crate) fn planned(id: usize, answer: Answer) -> Option<Self> {
        let param = Param {
            private_data: answer.private_data,
            responder_resources: answer.responder_resources,
            initiator_depth: answer.initiator_depth,
            ..Param::default()
        };
        let event = crate::c::rdma_cm_event_type(answer.event?);
        let mut queued = Self::new(id, event, answer.status).with(param);
        queued.raw = answer.raw;
        queued.garbage = answer.garbage;
        Some(queued)
    }
}

impl Param {
    pub(crate) fn of(param: &rdma_conn_param) -> Self {
        Self {
            private_data: crate::arg::bytes(
                param.private_data.cast(),
                param.private_data_len.into(),
            ),
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq,
            qp_num: param.qp_num,
        }
    }

    /// The same as the other end sees it: each side's asking is the other's answering.
    pub(crate) fn turned(mut self) -> Self {
        std::mem::swap(&mut self.responder_resources, &mut self.initiator_depth);
        self
    }
}

/// What a message with room for `room` bytes brings: over InfiniBand and RoCE always all of them.
pub(crate) fn padded(mut data: Vec<u8>, room: usize, iwarp: bool) -> Vec<u8> {
    if !iwarp {
        data.resize(room, 0);
    }
    data
}

/// How many bytes a message has room for: of connections, and of datagram look-ups.
pub(crate) const REQUEST: usize = 56;
pub(crate) const REPLY: usize = 196;
pub(crate) const REJECT: usize = 148;
pub(crate) const DATAGRAM_REQUEST: usize = 180;
pub(crate) const DATAGRAM_REPLY: usize = 136;

/// The reason of a rejection by a program, and by nobody.
pub(crate) const CONSUMER_DEFINED: i32 = 28;
pub(crate) const INVALID_SERVICE_ID: i32 = 8;

/// The key of every datagram queue pair of `RDMA_PS_UDP`.
pub(crate) const UDP_QKEY: u32 = 0x0123_4567;
