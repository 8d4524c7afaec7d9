//! Asynchronous events of a device, on the second soft-RoCE device (rxe), whose link and addresses change here.
mod common;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{ADDR_OF_SECOND, PATIENCE, command, device, in_time, netdev_of};
use rdmacm::{
    Access, AsyncEvent, AsyncEventType, AsyncEvents, AsyncSource, CmId, Context, ErrorKind,
    EventChannel, Gid, PortState, QueuePairInit, RemoteEnd, RtsParam, Transport,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const EXTRA: &str = "10.9.1.77/24";

fn context() -> Context {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new(&channel).expect("an id");
    let addr = SocketAddr::new(ADDR_OF_SECOND.parse().expect("an address"), 0);
    id.bind_addr(addr).expect("rxe1");
    id.context().expect("rxe1")
}

/// Waits for an event of this type; others may come before it.
fn until(events: &AsyncEvents, wanted: AsyncEventType) -> AsyncEvent {
    let start = Instant::now();
    while let Some(left) = PATIENCE.checked_sub(start.elapsed()) {
        match events.wait(Some(left)).expect("the device is there") {
            Some(event) if event.event_type() == wanted => return event,
            Some(event) => eprintln!("meanwhile: {event}"),
            None => break,
        }
    }
    panic!("no {wanted:?} within {PATIENCE:?}");
}

/// Reads what is left of earlier changes.
fn drain(events: &AsyncEvents) {
    while let Some(event) = events.wait(Some(Duration::from_millis(200))).unwrap() {
        eprintln!("before: {event}");
    }
}

fn is_readable(events: &AsyncEvents, patience: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)];
    let timeout = Timespec::try_from(patience).unwrap();
    poll(&mut polled, Some(&timeout)).unwrap() == 1
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_device_has_one_reader_at_a_time() {
    device();
    in_time("two readers", || {
        let context = context();
        let first = context.async_events().unwrap();
        assert_eq!(first.context(), &context);
        let error = context.clone().async_events().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        assert_eq!(error.op(), "ibv_get_async_event");
        drop(first);
        let second = context.async_events().unwrap();
        drop(context);
        drain(&second);
        assert_eq!(second.try_event().unwrap(), None);
        assert_eq!(second.wait(Some(Duration::ZERO)).unwrap(), None);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_more_or_less_is_told_of_the_port() {
    device();
    in_time("addresses change", || {
        let context = context();
        let events = context.async_events().unwrap();
        drain(&events);
        assert!(!is_readable(&events, Duration::from_millis(50)));
        let net = netdev_of(ADDR_OF_SECOND);
        let count = context.gids(1).unwrap().len();
        for (action, more) in [("add", 1), ("del", 0)] {
            command("ip", &["addr", action, EXTRA, "dev", &net]);
            assert!(is_readable(&events, PATIENCE), "after {action}");
            let event = until(&events, AsyncEventType::GID_CHANGE);
            assert_eq!(event.source(), AsyncSource::Port(1));
            assert_eq!(
                event.to_string(),
                "the port's addresses have changed (port 1)"
            );
            assert_eq!(context.gids(1).unwrap().len(), count + more);
            drain(&events);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_link_that_goes_and_comes_is_told() {
    device();
    in_time("the link changes", || {
        let context = context();
        let events = context.async_events().unwrap();
        drain(&events);
        let net = netdev_of(ADDR_OF_SECOND);
        command("ip", &["link", "set", &net, "down"]);
        let event = until(&events, AsyncEventType::PORT_ERR);
        assert_eq!(event.source(), AsyncSource::Port(1));
        assert_ne!(context.port(1).unwrap().state(), PortState::Active);
        command("ip", &["link", "set", &net, "up"]);
        let event = until(&events, AsyncEventType::PORT_ACTIVE);
        assert_eq!(event.source(), AsyncSource::Port(1));
        assert_eq!(context.port(1).unwrap().state(), PortState::Active);
        drain(&events);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_shared_receive_queue_tells_that_it_runs_low() {
    device();
    in_time("the limit of a shared receive queue", || {
        let context = context();
        let events = context.async_events().unwrap();
        drain(&events);
        let pd = context.alloc_pd().unwrap();
        let pool = pd.pool(8, 64).unwrap();
        let cq = context.create_cq(64).unwrap();
        let [_other, mut srq] = [(); 2].map(|()| pd.create_srq(4, 1).unwrap());
        for user in 0..2 {
            srq.post(pool.take().unwrap(), user).unwrap();
        }
        srq.set_limit(2).unwrap();
        // A pair that is connected to itself takes one of the two.
        let init = QueuePairInit::new(&cq.handle()).srq(&srq);
        let qp = pd.create_qp(&init, Transport::Reliable).unwrap();
        let qp = qp.to_init(1, Access::empty()).unwrap();
        let gid = Gid::from(ADDR_OF_SECOND.parse::<std::net::IpAddr>().unwrap());
        let gids = context.gids(1).unwrap();
        let own = gids.iter().find(|entry| entry.gid() == gid).unwrap();
        let index = own.index().try_into().unwrap();
        let end = qp.endpoint(index, 9).unwrap();
        let qp = qp.to_rtr(&RemoteEnd::new(&end, index)).unwrap();
        let mut qp = qp.to_rts(&RtsParam::new(9)).unwrap();
        assert_eq!(events.try_event().unwrap(), None);
        qp.send.send(pool.take().unwrap(), 7).unwrap();
        let event = until(&events, AsyncEventType::SRQ_LIMIT_REACHED);
        let low = AsyncSource::SharedReceiveQueue(Some(srq.token()));
        assert_eq!(event.source(), low);
        // Once, until a limit is set again.
        assert_eq!(events.wait(Some(Duration::from_millis(100))).unwrap(), None);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn who_waits_can_be_woken_and_queues_come_and_go_meanwhile() {
    device();
    in_time("a wake", || {
        let context = context();
        let events = Arc::new(context.async_events().unwrap());
        drain(&events);
        let waiter = {
            let events = Arc::clone(&events);
            thread::spawn(move || events.wait(None))
        };
        // Making and destroying takes the lock that reading takes.
        for _ in 0..50 {
            let cqs = [(); 4].map(|()| context.create_cq(16).unwrap());
            let mut tokens = cqs.each_ref().map(|cq| cq.handle().token()).to_vec();
            tokens.dedup();
            assert_eq!(tokens.len(), 4);
            assert_eq!(events.try_event().unwrap(), None);
        }
        events.wake();
        assert_eq!(waiter.join().unwrap().unwrap(), None);
    });
}
