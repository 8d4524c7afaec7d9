//! Memory windows, against calls that fail and what soft-RoCE does not check.

mod standin;

use std::net::SocketAddr;

use rdmacm::{
    Access, CmId, Completion, CompletionQueue, ConnParam, ErrorKind, EventKind, Exposed,
    MappedMemory, Op, ProtectionDomain, QueuePair, Registration, RemoteMemory, Status, Window,
    WindowType, Work,
};
use standin::{Client, Server, Standin, addr, is_child_of, small_qp};

/// An end that has windows, and its peer.
struct Ends {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    client: Client,
    _accepted: CmId,
    _server: Server,
}

impl Ends {
    fn at(local: SocketAddr) -> Self {
        let server = Server::at(local);
        let client = Client::asking(server.addr(), ConnParam::new());
        let request = server.request();
        let context = request.context().unwrap();
        let (pd, cq, qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
        let accepted = request.accept().unwrap();
        assert!(matches!(client.event().kind, EventKind::Established(_)));
        Self {
            qp,
            cq,
            pd,
            client,
            _accepted: accepted,
            _server: server,
        }
    }

    fn new() -> Self {
        Self::at(addr(0))
    }

    fn exposed(&self) -> Exposed {
        let memory = MappedMemory::new(4096).unwrap();
        let exposed = self.pd.expose_for_windows(memory, Registration::new());
        exposed.unwrap()
    }

    /// The next completion, which must be of a request without a buffer.
    fn bare(&mut self) -> (Op, Status) {
        match self.cq.poll().unwrap() {
            Some(Completion::Bare(bare)) => (bare.op(), bare.status()),
            other => panic!("not bare: {other:?}"),
        }
    }

    /// Binds a window, and sees that it is.
    fn bind(&mut self, window: &mut Window, memory: &Exposed) -> RemoteMemory {
        let bound = self
            .qp
            .send
            .bind(window, memory, 100..150, Access::WRITE, 1);
        let remote = bound.unwrap();
        assert_eq!(self.bare(), (Op::Bind, Status::SUCCESS));
        remote
    }

    /// What the peer's write of 50 bytes to `to` ends with.
    fn written(&mut self, to: RemoteMemory) -> Status {
        let queue = &mut self.client.qp.as_mut().unwrap();
        let pool = queue.protection_domain().pool(1, 50).unwrap();
        let mut buf = pool.take().unwrap();
        buf.fill_from(&[9; 50][..to.len() as usize]);
        queue.send.write(buf, to, 2).unwrap();
        let completion = self.client.cq.as_mut().unwrap().poll().unwrap().unwrap();
        completion.status()
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_window_opens_its_range_and_no_more() {
    let standin = Standin::start();
    for (before, after) in [(0, 0), (1, 0), (0, 1)] {
        let mut ends = Ends::new();
        let memory = ends.exposed();
        let mut window = ends.qp.send.alloc_window().unwrap();
        let open = ends.bind(&mut window, &memory);
        let to = RemoteMemory::new(open.addr() - before + after, open.rkey(), open.len());
        let status = ends.written(to);
        let wanted = if before + after == 0 {
            Status::SUCCESS
        } else {
            Status::REMOTE_ACCESS
        };
        assert_eq!(status, wanted, "{before} before, {after} after");
        drop(ends);
        // The window went with its pair.
        let memory = memory.revoke().unwrap();
        let written = memory.iter().filter(|&&byte| byte == 9).count();
        assert_eq!(written, if before + after == 0 { 50 } else { 0 });
        drop(window);
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_message_that_ends_a_window_says_which() {
    let standin = Standin::start();
    let mut ends = Ends::new();
    let memory = ends.exposed();
    let mut window = ends.qp.send.alloc_window().unwrap();
    let open = ends.bind(&mut window, &memory);
    let pool = ends.pd.pool(1, 8).unwrap();
    ends.qp.recv.post(pool.take().unwrap(), 1).unwrap();
    let queue = ends.client.qp.as_mut().unwrap();
    let peers = queue.protection_domain().pool(1, 8).unwrap();
    let work = Work::send_with_invalidate(open.rkey());
    queue.send.post(work, peers.take().unwrap(), 2).unwrap();
    let invalidated = match ends.cq.poll().unwrap() {
        Some(Completion::Received(received)) => received.invalidated(),
        other => panic!("not received: {other:?}"),
    };
    assert_eq!(invalidated, Some(open.rkey()));
    window.invalidated(open.rkey()).unwrap();
    let sent = ends.client.cq.as_mut().unwrap().poll().unwrap().unwrap();
    assert_eq!(sent.status(), Status::SUCCESS);
    drop(sent);
    // Bound again, it has another key, and the old one opens nothing.
    let again = ends.bind(&mut window, &memory);
    assert_ne!(again.rkey(), open.rkey());
    assert_eq!(ends.written(open), Status::REMOTE_ACCESS);
    drop((window, ends, memory, pool, peers));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_device_with_windows_of_type_1_binds_them_by_its_own_call() {
    let standin = Standin::start();
    let mut ends = Ends::at(SocketAddr::from(([10, 9, 1, 1], 0)));
    let memory = ends.exposed();
    standin.record();
    let mut window = ends.qp.send.alloc_window().unwrap();
    assert_eq!(window.kind(), WindowType::Type1);
    let open = ends.bind(&mut window, &memory);
    assert_eq!(standin.calls_of("ibv_bind_mw").len(), 1);
    assert_eq!(window.key(), Some(open.rkey()));
    assert_eq!(ends.written(open), Status::SUCCESS);
    ends.qp.send.invalidate(&mut window, 3).unwrap();
    assert_eq!(ends.bare(), (Op::Invalidate, Status::SUCCESS));
    assert_eq!(standin.calls_of("ibv_bind_mw").len(), 2);
    window.invalidated(open.rkey()).unwrap();
    assert_eq!(ends.written(open), Status::REMOTE_ACCESS);
    let memory = memory.revoke().unwrap();
    assert_eq!(memory[100..150], [9; 50]);
    drop((window, ends));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_bind_that_was_not_posted_leaves_the_window_as_it_was() {
    let standin = Standin::start();
    let mut ends = Ends::new();
    let memory = ends.exposed();
    let mut window = ends.qp.send.alloc_window().unwrap();
    // Four fit.
    let mut others: Vec<_> = (0..4)
        .map(|_| ends.qp.send.alloc_window().unwrap())
        .collect();
    for other in &mut others {
        let bound = ends.qp.send.bind(other, &memory, 0..8, Access::READ, 1);
        bound.unwrap();
    }
    let refused = ends
        .qp
        .send
        .bind(&mut window, &memory, 0..8, Access::READ, 2);
    let refused = refused.unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::QueueFull, "{refused}");
    assert!(refused.into_buf().is_some(), "the device does not have it");
    assert_eq!(window.key(), None);
    for _ in 0..4 {
        assert_eq!(ends.bare(), (Op::Bind, Status::SUCCESS));
    }
    // An error that names no request: the device may have it all the same.
    standin.fail("ibv_post_send", libc::EINVAL.into(), 0);
    let refused = ends
        .qp
        .send
        .bind(&mut window, &memory, 0..8, Access::READ, 2);
    assert!(refused.unwrap_err().into_buf().is_none());
    assert!(window.key().is_some());
    let refused = memory.revoke().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
    let memory = refused.into_inner().unwrap();
    drop((window, others));
    memory.revoke().unwrap();
    drop(ends);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn windows_that_cannot_be_made_or_freed_are_errors() {
    // The child leaves a window behind on purpose.
    if !is_child_of("windows_that_cannot_be_made_or_freed_are_errors") {
        return;
    }
    let standin = Standin::of_child();
    let mut ends = Ends::new();
    standin.fail("ibv_alloc_mw", 0, libc::ENOMEM);
    let error = ends.qp.send.alloc_window().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let memory = ends.exposed();
    let mut window = ends.qp.send.alloc_window().unwrap();
    ends.bind(&mut window, &memory);
    standin.fail("ibv_dealloc_mw", libc::EBUSY.into(), 0);
    let error = window.dealloc().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    // What it opens is never freed.
    let refused = memory.revoke().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
    assert_eq!(standin.calls_of("ibv_dereg_mr").len(), 0);
    // Nor is the pair destroyed in order: the stand-in would end the process, as soft-RoCE waits.
    std::mem::forget(ends);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_device_without_windows_says_so() {
    let standin = Standin::start();
    let ends = Ends::at(SocketAddr::from(([10, 9, 2, 1], 0)));
    let error = ends.qp.send.alloc_window().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "ibv_alloc_mw: the device has no memory windows"
    );
    drop(ends);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn books_that_are_wrong_are_the_devices_to_refuse() {
    // The child leaves a region behind on purpose.
    if !is_child_of("books_that_are_wrong_are_the_devices_to_refuse") {
        return;
    }
    let standin = Standin::of_child();
    let mut ends = Ends::new();
    let memory = ends.exposed();
    let mut window = ends.qp.send.alloc_window().unwrap();
    let open = ends.bind(&mut window, &memory);
    // It has not ended at all.
    window.invalidated(open.rkey()).unwrap();
    standin.record();
    let refused = memory.revoke().unwrap_err();
    // The device knows better, so the memory is never freed.
    assert_eq!(refused.error().raw_os_error(), Some(libc::EBUSY));
    assert!(refused.into_inner().is_none());
    let other = ends.exposed();
    let bound = ends
        .qp
        .send
        .bind(&mut window, &other, 0..8, Access::READ, 1);
    bound.unwrap();
    assert_eq!(ends.bare(), (Op::Bind, Status::MW_BIND));
    drop((window, ends, other));
    let left = standin.living();
    for kept in [("memory region", 1), ("protection domain", 1)] {
        assert!(left.contains(&kept), "{left:?}");
    }
    assert!(
        left.iter().all(|(kind, _)| *kind != "memory window"),
        "{left:?}"
    );
}
