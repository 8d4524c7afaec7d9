//! "Accept returned, then acknowledge", on every path, by the record of calls.

mod standin;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use rdmacm::{ConnParam, ConnRequest, ErrorKind, EventKind, QueuePair};
use standin::{Call, Client, Peer, Server, Standin, next_event, small_qp};

/// A request of an automatic peer, with a queue pair, in a new record.
struct Requested {
    // The order of dropping: the queue pair, then what it needs.
    qp: QueuePair,
    request: ConnRequest,
    peer: Peer,
    server: Server,
}

impl Requested {
    fn new(standin: &Standin) -> Self {
        let server = Server::start();
        let peer = standin.peer(server.addr(), (3, 5), b"offer");
        let request = server.request();
        let context = request.context().unwrap();
        let (_, _, qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
        standin.record();
        Self {
            qp,
            request,
            peer,
            server,
        }
    }
}

/// The acknowledgement of the request's event: it counts on the listener, and there is one.
fn ack(standin: &Standin) -> Call {
    let mut acks = standin.calls_of("rdma_ack_cm_event");
    assert!(!acks.is_empty(), "nothing was acknowledged");
    acks.remove(0)
}

fn id_of(call: &Call) -> usize {
    call.args[0]
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn success_accepts_then_acks() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    let id = request.accept().unwrap();
    let accept = standin.call_of("rdma_accept");
    assert_eq!(accept.returned, 0);
    assert!(accept.is_before(&ack(&standin)));
    assert_eq!(peer.saw(), [(5, 0)]);
    assert!(matches!(
        next_event(&server.channel).kind,
        EventKind::Established(_)
    ));
    // NULL: the smaller of offer and device, turned round.
    let negotiated = id.negotiated().unwrap();
    assert_eq!(
        (negotiated.responder_resources, negotiated.initiator_depth),
        (5, 3)
    );
    drop((qp, id, server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_local_failure_hands_the_request_back_unacknowledged() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    let mut request = request;
    for (param, message) in [
        (
            ConnParam::new().private_data(vec![1; 197]),
            "private_data_len is 197, the limit is 196",
        ),
        (
            ConnParam::new().responder_resources(129),
            "responder_resources is 129, the limit is 128",
        ),
        (
            ConnParam::new().initiator_depth(4),
            "initiator_depth is 4, the limit is 3",
        ),
    ] {
        let failed = request.accept_with(&param).unwrap_err();
        assert_eq!(failed.error().kind(), ErrorKind::TooLarge);
        assert!(failed.error().to_string().contains(message), "{failed}");
        request = failed.into_inner().expect("the request comes back");
        // What the event holds can still be read.
        assert_eq!(&request.private_data()[..5], b"offer");
    }
    assert!(standin.calls_of("rdma_ack_cm_event").is_empty());
    assert!(standin.calls_of("rdma_accept").is_empty());
    let id = request.accept().unwrap();
    assert!(standin.call_of("rdma_accept").is_before(&ack(&standin)));
    drop((qp, id, server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_failure_in_c_rejects_then_acks_then_destroys() {
    for (errno, gone) in [
        (libc::EINVAL, false),
        (libc::ECONNRESET, true),
        (libc::ENOMEM, false),
    ] {
        let standin = Standin::start();
        let Requested {
            qp,
            request,
            peer,
            server,
        } = Requested::new(&standin);
        standin.fail("rdma_accept", -1, errno);
        let failed = request.accept().unwrap_err();
        assert_eq!(failed.error().raw_os_error(), Some(errno));
        assert_eq!(
            failed.error().kind() == ErrorKind::PeerGone,
            gone,
            "{failed}"
        );
        assert!(failed.into_inner().is_none());
        drop(qp);
        let accept = standin.call_of("rdma_accept");
        let reject = standin.call_of("rdma_reject");
        let ack = ack(&standin);
        let destroys = standin.calls_of("rdma_destroy_id");
        let destroy = destroys
            .iter()
            .find(|call| id_of(call) == id_of(&accept))
            .unwrap();
        assert_eq!(id_of(&reject), id_of(&accept));
        assert!(accept.is_before(&reject), "accept, then reject");
        assert!(reject.is_before(&ack), "reject, then ack");
        assert!(ack.is_before(destroy), "ack, then destroy");
        assert_eq!(peer.saw(), [(8, 28)]);
        drop((server, peer));
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_peer_that_has_gone_is_told_apart_from_a_fault_of_ours() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    drop(peer);
    let failed = request.accept().unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::PeerGone);
    assert_eq!(failed.error().raw_os_error(), Some(libc::EINVAL));
    assert!(standin.call_of("rdma_accept").is_before(&ack(&standin)));
    drop(qp);
    // The listener goes on.
    let peer = standin.peer(server.addr(), (1, 1), b"");
    drop(server.request());
    assert_eq!(peer.saw(), [(8, 28)]);
    drop((server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_that_cannot_be_moved_is_a_fault_of_ours() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    // The queue pair is in ERR, so it cannot be moved to RTR: the fault is ours, and the peer is still there.
    let mut qp = qp;
    qp.to_error().unwrap();
    let failed = request.accept().unwrap_err();
    assert_eq!(failed.error().raw_os_error(), Some(libc::EINVAL));
    assert_ne!(failed.error().kind(), ErrorKind::PeerGone);
    assert_eq!(peer.saw(), [(8, 28)]);
    assert!(standin.call_of("rdma_accept").is_before(&ack(&standin)));
    drop((qp, server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_panic_in_the_closure_rejects_then_acks_then_destroys() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = request.accept_from(|offer| {
            assert_eq!(offer.initiator_depth(), 0, "a panic on purpose");
            ConnParam::new()
        });
    }));
    assert!(panicked.is_err());
    assert!(standin.calls_of("rdma_accept").is_empty());
    let (reject, ack) = (standin.call_of("rdma_reject"), ack(&standin));
    assert!(reject.is_before(&ack));
    drop(qp);
    let destroys = standin.calls_of("rdma_destroy_id");
    let destroy = destroys
        .iter()
        .find(|call| id_of(call) == id_of(&reject))
        .unwrap();
    assert!(ack.is_before(destroy));
    assert_eq!(peer.saw(), [(8, 28)]);
    drop((server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_closure_may_send_the_offer_back() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    let id = request
        .accept_from(|offer| {
            ConnParam::new()
                .private_data(&offer.private_data()[..5])
                .initiator_depth(offer.initiator_depth().into())
        })
        .unwrap();
    // Nothing was acknowledged while the closure read the event.
    assert!(standin.call_of("rdma_accept").is_before(&ack(&standin)));
    drop((qp, id, server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_dropped_request_rejects_then_acks_then_destroys() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    drop((qp, request));
    let (reject, ack) = (standin.call_of("rdma_reject"), ack(&standin));
    let destroys = standin.calls_of("rdma_destroy_id");
    let destroy = destroys
        .iter()
        .find(|call| id_of(call) == id_of(&reject))
        .unwrap();
    assert!(reject.is_before(&ack) && ack.is_before(destroy));
    assert_eq!(peer.saw(), [(8, 28)]);
    drop((server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_reject_carries_its_data_then_acks() {
    let standin = Standin::start();
    let server = Server::start();
    let client = Client::asking(server.addr(), ConnParam::new());
    let request = server.request();
    standin.record();
    request.reject(b"not today").unwrap();
    assert!(standin.call_of("rdma_reject").is_before(&ack(&standin)));
    let EventKind::Rejected(rejection) = client.event().kind else {
        panic!("not rejected");
    };
    assert_eq!(rejection.reason().as_raw(), 28);
    assert_eq!(rejection.private_data().len(), 148);
    assert_eq!(&rejection.private_data()[..10], b"not today\0");
    drop((client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_panic_between_the_steps_leaves_nothing() {
    let standin = Standin::start();
    let Requested {
        qp,
        request,
        peer,
        server,
    } = Requested::new(&standin);
    let thread = thread::spawn(move || {
        let _kept = (qp, request);
        panic!("a panic on purpose");
    });
    assert!(thread.join().is_err());
    assert!(standin.call_of("rdma_reject").is_before(&ack(&standin)));
    drop((server, peer));
    standin.nothing_left();
}
