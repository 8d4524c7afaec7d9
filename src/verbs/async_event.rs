#![expect(
    unsafe_code,
    reason = "reads the union of an asynchronous event, and the object that it names"
)]

use std::fmt;

use rdma_sys::{ibv_async_event, ibv_event_type};

use super::queue_token::QueueToken;

/// Something that happened to a device or to an object on it, and that no call was waiting for (`ibv_async_event`).
///
/// A copy: it holds nothing of the device, and what it names may be gone by the time it is looked at.
#[doc(alias = "ibv_async_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    event_type: AsyncEventType,
    source: AsyncSource,
}

/// What an [`AsyncEvent`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncSource {
    /// The queue pair with this number: [`QueuePair::qp_num`](super::QueuePair::qp_num).
    QueuePair(u32),
    /// The completion queue with this number: [`CqHandle::token`](super::CqHandle::token); `None` for one that this crate did
    /// not make.
    CompletionQueue(Option<QueueToken>),
    /// The shared receive queue with this number: [`SharedReceiveQueue::token`](super::SharedReceiveQueue::token); `None` for
    /// one that this crate did not make.
    SharedReceiveQueue(Option<QueueToken>),
    /// The work queue with this number, which this crate does not make.
    WorkQueue(u32),
    /// The port with this number.
    Port(u32),
    /// The device as a whole.
    Device,
    /// Something that this crate has no name for, with the number that came with the event.
    Unknown(u32),
}

/// What happened (`ibv_event_type`). A number that this crate has no name for is kept as it came.
#[doc(alias = "ibv_event_type")]
#[doc(alias = "ibv_event_type_str")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsyncEventType(u32);

/// Defines the constants, their texts, and the list for the tests.
macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $raw:ident, $text:literal;)*) => {
        impl AsyncEventType {
            $($(#[$doc])* pub const $name: Self = Self(ibv_event_type::$raw.0);)*

            fn text(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    Self(_) => None,
                }
            }
        }
    };
}

event_types! {
    /// A completion queue has overflowed, or failed otherwise: nothing comes from it any more. (The queues of this crate do not
    /// overflow: what may be posted is counted.)
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CQ_ERR = IBV_EVENT_CQ_ERR, "the completion queue has failed";
    /// A queue pair has failed: it is in its error state.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QP_FATAL = IBV_EVENT_QP_FATAL, "the queue pair has failed";
    /// The peer has sent an invalid request: the queue pair is in its error state.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    QP_REQ_ERR = IBV_EVENT_QP_REQ_ERR, "the queue pair got a request that makes no sense";
    /// The peer has touched what is not open to it: the queue pair is in its error state.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    QP_ACCESS_ERR = IBV_EVENT_QP_ACCESS_ERR, "the queue pair got a request that is not allowed";
    /// The first message has come over a queue pair that was not told of its connection yet.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    COMM_EST = IBV_EVENT_COMM_EST, "the first message came before the connection was established";
    /// The send queue of a queue pair that was told to stop has stopped.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SQ_DRAINED = IBV_EVENT_SQ_DRAINED, "the send queue has stopped";
    /// A connection goes over its other path from now on.
    #[doc(alias = "IBV_EVENT_PATH_MIG")]
    PATH_MIG = IBV_EVENT_PATH_MIG, "the connection goes over its other path";
    /// A connection could not change to its other path.
    #[doc(alias = "IBV_EVENT_PATH_MIG_ERR")]
    PATH_MIG_ERR = IBV_EVENT_PATH_MIG_ERR, "the connection could not change to its other path";
    /// The device has failed, or is being removed: what is on it does not complete any more. Drop what is on it.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DEVICE_FATAL = IBV_EVENT_DEVICE_FATAL, "the device has failed or is being removed";
    /// A port works now.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PORT_ACTIVE = IBV_EVENT_PORT_ACTIVE, "the port works";
    /// A port does not work any more.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PORT_ERR = IBV_EVENT_PORT_ERR, "the port does not work any more";
    /// A port has another local address in its InfiniBand subnet.
    #[doc(alias = "IBV_EVENT_LID_CHANGE")]
    LID_CHANGE = IBV_EVENT_LID_CHANGE, "the port's LID has changed";
    /// A port has other partition keys.
    #[doc(alias = "IBV_EVENT_PKEY_CHANGE")]
    PKEY_CHANGE = IBV_EVENT_PKEY_CHANGE, "the port's partition keys have changed";
    /// A port has another subnet manager.
    #[doc(alias = "IBV_EVENT_SM_CHANGE")]
    SM_CHANGE = IBV_EVENT_SM_CHANGE, "the port's subnet manager has changed";
    /// A shared receive queue has failed.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SRQ_ERR = IBV_EVENT_SRQ_ERR, "the shared receive queue has failed";
    /// Fewer receives than the limit are left on a shared receive queue.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SRQ_LIMIT_REACHED = IBV_EVENT_SRQ_LIMIT_REACHED, "the shared receive queue has fewer receives than its limit";
    /// A queue pair in its error state takes no more receives from its shared receive queue.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    QP_LAST_WQE_REACHED = IBV_EVENT_QP_LAST_WQE_REACHED, "the queue pair takes no more receives from its shared receive queue";
    /// The subnet manager asks for what was registered with it to be registered again.
    #[doc(alias = "IBV_EVENT_CLIENT_REREGISTER")]
    CLIENT_REREGISTER = IBV_EVENT_CLIENT_REREGISTER, "the subnet manager asks to be registered with again";
    /// A port has other addresses: see [`Context::gids`](super::Context::gids).
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    GID_CHANGE = IBV_EVENT_GID_CHANGE, "the port's addresses have changed";
    /// A work queue has failed.
    #[doc(alias = "IBV_EVENT_WQ_FATAL")]
    WQ_FATAL = IBV_EVENT_WQ_FATAL, "the work queue has failed";
    /// The device, or a port of it, has another speed. (rdma-core 60)
    #[doc(alias = "IBV_EVENT_DEVICE_SPEED_CHANGE")]
    DEVICE_SPEED_CHANGE = IBV_EVENT_DEVICE_SPEED_CHANGE, "the device's speed has changed";
}

impl AsyncEventType {
    /// From the number in C.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The number in C.
    #[must_use]
    pub const fn as_raw(self) -> u32 {
        self.0
    }
}

impl AsyncEvent {
    /// What happened.
    #[must_use]
    pub fn event_type(&self) -> AsyncEventType {
        self.event_type
    }

    /// What it happened to.
    #[must_use]
    pub fn source(&self) -> AsyncSource {
        self.source
    }

    /// Copies an event.
    ///
    /// # Safety
    ///
    /// `raw` was filled by `ibv_get_async_event` and is not acknowledged, and nobody destroys what it is of meanwhile.
    pub(super) unsafe fn copy_of(raw: &ibv_async_event) -> Self {
        let event_type = AsyncEventType(raw.event_type.0);
        let source = match event_type {
            AsyncEventType::CQ_ERR => {
                // SAFETY: an event of this type has a completion queue in the union.
                let cq = unsafe { raw.element.cq };
                // SAFETY: the queue is alive, by the caller; its context is written before its events are read.
                let context = unsafe { (*cq).cq_context };
                AsyncSource::CompletionQueue(QueueToken::of_context(context))
            }
            AsyncEventType::QP_FATAL
            | AsyncEventType::QP_REQ_ERR
            | AsyncEventType::QP_ACCESS_ERR
            | AsyncEventType::COMM_EST
            | AsyncEventType::SQ_DRAINED
            | AsyncEventType::PATH_MIG
            | AsyncEventType::PATH_MIG_ERR
            | AsyncEventType::QP_LAST_WQE_REACHED => {
                // SAFETY: an event of these types has a queue pair in the union.
                let qp = unsafe { raw.element.qp };
                // SAFETY: the queue pair is alive, by the caller, and its number never changes.
                AsyncSource::QueuePair(unsafe { (*qp).qp_num })
            }
            AsyncEventType::SRQ_ERR | AsyncEventType::SRQ_LIMIT_REACHED => {
                // SAFETY: an event of these types has a shared receive queue in the union.
                let srq = unsafe { raw.element.srq };
                // SAFETY: the queue is alive, by the caller; its context is written before its events are read.
                let context = unsafe { (*srq).srq_context };
                AsyncSource::SharedReceiveQueue(QueueToken::of_context(context))
            }
            AsyncEventType::WQ_FATAL => {
                // SAFETY: an event of this type has a work queue in the union.
                let wq = unsafe { raw.element.wq };
                // SAFETY: the queue is alive, by the caller, and its number never changes.
                AsyncSource::WorkQueue(unsafe { (*wq).wq_num })
            }
            AsyncEventType::DEVICE_FATAL | AsyncEventType::DEVICE_SPEED_CHANGE => {
                AsyncSource::Device
            }
            AsyncEventType::PORT_ACTIVE
            | AsyncEventType::PORT_ERR
            | AsyncEventType::LID_CHANGE
            | AsyncEventType::PKEY_CHANGE
            | AsyncEventType::SM_CHANGE
            | AsyncEventType::CLIENT_REREGISTER
            | AsyncEventType::GID_CHANGE => AsyncSource::Port(number(raw)),
            // The library writes the number for every type that it has no name for.
            AsyncEventType(_) => AsyncSource::Unknown(number(raw)),
        };
        Self { event_type, source }
    }
}

/// The number in an event that is of no object.
fn number(raw: &ibv_async_event) -> u32 {
    // SAFETY: the library writes the number for types other than those of objects; for all, these bytes were written.
    let port = unsafe { raw.element.port_num };
    u32::from_ne_bytes(port.to_ne_bytes())
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.event_type)?;
        match self.source {
            AsyncSource::QueuePair(number) => write!(f, " (queue pair {number})"),
            AsyncSource::CompletionQueue(Some(token)) => write!(f, " ({token:?})"),
            AsyncSource::SharedReceiveQueue(Some(token)) => write!(f, " ({token:?})"),
            AsyncSource::WorkQueue(number) => write!(f, " (work queue {number})"),
            AsyncSource::Port(number) => write!(f, " (port {number})"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for AsyncEventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "asynchronous event number {}", self.0),
        }
    }
}

impl fmt::Debug for AsyncEventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsyncEventType({}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use rdma_sys::{ibv_cq, ibv_qp, ibv_srq, ibv_wq};

    use super::*;

    fn copied(event_type: u32, set: impl FnOnce(&mut ibv_async_event)) -> AsyncEvent {
        let mut raw = ibv_async_event {
            event_type: ibv_event_type(event_type),
            ..ibv_async_event::default()
        };
        set(&mut raw);
        // SAFETY: what the caller has put into the union is alive, and of the type's kind.
        unsafe { AsyncEvent::copy_of(&raw) }
    }

    /// A C structure of zeros.
    fn zeroed<T>() -> Box<T> {
        // SAFETY: the structures of C here are numbers, pointers that may be null, and locks that nobody takes.
        Box::new(unsafe { std::mem::zeroed() })
    }

    #[test]
    fn each_type_names_the_object_that_the_library_puts_into_the_union() {
        let mut qp: Box<ibv_qp> = zeroed();
        qp.qp_num = 77;
        let mut wq: Box<ibv_wq> = zeroed();
        wq.wq_num = 78;
        let token = QueueToken::new();
        let mut cq: Box<ibv_cq> = zeroed();
        cq.cq_context = token.to_context();
        let mut srq: Box<ibv_srq> = zeroed();
        srq.srq_context = token.to_context();
        for of_qp in [1, 2, 3, 4, 5, 6, 7, 16] {
            let event = copied(of_qp, |raw| raw.element.qp = &raw mut *qp);
            assert_eq!(event.source(), AsyncSource::QueuePair(77), "{of_qp}");
        }
        let event = copied(0, |raw| raw.element.cq = &raw mut *cq);
        assert_eq!(event.source(), AsyncSource::CompletionQueue(Some(token)));
        for of_srq in [14, 15] {
            let event = copied(of_srq, |raw| raw.element.srq = &raw mut *srq);
            let named = AsyncSource::SharedReceiveQueue(Some(token));
            assert_eq!(event.source(), named, "{of_srq}");
        }
        let event = copied(19, |raw| raw.element.wq = &raw mut *wq);
        assert_eq!(event.source(), AsyncSource::WorkQueue(78));
        for of_port in [9, 10, 11, 12, 13, 17, 18] {
            let event = copied(of_port, |raw| raw.element.port_num = 2);
            assert_eq!(event.source(), AsyncSource::Port(2), "{of_port}");
        }
        for of_device in [8, 20] {
            let event = copied(of_device, |raw| raw.element.port_num = 1);
            assert_eq!(event.source(), AsyncSource::Device, "{of_device}");
        }
    }

    #[test]
    fn an_event_of_tomorrow_is_two_numbers() {
        let event = copied(99, |raw| raw.element.port_num = -1);
        assert_eq!(event.event_type(), AsyncEventType::from_raw(99));
        assert_eq!(event.source(), AsyncSource::Unknown(u32::MAX));
        assert_eq!(event.to_string(), "asynchronous event number 99");
    }

    #[test]
    fn every_number_of_the_header_has_its_own_words() {
        let mut texts: Vec<_> = (0..=20)
            .map(|raw| AsyncEventType::from_raw(raw).text().expect("a text"))
            .collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 21);
        assert_eq!(AsyncEventType::from_raw(21).text(), None);
        let event = copied(9, |raw| raw.element.port_num = 1);
        assert_eq!(event.to_string(), "the port works (port 1)");
    }
}
