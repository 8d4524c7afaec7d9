//! Asynchronous events, on the stand-in: those that no device here can show, and what happens around the reading.
#![expect(unsafe_code, reason = "makes a queue that the crate does not know")]

mod standin;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdma_sys::ibv_event_type;
use rdmacm::{
    AsyncEventType, AsyncEvents, AsyncSource, CmId, ConnParam, Context, ErrorKind, EventChannel,
    PortState,
};
use standin::{Client, RXE0, Server, Standin, addr, small_qp};

/// The first device, by an id that is gone afterwards.
fn context() -> Context {
    let channel = EventChannel::new().unwrap();
    let id = CmId::new(&channel).unwrap();
    id.bind_addr(addr(0)).unwrap();
    id.context().unwrap()
}

/// What the next event is and is of; there must be one.
fn next(events: &AsyncEvents) -> (AsyncEventType, AsyncSource) {
    let event = events.try_event().unwrap().expect("an event");
    (event.event_type(), event.source())
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn each_event_names_its_object_by_number_and_is_acknowledged() {
    let standin = Standin::start();
    let server = Server::start();
    let client = Client::asking(server.addr(), ConnParam::new());
    let request = server.request();
    let context = request.context().unwrap();
    let (pd, cq, qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let events = context.async_events().unwrap();
    assert_eq!(events.try_event().unwrap(), None);

    // They come in order, for objects of every kind.
    for code in [1, 2, 3, 4, 5, 6, 7, 16] {
        standin.object_event(ibv_event_type(code), qp.as_raw());
    }
    standin.object_event(ibv_event_type::IBV_EVENT_CQ_ERR, cq.handle().as_raw());
    standin.device_event(RXE0, ibv_event_type::IBV_EVENT_PORT_ERR, 1);
    standin.device_event(RXE0, ibv_event_type::IBV_EVENT_DEVICE_FATAL, 0);
    standin.device_event(RXE0, ibv_event_type(4_711), 9);
    for code in [1, 2, 3, 4, 5, 6, 7, 16] {
        let of_pair = AsyncSource::QueuePair(qp.qp_num());
        assert_eq!(next(&events), (AsyncEventType::from_raw(code), of_pair));
    }
    let of_queue = AsyncSource::CompletionQueue(Some(cq.handle().token()));
    assert_eq!(next(&events), (AsyncEventType::CQ_ERR, of_queue));
    assert_eq!(
        next(&events),
        (AsyncEventType::PORT_ERR, AsyncSource::Port(1))
    );
    assert_eq!(context.port(1).unwrap().state(), PortState::Down);
    assert_eq!(
        next(&events),
        (AsyncEventType::DEVICE_FATAL, AsyncSource::Device)
    );
    // A number of tomorrow.
    assert_eq!(
        next(&events),
        (AsyncEventType::from_raw(4_711), AsyncSource::Unknown(9))
    );
    assert_eq!(events.try_event().unwrap(), None);
    // An event that was not acknowledged would hold these up until the stand-in ends the process.
    standin.patience(Duration::from_millis(100));
    drop((qp, cq, pd, context, events, request, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_event_that_nobody_read_goes_with_its_object() {
    let standin = Standin::start();
    let context = context();
    let events = context.async_events().unwrap();
    let [gone, kept] = [(); 2].map(|()| context.create_cq(4).unwrap());
    let code = ibv_event_type::IBV_EVENT_CQ_ERR;
    standin.object_event(code, gone.handle().as_raw());
    standin.object_event(code, kept.handle().as_raw());
    drop(gone);
    let of_kept = AsyncSource::CompletionQueue(Some(kept.handle().token()));
    assert_eq!(next(&events), (AsyncEventType::CQ_ERR, of_kept));
    assert_eq!(events.try_event().unwrap(), None);
    // Those of a queue that others have made have no number.
    // SAFETY: an open device; the queue is destroyed below.
    let raw = unsafe {
        let null = std::ptr::null_mut();
        rdma_sys::ibv_create_cq(context.as_raw(), 4, null, null.cast(), 0)
    };
    standin.object_event(code, raw);
    let unknown = AsyncSource::CompletionQueue(None);
    assert_eq!(next(&events), (AsyncEventType::CQ_ERR, unknown));
    // SAFETY: made above, and used by nothing.
    let returned = unsafe { rdma_sys::ibv_destroy_cq(raw) };
    assert_eq!(returned, 0);
    drop((kept, events, context));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_the_library_reports_is_told_and_a_signal_is_not() {
    let standin = Standin::start();
    let context = context();
    let events = context.async_events().unwrap();
    standin.device_event(RXE0, ibv_event_type::IBV_EVENT_SM_CHANGE, 1);
    standin.fail("ibv_get_async_event", -1, libc::EINTR);
    assert_eq!(
        next(&events),
        (AsyncEventType::SM_CHANGE, AsyncSource::Port(1))
    );
    standin.fail("ibv_get_async_event", -1, libc::EBADF);
    let error = events.wait(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.op(), "ibv_get_async_event");
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    // The last event of a device that is gone, and then no more.
    standin.remove_device(RXE0);
    let event = events.wait(None).unwrap().unwrap();
    assert_eq!(event.event_type(), AsyncEventType::DEVICE_FATAL);
    let error = events.try_event().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
    drop((events, context));
    standin.restore_device(RXE0);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn nothing_is_made_or_destroyed_between_reading_and_acknowledging() {
    let standin = Standin::start();
    let context = context();
    let events = context.async_events().unwrap();
    let over = AtomicBool::new(false);
    standin.record();
    let read = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let cq = context.create_cq(4).unwrap();
                    let code = ibv_event_type::IBV_EVENT_CQ_ERR;
                    standin.object_event(code, cq.handle().as_raw());
                    thread::yield_now();
                    drop(cq);
                }
                over.store(true, Ordering::Release);
            });
        }
        let mut read = 0;
        while !over.load(Ordering::Acquire) {
            read += usize::from(events.try_event().unwrap().is_some());
        }
        read
    });
    let calls = standin.calls();
    let of = |name: &'static str| calls.iter().filter(move |call| call.name == name);
    let gets = of("ibv_get_async_event").filter(|call| call.returned == 0);
    let spans: Vec<(u64, u64)> = gets
        .zip(of("ibv_ack_async_event"))
        .map(|(get, ack)| (get.entered, ack.left))
        .collect();
    assert!(spans.len() >= read.min(1), "{} of {read}", spans.len());
    for change in of("ibv_create_cq").chain(of("ibv_destroy_cq")) {
        let inside = spans
            .iter()
            .find(|(from, to)| change.entered < *to && *from < change.left);
        assert_eq!(inside, None, "{change:?}");
    }
    assert_ne!(read, 0, "no event was read: nothing was shown");
    drop((events, context));
    standin.nothing_left();
}
