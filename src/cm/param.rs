use std::borrow::Cow;

use rdma_sys::rdma_conn_param;

use crate::error::{Error, Result};
use crate::verbs::{Context, DeviceLimits, RetryCount, RnrRetry};

/// What one side says about a connection when it connects or accepts (`rdma_conn_param`).
///
/// What is not set is chosen by the library: both depths as large as the device and, when accepting, the offer allow; RNR
/// retry for ever; no flow control; no private data.
#[doc(alias = "rdma_conn_param")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ConnParam<'a> {
    private_data: Cow<'a, [u8]>,
    responder_resources: Option<u32>,
    initiator_depth: Option<u32>,
    flow_control: bool,
    rnr_retry: RnrRetry,
}

/// [`ConnParam`] with what only the connecting side may say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ConnectParam<'a> {
    conn: ConnParam<'a>,
    retry_count: RetryCount,
}

/// What both sides have agreed on, as this side sees it. (On the connecting side soft-iWARP reports the two swapped.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Negotiated {
    /// RDMA reads and atomics of the peer that this side answers at a time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this side may ask at a time.
    pub initiator_depth: u8,
}

/// The depth that stands for "as many as possible" in C (`RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`).
const AS_MANY_AS_POSSIBLE: u8 = 0xff;

impl<'a> ConnParam<'a> {
    /// Everything as the library chooses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes to send with the request or the answer. The library copies them. How many fit depends on the call: over
    /// InfiniBand and RoCE 56 for connect and 196 for accept, over iWARP 255 (of which soft-iWARP garbles the last four).
    pub fn private_data(mut self, data: impl Into<Cow<'a, [u8]>>) -> Self {
        self.private_data = data.into();
        self
    }

    /// RDMA reads and atomics of the peer that this side answers at a time: at most the device's
    /// [`max_qp_rd_atom`](crate::DeviceLimits::max_qp_rd_atom).
    #[doc(alias = "RDMA_MAX_RESP_RES")]
    pub fn responder_resources(mut self, depth: u32) -> Self {
        self.responder_resources = Some(depth);
        self
    }

    /// RDMA reads and atomics that this side asks at a time: at most the device's
    /// [`max_qp_init_rd_atom`](crate::DeviceLimits::max_qp_init_rd_atom) and, when accepting, the offer's.
    #[doc(alias = "RDMA_MAX_INIT_DEPTH")]
    pub fn initiator_depth(mut self, depth: u32) -> Self {
        self.initiator_depth = Some(depth);
        self
    }

    /// Whether this side does hardware flow control. It is exchanged and otherwise ignored.
    pub fn flow_control(mut self, on: bool) -> Self {
        self.flow_control = on;
        self
    }

    /// How often the *peer* repeats a send while this side has no receive posted.
    #[doc(alias = "rnr_retry_count")]
    pub fn rnr_retry(mut self, retry: RnrRetry) -> Self {
        self.rnr_retry = retry;
        self
    }

    /// How often a request is sent again when the peer does not acknowledge it: for connect only, accept has no such value.
    pub fn retry_count(self, count: RetryCount) -> ConnectParam<'a> {
        ConnectParam {
            conn: self,
            retry_count: count,
        }
    }

    /// The same with its own copy of the private data.
    pub fn into_owned(self) -> ConnParam<'static> {
        ConnParam {
            private_data: Cow::Owned(self.private_data.into_owned()),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: self.flow_control,
            rnr_retry: self.rnr_retry,
        }
    }

    /// Checks every value against its limit and gives the C structure, which borrows the private data.
    pub(super) fn to_raw(&self, limits: &Limits<'_>) -> Result<rdma_conn_param> {
        let private_data_len = limits.check_private_data(&self.private_data)?;
        let responder_resources = limits.depth(
            "responder_resources",
            self.responder_resources,
            limits.context.limits().max_qp_rd_atom(),
            "the device's max_qp_rd_atom is the limit",
        )?;
        let device = limits.context.limits().max_qp_init_rd_atom();
        let (limit, advice) = match limits.offered_initiator_depth {
            Some(offered) if u32::from(offered) < device => {
                (u32::from(offered), "the peer's offer is the limit")
            }
            _ => (device, "the device's max_qp_init_rd_atom is the limit"),
        };
        let initiator_depth =
            limits.depth("initiator_depth", self.initiator_depth, limit, advice)?;
        let param = rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len,
            responder_resources,
            initiator_depth,
            flow_control: self.flow_control.into(),
            retry_count: 0,
            rnr_retry_count: self.rnr_retry.as_raw(),
            srq: 0,
            qp_num: 0,
        };
        limits.check_library(&param)?;
        Ok(param)
    }
}

impl ConnectParam<'_> {
    pub(super) fn to_raw(&self, limits: &Limits<'_>) -> Result<rdma_conn_param> {
        Ok(rdma_conn_param {
            retry_count: self.retry_count.as_raw(),
            ..self.conn.to_raw(limits)?
        })
    }
}

impl<'a> From<ConnParam<'a>> for ConnectParam<'a> {
    fn from(conn: ConnParam<'a>) -> Self {
        conn.retry_count(RetryCount::default())
    }
}

impl Negotiated {
    /// What an accept with `param`, or with NULL, agrees to, given the peer's `offer`.
    pub(super) fn agreed(
        param: Option<&rdma_conn_param>,
        offer: &rdma_conn_param,
        device: &DeviceLimits,
    ) -> Self {
        let depth = |asked: Option<u8>, offered: u8, limit: u32| match asked {
            Some(asked) if asked != AS_MANY_AS_POSSIBLE => asked,
            _ => offered.min(librarys(limit)),
        };
        Self {
            responder_resources: depth(
                param.map(|param| param.responder_resources),
                offer.responder_resources,
                device.max_qp_rd_atom(),
            ),
            initiator_depth: depth(
                param.map(|param| param.initiator_depth),
                offer.initiator_depth,
                device.max_qp_init_rd_atom(),
            ),
        }
    }
}

/// A device's limit as librdmacm keeps it: in 8 bits, whatever is lost.
fn librarys(limit: u32) -> u8 {
    limit.to_le_bytes()[0]
}

/// Which message private data goes into, and so how much of it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Connect,
    Accept,
    Reject,
    /// The question of a datagram look-up.
    Lookup,
    /// The answer to one, whether yes or no.
    LookupAnswer,
}

/// What the values of a call are checked against.
pub(super) struct Limits<'c> {
    pub(super) op: &'static str,
    pub(super) message: Message,
    pub(super) context: &'c Context,
    /// The offer, when accepting.
    pub(super) offered_initiator_depth: Option<u8>,
}

impl Limits<'_> {
    fn depth(
        &self,
        field: &'static str,
        asked: Option<u32>,
        limit: u32,
        advice: &'static str,
    ) -> Result<u8> {
        let Some(asked) = asked else {
            return Ok(AS_MANY_AS_POSSIBLE);
        };
        // The field has 8 bits, of which 255 means "as many as possible".
        let limit = limit.min(u32::from(AS_MANY_AS_POSSIBLE) - 1);
        match u8::try_from(asked) {
            Ok(depth) if asked <= limit => Ok(depth),
            _ => Err(Error::too_large(
                self.op,
                field,
                u64::from(asked),
                u64::from(limit),
                advice,
            )),
        }
    }

    /// That the peer's offer, taken as it is, is within the device's limits: the library does not adjust it.
    pub(super) fn check_offer(&self, offer: &rdma_conn_param) -> Result<()> {
        let device = self.context.limits();
        let advice = "accept with the library's choice, which adjusts the offer to the device";
        for (field, offered, limit) in [
            (
                "responder_resources",
                offer.responder_resources,
                device.max_qp_rd_atom(),
            ),
            (
                "initiator_depth",
                offer.initiator_depth,
                device.max_qp_init_rd_atom(),
            ),
        ] {
            if offered != AS_MANY_AS_POSSIBLE {
                self.depth(field, Some(offered.into()), limit, advice)?;
            }
        }
        self.check_library(offer)
    }

    /// That librdmacm takes depths which the device can do: it keeps the device's limits in 8 bits, whatever is lost.
    fn check_library(&self, param: &rdma_conn_param) -> Result<()> {
        let device = self.context.limits();
        for (field, depth, limit) in [
            (
                "responder_resources",
                param.responder_resources,
                device.max_qp_rd_atom(),
            ),
            (
                "initiator_depth",
                param.initiator_depth,
                device.max_qp_init_rd_atom(),
            ),
        ] {
            let kept = librarys(limit);
            if depth != AS_MANY_AS_POSSIBLE && depth > kept {
                let advice = "the device can do more, but librdmacm keeps its limit in 8 bits";
                return Err(Error::too_large(
                    self.op,
                    field,
                    depth.into(),
                    kept.into(),
                    advice,
                ));
            }
        }
        Ok(())
    }

    fn check_private_data(&self, data: &[u8]) -> Result<u8> {
        check_private_data(self.op, self.message, self.context.is_iwarp(), data)
    }
}

/// The length of `data` as C wants it, if it fits into `message`.
pub(super) fn check_private_data(
    op: &'static str,
    message: Message,
    iwarp: bool,
    data: &[u8],
) -> Result<u8> {
    let limit = match (iwarp, message) {
        (_, Message::Lookup) => 180,
        (_, Message::LookupAnswer) => 136,
        (true, _) => 255,
        (false, Message::Connect) => 56,
        (false, Message::Accept) => 196,
        (false, Message::Reject) => 148,
    };
    match u8::try_from(data.len()) {
        Ok(length) if length <= limit => Ok(length),
        _ => Err(Error::too_large(
            op,
            "private_data_len",
            data.len() as u64,
            u64::from(limit),
            match message {
                Message::Connect | Message::Accept => {
                    "send the rest as a message once the connection stands"
                }
                Message::Reject | Message::Lookup | Message::LookupAnswer => "send less",
            },
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn private_data_has_a_limit_for_each_message_and_never_wraps() {
        for (iwarp, message, limit) in [
            (false, Message::Connect, 56),
            (false, Message::Accept, 196),
            (false, Message::Reject, 148),
            (false, Message::Lookup, 180),
            (false, Message::LookupAnswer, 136),
            (true, Message::Connect, 255),
            (true, Message::Accept, 255),
        ] {
            let fits = vec![1; limit];
            let length = check_private_data("rdma_connect", message, iwarp, &fits);
            assert_eq!(usize::from(length.unwrap()), limit);
            for above in [limit + 1, 300, 256 + 44] {
                let error = check_private_data("rdma_connect", message, iwarp, &vec![1; above])
                    .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TooLarge);
                let text = format!("private_data_len is {above}, the limit is {limit};");
                assert!(error.to_string().contains(&text), "{error}");
            }
        }
    }

    #[test]
    fn a_limit_above_255_is_what_librdmacm_makes_of_it() {
        for (limit, kept) in [
            (0, 0),
            (128, 128),
            (255, 255),
            (256, 0),
            (300, 44),
            (0x3fff, 255),
        ] {
            assert_eq!(librarys(limit), kept, "{limit}");
        }
    }
}
