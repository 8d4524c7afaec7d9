//! The stand-in catches what would crash or hang the real libraries: raw calls, in a child process each.
#![expect(
    unsafe_code,
    reason = "calls the C functions in the wrong way, on purpose"
)]

mod standin;

use std::ptr;
use std::thread;
use std::time::Duration;

use rdma_sys::{rdma_cm_id, rdma_conn_param, rdma_event_channel};
use standin::raw::{
    Raw, ack, asking, channel, cq_on, destroy, event_of, id_on, make_qp, pd_on, resolved, verbs,
};
use standin::{Plan, Server, Standin, addr, in_child, must_die};

/// What every test of this file is named.
const NAME: &str = "wrong_calls_end_the_process_with_a_line";

/// A case, and a part of the line that the stand-in ends the process with.
const CASES: &[(&str, fn(), &str)] = &[
    ("ack twice", ack_twice, "rdma_ack_cm_event: the event"),
    ("ack garbage", ack_garbage, "is no event and never was"),
    (
        "id destroyed twice",
        destroy_twice,
        "rdma_destroy_id: use of a destroyed id",
    ),
    (
        "unacked event",
        unacked,
        "would wait for ever: 1 events of the id",
    ),
    (
        "unacked request",
        unacked_request,
        "would wait for ever: 1 events of the id",
    ),
    (
        "unacked migration",
        unacked_migration,
        "rdma_migrate_id: would wait for ever",
    ),
    (
        "lost event",
        lost_event,
        "rdma_destroy_id: would wait for ever",
    ),
    (
        "channel before id",
        channel_first,
        "destroyed before its ids: 1 of them live",
    ),
    (
        "channel in use",
        channel_in_use,
        "destroyed while a thread reads events",
    ),
    (
        "route without device",
        route,
        "follow the null pointer id->verbs",
    ),
    ("connect without device", connect, "the id has no device"),
    (
        "accept without queue pair",
        accept_null,
        "follow the null pointer conn_param",
    ),
    ("no queue pair", no_qp, "follow the null pointer id->qp"),
    (
        "id before queue pair",
        id_before_qp,
        "destroyed before its queue pair",
    ),
    (
        "queue pair twice",
        qp_twice,
        "ibv_destroy_qp: use of a destroyed queue pair",
    ),
    (
        "queue twice",
        cq_twice,
        "ibv_destroy_cq: use of a destroyed completion queue",
    ),
    (
        "domain twice",
        pd_twice,
        "ibv_dealloc_pd: use of a destroyed protection domain",
    ),
    (
        "region twice",
        mr_twice,
        "ibv_dereg_mr: use of a destroyed memory region",
    ),
    (
        "channel twice",
        channel_twice,
        "use of a destroyed event channel",
    ),
    (
        "write after destroy",
        write_late,
        "somebody wrote to a destroyed id",
    ),
    (
        "queue pair while its event is read",
        qp_in_event,
        "another thread uses it in rdma_get_cm_event",
    ),
    (
        "queue pair in disconnect",
        qp_in_disconnect,
        "another thread uses it in rdma_disconnect",
    ),
    (
        "id in disconnect",
        id_in_disconnect,
        "while another thread is in rdma_disconnect",
    ),
    (
        "device closed",
        device_closed,
        "ibv_close_device: closes a device that belongs to librdmacm",
    ),
];

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn wrong_calls_end_the_process_with_a_line() {
    let _standin = Standin::start();
    if let Some(case) = in_child() {
        let (_, run, _) = CASES.iter().find(|(name, ..)| *name == case).unwrap();
        run();
        return;
    }
    for (case, _, line) in CASES {
        must_die(NAME, case, line);
    }
}

/// The stand-in inside a child, whose test holds its turn.
fn steer() -> Standin {
    Standin::of_child()
}

fn ack_twice() {
    let channel = channel();
    let id = id_on(channel);
    steer().event(id, &Plan::event(15));
    let event = event_of(channel);
    ack(event);
    ack(event);
}

fn ack_garbage() {
    let mut garbage = 0_u64;
    ack((&raw mut garbage).cast());
}

fn destroy_twice() {
    let id = id_on(channel());
    destroy(id);
    destroy(id);
}

fn unacked() {
    let channel = channel();
    let id = id_on(channel);
    let standin = steer();
    standin.patience(Duration::from_millis(100));
    standin.event(id, &Plan::event(15));
    event_of(channel);
    destroy(id);
}

fn unacked_request() {
    let channel = channel();
    let id = id_on(channel);
    let local = socket2::SockAddr::from(addr(0));
    // SAFETY: an id just made, and an address that lives during the call.
    let bound = unsafe { rdma_sys::rdma_bind_addr(id, local.as_ptr().cast_mut().cast()) };
    assert_eq!(bound, 0);
    // SAFETY: a living id.
    assert_eq!(unsafe { rdma_sys::rdma_listen(id, 0) }, 0);
    // SAFETY: a living id.
    let port = u16::from_be(unsafe { rdma_sys::rdma_get_src_port(id) });
    let standin = steer();
    standin.patience(Duration::from_millis(100));
    let peer = standin.peer(addr(port), (1, 1), b"");
    let event = event_of(channel);
    // The new id can go; the listener cannot.
    // SAFETY: an event that is not acknowledged.
    destroy(unsafe { (*event).id });
    destroy(id);
    drop(peer);
}

fn unacked_migration() {
    let channel = channel();
    let id = id_on(channel);
    let standin = steer();
    standin.patience(Duration::from_millis(100));
    standin.event(id, &Plan::event(15));
    event_of(channel);
    // SAFETY: a living id and a living channel.
    unsafe { rdma_sys::rdma_migrate_id(id, self::channel()) };
}

fn lost_event() {
    let id = id_on(channel());
    let standin = steer();
    standin.patience(Duration::from_millis(100));
    standin.lose_event(id);
    destroy(id);
}

fn channel_first() {
    let channel = channel();
    id_on(channel);
    // SAFETY: the id lives, which is the purpose.
    unsafe { rdma_sys::rdma_destroy_event_channel(channel) };
}

fn channel_in_use() {
    let channel = channel();
    let read = Raw(channel);
    thread::spawn(move || ack(event_of(read.get())));
    thread::sleep(Duration::from_millis(100));
    // SAFETY: a thread reads from it, which is the purpose.
    unsafe { rdma_sys::rdma_destroy_event_channel(channel) };
}

fn route() {
    // SAFETY: the id has no device, which is the purpose.
    unsafe { rdma_sys::rdma_resolve_route(id_on(channel()), 1000) };
}

fn connect() {
    let mut param = rdma_conn_param::default();
    // SAFETY: the id has no device, which is the purpose.
    unsafe { rdma_sys::rdma_connect(id_on(channel()), &raw mut param) };
}

fn accept_null() {
    // SAFETY: there is no queue pair, which is the purpose.
    unsafe { rdma_sys::rdma_accept(resolved().1, ptr::null_mut()) };
}

fn no_qp() {
    // SAFETY: there is no queue pair, which is the purpose.
    unsafe { rdma_sys::rdma_destroy_qp(resolved().1) };
}

fn id_before_qp() {
    let (_, id) = resolved();
    make_qp(id);
    destroy(id);
}

fn qp_twice() {
    let (_, id) = resolved();
    make_qp(id);
    // SAFETY: a living id.
    let qp = unsafe { (*id).qp };
    for _ in 0..2 {
        // SAFETY: the second time it is gone, which is the purpose.
        unsafe { rdma_sys::ibv_destroy_qp(qp) };
    }
}

fn cq_twice() {
    let cq = cq_on(resolved().1);
    for _ in 0..2 {
        // SAFETY: the second time it is gone, which is the purpose.
        unsafe { rdma_sys::ibv_destroy_cq(cq) };
    }
}

fn pd_twice() {
    let pd = pd_on(resolved().1);
    for _ in 0..2 {
        // SAFETY: the second time it is gone, which is the purpose.
        unsafe { rdma_sys::ibv_dealloc_pd(pd) };
    }
}

fn mr_twice() {
    let mut memory = [0_u8; 16];
    // SAFETY: a living domain, and memory that outlives the region.
    let mr = unsafe {
        rdma_sys::ibv_reg_mr(
            pd_on(resolved().1),
            memory.as_mut_ptr().cast(),
            memory.len(),
            1,
        )
    };
    assert!(!mr.is_null());
    for _ in 0..2 {
        // SAFETY: the second time it is gone, which is the purpose.
        unsafe { rdma_sys::ibv_dereg_mr(mr) };
    }
}

fn channel_twice() {
    let channel = channel();
    for _ in 0..2 {
        // SAFETY: the second time it is gone, which is the purpose.
        unsafe { rdma_sys::rdma_destroy_event_channel(channel) };
    }
}

fn write_late() {
    let id = id_on(channel());
    destroy(id);
    // SAFETY: the id is gone, which is the purpose; the stand-in keeps its memory.
    unsafe { (*id).context = ptr::null_mut() };
    steer().check();
}

/// An id that has asked where nobody listens: REJECTED is queued, and reading it touches the queue pair.
fn refused() -> (*mut rdma_event_channel, *mut rdma_cm_id) {
    asking(addr(7471))
}

fn qp_in_event() {
    let (channel, id) = refused();
    let standin = steer();
    standin.hold("rdma_get_cm_event", Duration::from_secs(5));
    let channel = Raw(channel);
    thread::spawn(move || ack(event_of(channel.get())));
    standin.until_held("rdma_get_cm_event");
    // SAFETY: a thread is about to use it, which is the purpose.
    unsafe { rdma_sys::rdma_destroy_qp(id) };
}

/// Lets a thread disconnect an id, and stops it inside.
fn held_in_disconnect() -> *mut rdma_cm_id {
    let (channel, id) = refused();
    ack(event_of(channel));
    hold_in_disconnect(id);
    id
}

fn hold_in_disconnect(id: *mut rdma_cm_id) {
    let standin = steer();
    standin.hold("rdma_disconnect", Duration::from_secs(5));
    let held = Raw(id);
    // SAFETY: the id lives while the thread starts.
    thread::spawn(move || unsafe { rdma_sys::rdma_disconnect(held.get()) });
    standin.until_held("rdma_disconnect");
}

fn qp_in_disconnect() {
    let id = held_in_disconnect();
    // SAFETY: a thread is about to use it, which is the purpose.
    unsafe { rdma_sys::rdma_destroy_qp(id) };
}

fn id_in_disconnect() {
    let (_, id) = resolved();
    hold_in_disconnect(id);
    destroy(id);
}

fn device_closed() {
    let (_, id) = resolved();
    let context = verbs(id);
    for _ in 0..3 {
        // SAFETY: librdmacm owns it, which is the purpose.
        unsafe { rdma_sys::ibv_close_device(context) };
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_id_whose_descriptor_was_closed_cannot_be_destroyed() {
    let standin = Standin::start();
    let channel = channel();
    let id = id_on(channel);
    // SAFETY: a living channel.
    let fd = unsafe { (*channel).fd };
    // SAFETY: takes a number. Nobody else uses the descriptor.
    unsafe { libc::close(fd) };
    // SAFETY: a living id.
    let destroyed = unsafe { rdma_sys::rdma_destroy_id(id) };
    assert_eq!((destroyed, errno()), (-1, libc::EBADF));
    assert_eq!(standin.living().len(), 2);
    // Put one back, so that both can go.
    // SAFETY: takes numbers.
    let new = unsafe { libc::eventfd(0, 0) };
    assert_eq!(new, fd);
    destroy(id);
    // SAFETY: a living channel without ids.
    unsafe { rdma_sys::rdma_destroy_event_channel(channel) };
    standin.nothing_left();
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_migration_without_locks_fails_when_the_new_channel_is_read() {
    let standin = Standin::start();
    let server = Server::start();
    let (old, id) = asking(server.addr());
    let (made, accepted) = server.accept();
    let new = channel();
    standin.hold("rdma_migrate_id", Duration::from_millis(100));
    let (moved, to) = (Raw(id), Raw(new));
    // SAFETY: both live until the thread has ended.
    let mover = thread::spawn(move || unsafe { rdma_sys::rdma_migrate_id(moved.get(), to.get()) });
    standin.until_held("rdma_migrate_id");
    let event = event_of(new);
    // SAFETY: an event that is not acknowledged.
    let event_ref = unsafe { &*event };
    let (code, status) = (event_ref.event.0, event_ref.status);
    // CONNECT_ERROR, by the library itself.
    assert_eq!((code, status), (6, -1));
    ack(event);
    assert_eq!(mover.join().unwrap(), 0);
    // SAFETY: a living id.
    let qp = unsafe { (*id).qp };
    // SAFETY: it has a queue pair, which lives.
    let qp = unsafe { &*qp };
    let (cq, pd) = (qp.send_cq, qp.pd);
    // SAFETY: a living id with a queue pair.
    unsafe { rdma_sys::rdma_destroy_qp(id) };
    destroy(id);
    for channel in [old, new] {
        // SAFETY: a living channel without ids.
        unsafe { rdma_sys::rdma_destroy_event_channel(channel) };
    }
    // SAFETY: a queue that nothing completes to any more.
    assert_eq!(unsafe { rdma_sys::ibv_destroy_cq(cq) }, 0);
    // SAFETY: a domain that nothing is in any more.
    assert_eq!(unsafe { rdma_sys::ibv_dealloc_pd(pd) }, 0);
    drop((made, accepted, server));
    standin.nothing_left();
}
