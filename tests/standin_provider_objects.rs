//! Objects of the stand-in beside the flow of data: asynchronous events, states, what can be asked.
#![expect(unsafe_code, reason = "calls the C functions with raw requests")]

mod standin;

use std::ptr;
use std::time::Duration;

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_QP_ACCESS_FLAGS, IBV_QP_AV,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_SEND_SOLICITED, ibv_async_event, ibv_context, ibv_event_type, ibv_gid, ibv_port_attr,
    ibv_port_state, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_wc_status,
};
use standin::verbs::{DEPTH, End, Opened, QKEY, SIZE, attr, connect, pair, recv_wr, send_wr};
use standin::{Device, RXE0, Standin, in_child, must_die};

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;

/// Lets reading asynchronous events not wait.
fn do_not_wait(context: *mut ibv_context) {
    // SAFETY: an open device.
    let fd = unsafe { (*context).async_fd };
    // SAFETY: takes two numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: takes three numbers.
    let set = unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    assert_eq!(set, 0);
}

fn is_readable(fd: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    (unsafe { libc::poll(&raw mut poll, 1, 0) }) == 1
}

fn has_event(context: *mut ibv_context) -> bool {
    // SAFETY: an open device.
    is_readable(unsafe { (*context).async_fd })
}

/// The next event, or the errno.
fn next(context: *mut ibv_context) -> Result<ibv_async_event, Option<i32>> {
    let mut event = ibv_async_event::default();
    // SAFETY: an open device, and room for the answer.
    match unsafe { rdma_sys::ibv_get_async_event(context, &raw mut event) } {
        0 => Ok(event),
        _ => Err(std::io::Error::last_os_error().raw_os_error()),
    }
}

fn ack(mut event: ibv_async_event) {
    // SAFETY: an event, whose misuse is the purpose.
    unsafe { rdma_sys::ibv_ack_async_event(&raw mut event) };
}

/// The element of an event, as an address.
fn element(event: &ibv_async_event) -> usize {
    // SAFETY: the members are numbers and pointers, all at the start.
    unsafe { event.element.qp }.addr()
}

fn small_srq(end: *mut rdma_sys::ibv_pd, limit: u32) -> *mut ibv_srq {
    let mut init = ibv_srq_init_attr {
        attr: ibv_srq_attr {
            max_wr: 8,
            max_sge: 1,
            srq_limit: limit,
        },
        ..ibv_srq_init_attr::default()
    };
    // SAFETY: a living domain.
    unsafe { rdma_sys::ibv_create_srq(end, &raw mut init) }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn asynchronous_events_come_and_are_dropped_with_their_object() {
    let standin = Standin::start();
    let device = Opened::first();
    let context = device.context;
    do_not_wait(context);
    assert!(!has_event(context));
    assert_eq!(next(context).err(), Some(Some(libc::EAGAIN)));
    let (mut one, other) = pair(&device, RC);
    standin.device_event(RXE0, ibv_event_type::IBV_EVENT_PORT_ERR, 1);
    standin.object_event(ibv_event_type::IBV_EVENT_CQ_ERR, one.cq);
    standin.object_event(ibv_event_type::IBV_EVENT_QP_FATAL, one.qp);
    assert!(has_event(context));
    let port = next(context).unwrap();
    // SAFETY: the event is of a port.
    assert_eq!(unsafe { port.element.port_num }, 1);
    let queue = next(context).unwrap();
    assert_eq!(queue.event_type, ibv_event_type::IBV_EVENT_CQ_ERR);
    assert_eq!(element(&queue), one.cq.addr());
    let fatal = next(context).unwrap();
    assert_eq!(element(&fatal), one.qp.addr());
    assert!(!has_event(context));
    for event in [port, queue, fatal] {
        ack(event);
    }
    // It was one: the pair is in its error state.
    one.recv(1, 0, 8);
    let flushed = ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0;
    assert_eq!(one.drain(), [(1, flushed)]);
    // What nobody has read goes with its object.
    standin.object_event(ibv_event_type::IBV_EVENT_COMM_EST, one.qp);
    assert_eq!(one.destroy_qp(), 0);
    assert!(!has_event(context));
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_end_of_an_object_waits_for_its_event() {
    let standin = Standin::start();
    let device = Opened::first();
    let (mut one, other) = pair(&device, RC);
    standin.object_event(ibv_event_type::IBV_EVENT_COMM_EST, one.qp);
    let event = next(device.context).unwrap();
    let later = standin::raw::Raw(ptr::from_ref(&event).cast_mut());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            // SAFETY: an event that lives as long as this thread, and is not acknowledged.
            unsafe { rdma_sys::ibv_ack_async_event(later.get()) };
        });
        let start = std::time::Instant::now();
        assert_eq!(one.destroy_qp(), 0);
        assert!(start.elapsed() >= Duration::from_millis(30));
    });
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_shared_queue_tells_its_limit_once_and_its_pair_the_last_receive() {
    let standin = Standin::start();
    let device = Opened::first();
    do_not_wait(device.context);
    let one = End::new(&device, RC);
    let mut srq = ptr::null_mut();
    let mut other = End::with_srq(&device, RC, |pd| {
        srq = small_srq(pd, 2);
        srq
    });
    connect(&one, &other);
    for wr_id in 0..3 {
        let mut pieces = [other.piece(0, 8)];
        let mut request = recv_wr(wr_id, &mut pieces);
        let mut bad = ptr::null_mut();
        // SAFETY: a living queue, and a request that lives during the call.
        let posted = unsafe { rdma_sys::ibv_post_srq_recv(srq, &raw mut request, &raw mut bad) };
        assert_eq!(posted, 0);
    }
    one.send(1, 0, 8);
    assert!(next(device.context).is_err());
    one.send(2, 0, 8);
    one.send(3, 0, 8);
    let event = next(device.context).unwrap();
    let limit = ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED;
    assert_eq!((event.event_type, element(&event)), (limit, srq.addr()));
    ack(event);
    assert!(next(device.context).is_err());
    let mut now = ibv_srq_attr::default();
    // SAFETY: a living queue, and room for the answer.
    assert_eq!(unsafe { rdma_sys::ibv_query_srq(srq, &raw mut now) }, 0);
    assert_eq!((now.srq_limit, now.max_wr), (0, 8));
    other.to_state(ibv_qp_state::IBV_QPS_ERR);
    let event = next(device.context).unwrap();
    let last = ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED;
    assert_eq!((event.event_type, element(&event)), (last, other.qp.addr()));
    ack(event);
    assert_eq!(other.destroy_qp(), 0);
    // SAFETY: a living queue without pairs.
    assert_eq!(unsafe { rdma_sys::ibv_destroy_srq(srq) }, 0);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_device_that_goes_says_so_last() {
    let standin = Standin::start();
    let device = Opened::first();
    do_not_wait(device.context);
    standin.remove_device(RXE0);
    let event = next(device.context).unwrap();
    assert_eq!(event.event_type, ibv_event_type::IBV_EVENT_DEVICE_FATAL);
    ack(event);
    assert_eq!(next(device.context).err(), Some(Some(libc::EIO)));
    drop(device);
    standin.restore_device(RXE0);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_that_is_armed_for_solicited_messages_is_woken_by_those() {
    let standin = Standin::start();
    let device = Opened::first();
    // SAFETY: an open device.
    let channel = unsafe { rdma_sys::ibv_create_comp_channel(device.context) };
    let (one, other) = (
        End::new(&device, RC),
        End::with_channel(&device, RC, channel),
    );
    connect(&one, &other);
    let arm = |solicited: i32| {
        // SAFETY: a living queue.
        let armed = unsafe { rdma_sys::ibv_req_notify_cq(other.cq, solicited) };
        assert_eq!(armed, 0);
    };
    let message = |flags: u32| {
        other.recv(1, 0, 8);
        let mut request = send_wr(2, &mut []);
        request.send_flags |= flags;
        assert_eq!(one.post(&mut [request]).0, 0);
        assert_eq!(one.drain().len(), 1);
        assert_eq!(other.drain().len(), 1);
    };
    // Whether the channel was told, which it then is no more.
    let told = || {
        // SAFETY: a living channel.
        if !is_readable(unsafe { (*channel).fd }) {
            return false;
        }
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a living channel with an event, and room for the answer.
        let read = unsafe { rdma_sys::ibv_get_cq_event(channel, &raw mut cq, &raw mut context) };
        assert_eq!((read, cq), (0, other.cq));
        // SAFETY: one event was read.
        unsafe { rdma_sys::ibv_ack_cq_events(cq, 1) };
        true
    };
    arm(1);
    message(0);
    assert!(!told());
    message(IBV_SEND_SOLICITED);
    assert!(told());
    message(IBV_SEND_SOLICITED);
    assert!(!told());
    // Armed for any, a later call does not narrow that.
    arm(0);
    arm(1);
    message(0);
    assert!(told());
    // A failure always counts.
    arm(1);
    other.recv(3, 0, 8);
    other.to_state(ibv_qp_state::IBV_QPS_ERR);
    assert!(told());
    drop((one, other));
    // SAFETY: a living channel without queues.
    assert_eq!(unsafe { rdma_sys::ibv_destroy_comp_channel(channel) }, 0);
    drop(device);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn changes_of_state_need_what_the_kernel_needs() {
    let standin = Standin::start();
    let device = Opened::first();
    let bad = libc::EINVAL;
    for kind in [RC, UC, UD] {
        let end = End::new(&device, kind);
        let (init, init_mask) = end.init_attr();
        let (rtr, rtr_mask) = end.rtr_attr(77);
        let (rts, rts_mask) = end.rts_attr();
        // Not from here, and not with one attribute less or a strange one more.
        assert_eq!(end.modify(&rtr, rtr_mask), bad);
        let last = if kind == UD {
            IBV_QP_QKEY
        } else {
            IBV_QP_ACCESS_FLAGS
        };
        for without in [IBV_QP_PORT, last] {
            assert_eq!(end.modify(&init, init_mask & !without), bad);
        }
        assert_eq!(end.modify(&init, init_mask | IBV_QP_TIMEOUT), bad);
        let wrong_port = ibv_qp_attr {
            port_num: 2,
            ..init
        };
        assert_eq!(end.modify(&wrong_port, init_mask), bad);
        assert_eq!(end.modify(&init, init_mask), 0);
        assert_eq!(end.modify(&init, init_mask), 0);
        assert_eq!(end.modify(&rts, rts_mask), bad);
        if kind != UD {
            assert_eq!(end.modify(&rtr, rtr_mask & !IBV_QP_AV), bad);
        }
        let reliable = end.modify(&rtr, rtr_mask & !IBV_QP_MIN_RNR_TIMER);
        assert_eq!(reliable, if kind == RC { bad } else { 0 });
        if kind == RC {
            assert_eq!(end.modify(&rtr, rtr_mask), 0);
        }
        let reliable = end.modify(&rts, rts_mask & !IBV_QP_TIMEOUT);
        assert_eq!(reliable, if kind == RC { bad } else { 0 });
        if kind == RC {
            assert_eq!(end.modify(&rts, rts_mask), 0);
        }
        assert_eq!(end.modify(&rts, rts_mask), bad);
        end.to_state(ibv_qp_state::IBV_QPS_SQD);
        end.to_state(ibv_qp_state::IBV_QPS_RTS);
        end.to_state(ibv_qp_state::IBV_QPS_ERR);
        let back = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_RTS,
            ..attr()
        };
        assert_eq!(end.modify(&back, IBV_QP_STATE), bad);
        end.to_state(ibv_qp_state::IBV_QPS_RESET);
    }
    drop(device);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_says_what_it_was_given() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    let (mut now, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
    // SAFETY: a living queue pair, and room for the answers.
    let asked = unsafe { rdma_sys::ibv_query_qp(one.qp, &raw mut now, 0, &raw mut init) };
    assert_eq!(asked, 0);
    assert_eq!(now.qp_state, ibv_qp_state::IBV_QPS_RTS);
    assert_eq!(now.cur_qp_state, ibv_qp_state::IBV_QPS_RTS);
    assert_eq!(now.dest_qp_num, other.number());
    assert_eq!((now.port_num, now.timeout, now.retry_cnt), (1, 14, 7));
    assert_eq!((now.max_rd_atomic, now.max_dest_rd_atomic), (4, 4));
    assert_eq!(init.cap.max_send_wr, DEPTH);
    let datagrams = End::new(&device, UD);
    datagrams.to_init();
    // SAFETY: as above.
    let asked = unsafe { rdma_sys::ibv_query_qp(datagrams.qp, &raw mut now, 0, &raw mut init) };
    assert_eq!((asked, now.qkey, init.qp_type), (0, QKEY, UD));
    // A kind that there is none of.
    let mut init = one.init();
    init.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET;
    // SAFETY: a domain and queues of one device.
    let qp = unsafe { rdma_sys::ibv_create_qp(one.pd, &raw mut init) };
    assert!(qp.is_null());
    drop((one, other, datagrams, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn ports_and_addresses_can_be_asked_for() {
    let standin = Standin::start();
    let device = Opened::first();
    let state = || {
        let mut port = ibv_port_attr::default();
        // SAFETY: an open device, and room for the answer.
        let asked = unsafe { rdma_sys::ibv_query_port(device.context, 1, &raw mut port) };
        assert_eq!(asked, 0);
        port.state
    };
    assert_eq!(state(), ibv_port_state::IBV_PORT_ACTIVE);
    standin.device_event(RXE0, ibv_event_type::IBV_EVENT_PORT_ERR, 1);
    assert_eq!(state(), ibv_port_state::IBV_PORT_DOWN);
    standin.device_event(RXE0, ibv_event_type::IBV_EVENT_PORT_ACTIVE, 1);
    assert_eq!(state(), ibv_port_state::IBV_PORT_ACTIVE);
    let mut gid = ibv_gid::default();
    // SAFETY: an open device, and room for the answer.
    let asked = unsafe { rdma_sys::ibv_query_gid(device.context, 1, 0, &raw mut gid) };
    let own = std::net::Ipv4Addr::new(10, 9, 0, 1).to_ipv6_mapped();
    // SAFETY: both members are bytes.
    assert_eq!((asked, unsafe { gid.raw }), (0, own.octets()));
    drop(device);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_is_paged_on_demand_where_the_device_does_that() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    let register = || {
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
        let start = one.start();
        // SAFETY: memory that is never freed.
        let mr = unsafe {
            rdma_sys::ibv_reg_mr_iova2(one.pd, start.cast(), SIZE, one.address(0), access)
        };
        if mr.is_null() {
            return std::io::Error::last_os_error().raw_os_error();
        }
        // SAFETY: a living region.
        assert_eq!(unsafe { rdma_sys::ibv_dereg_mr(mr) }, 0);
        None
    };
    assert_eq!(register(), None);
    let on_demand = Some(false);
    let without = Device {
        on_demand,
        ..Device::default()
    };
    standin.device(RXE0, without);
    assert_eq!(register(), Some(libc::EOPNOTSUPP));
    drop((one, other, device));
    standin.nothing_left();
}

/// What the test of the strict cases is named.
const STRICT: &str = "asynchronous_events_are_counted";

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn asynchronous_events_are_counted() {
    const CASES: &[(&str, &str)] = &[
        (
            "twice",
            "2 asynchronous events were acknowledged and 1 handed out",
        ),
        ("device", "of a device, and none was handed out"),
        (
            "pair",
            "1 asynchronous events of the queue pair were handed out and 0",
        ),
        (
            "queue",
            "1 asynchronous events of the completion queue were handed out and 0",
        ),
        ("late", "use of a destroyed queue pair"),
    ];
    let _standin = Standin::start();
    let Some(case) = in_child() else {
        for (case, line) in CASES {
            must_die(STRICT, case, line);
        }
        return;
    };
    let standin = Standin::of_child();
    standin.patience(Duration::from_millis(100));
    let device = Opened::first();
    let (mut one, _other) = pair(&device, RC);
    let code = match &case[..] {
        "device" => ibv_event_type::IBV_EVENT_PORT_ACTIVE,
        "queue" => ibv_event_type::IBV_EVENT_CQ_ERR,
        _ => ibv_event_type::IBV_EVENT_COMM_EST,
    };
    match &case[..] {
        "device" => standin.device_event(RXE0, code, 1),
        "queue" => standin.object_event(code, one.cq),
        _ => standin.object_event(code, one.qp),
    }
    let event = next(device.context).unwrap();
    match &case[..] {
        "twice" | "device" => {
            ack(event);
            ack(event);
        }
        "late" => {
            ack(event);
            one.destroy_qp();
            ack(event);
        }
        _ => drop(one),
    }
}
