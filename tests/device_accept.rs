//! Accept and its parameters, on soft-RoCE (rxe).

mod common;

use std::thread;
use std::time::Duration;

use common::cm::{
    Done, End, Listening, Parts, assert_state, assert_too_large, established, message, pair, quiet,
    rejected, until_clients_are_gone,
};
use common::raw::qp_attr;
use common::{device, in_time};
use rdmacm::{
    ConnParam, Connection, ErrorKind, Listener, Options, QueuePairInit, RejectReason, RetryCount,
    RnrRetry, Status,
};

/// What rxe allows for both depths.
const RXE_DEPTH: u8 = 128;

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn two_live_requests_are_two_values() {
    device();
    in_time("two requests", || {
        let listening = Listening::new();
        let clients = [1_u8, 2].map(|mark| {
            let client = End::client(listening.addr());
            let param = ConnParam::new().private_data(vec![mark]);
            client.id.connect(param).unwrap();
            client
        });
        let first = listening.request();
        let second = listening.request();
        assert_ne!(first.token(), second.token());
        let mut marks = [&first, &second].map(|request| request.private_data()[0]);
        marks.sort_unstable();
        assert_eq!(marks, [1, 2]);

        let parts = Parts::of_request(&first);
        let init = QueuePairInit::new(&parts.cq.handle());
        let error = first.create_qp(&parts.pd, &init).unwrap_err();
        assert_state(&error, "rdma_create_qp", "there is one already");

        // The second is answered first.
        let _second = End::accept(second, &ConnParam::new());
        drop(parts);
        let _first = End::accept(first, &ConnParam::new());
        for client in clients {
            established(&client.channel);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_client_that_is_gone_is_peer_gone_and_the_listener_goes_on() {
    device();
    in_time("an abandoned request", || {
        let listening = Listening::new();
        let abandoned = |prepare: bool| {
            let client = End::connecting(listening.addr());
            let request = listening.request();
            let parts = prepare.then(|| Parts::of_request(&request));
            drop(client);
            (request, parts)
        };
        let (to_create, _) = abandoned(false);
        let (to_accept, _parts) = abandoned(true);
        let (to_reject, _) = abandoned(false);
        let (to_drop, _) = abandoned(false);
        until_clients_are_gone(&listening);

        let error = Parts::try_of_request(&to_create).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        assert_eq!(error.op(), "rdma_create_qp");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(error.peer_addr(), to_create.peer_addr());
        assert!(error.peer_addr().is_some());
        drop(to_create);

        let failed = to_accept.accept().unwrap_err();
        let error = failed.error();
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        assert_eq!(error.op(), "rdma_accept");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(failed.into_inner().is_none(), "nobody is left to answer");

        to_reject.reject(b"too late").unwrap();
        drop(to_drop);

        let (mut client, mut server) = pair(&listening);
        message(&mut client, &mut server, b"the listener goes on");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_blocking_listener_goes_on_after_a_client_that_is_gone() {
    device();
    in_time("a blocking listener", || {
        let listener = Listener::bind(common::any_port()).unwrap();
        let client = End::connecting(listener.local_addr());
        let request = listener.request().unwrap();
        drop(client);
        // Whether the client's going is known already decides which of two errors it is.
        let options = Options::new().timeout(Duration::from_secs(5));
        let error = request.accept_with(&options).map(drop).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::PeerGone | ErrorKind::Rejected),
            "{error}"
        );

        let addr = listener.local_addr();
        let client = thread::spawn(move || {
            let mut connection = Connection::connect(addr).unwrap();
            connection.send(b"still there?").unwrap();
            connection.close().unwrap();
        });
        let mut connection = listener.accept().unwrap();
        let message = connection.recv().unwrap().unwrap();
        assert_eq!(&message[..], b"still there?");
        client.join().unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_depth_above_the_devices_is_refused_and_the_id_stays_usable() {
    device();
    in_time("depths", || {
        let listening = Listening::new();
        let client = End::client(listening.addr());
        let limits = *client.id.context().unwrap().limits();
        assert_eq!(limits.max_qp_rd_atom(), u32::from(RXE_DEPTH));
        assert_eq!(limits.max_qp_init_rd_atom(), u32::from(RXE_DEPTH));
        for above in [129, 255, 256, 300, u32::MAX] {
            let param = ConnParam::new().responder_resources(above);
            let error = client.id.connect(param).unwrap_err();
            assert_too_large(
                &error,
                "rdma_connect",
                "responder_resources",
                above.into(),
                128,
            );
            let param = ConnParam::new().initiator_depth(above);
            let error = client.id.connect(param).unwrap_err();
            assert_too_large(&error, "rdma_connect", "initiator_depth", above.into(), 128);
        }
        client.id.connect(ConnParam::new()).unwrap();

        let request = listening.request();
        let mut parts = Parts::of_request(&request);
        let param = ConnParam::new().responder_resources(129);
        let failed = request.accept_with(&param).unwrap_err();
        assert_too_large(
            failed.error(),
            "rdma_accept",
            "responder_resources",
            129,
            128,
        );
        let request = failed.into_inner().expect("the peer was not answered");
        let param = ConnParam::new().initiator_depth(129);
        let failed = request.accept_with(&param).unwrap_err();
        assert_too_large(failed.error(), "rdma_accept", "initiator_depth", 129, 128);
        let request = failed.into_inner().expect("the peer was not answered");
        parts.post_recv(0);
        let param = ConnParam::new()
            .responder_resources(128)
            .initiator_depth(128);
        let id = request.accept_with(&param).unwrap();
        let negotiated = established(&client.channel).negotiated();
        assert_eq!(
            (negotiated.responder_resources, negotiated.initiator_depth),
            (128, 128)
        );
        let negotiated = id.negotiated().unwrap();
        assert_eq!(
            (negotiated.responder_resources, negotiated.initiator_depth),
            (128, 128)
        );
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_is_not_set_is_as_much_as_the_device_allows() {
    device();
    in_time("default depths", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let request = listening.request();
        let offer = request.offer();
        assert_eq!(offer.responder_resources(), RXE_DEPTH);
        assert_eq!(offer.initiator_depth(), RXE_DEPTH);
        assert_eq!(offer.rnr_retry(), RnrRetry::FOREVER);
        assert_eq!(offer.retry_count(), RetryCount::default());
        assert!(!offer.flow_control());
        assert_eq!(offer.qp_num(), client.parts.qp.qp_num());
        drop(request);
        rejected(&client.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn depths_are_zero_only_where_zero_was_asked_for() {
    device();
    in_time("depth 0", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let none = ConnParam::new().responder_resources(0).initiator_depth(0);
        let server = End::accept(listening.request(), &none);
        let negotiated = established(&client.channel).negotiated();
        assert_eq!(negotiated.responder_resources, 0);
        assert_eq!(negotiated.initiator_depth, 0);
        assert_eq!(client.id.negotiated(), Some(negotiated));
        assert_eq!(server.id.negotiated(), Some(negotiated));
        assert_eq!(qp_attr(&client.parts.qp).max_rd_atomic, 0);

        let client = End::connecting(listening.addr());
        let server = End::accept(listening.request(), &ConnParam::new());
        let negotiated = established(&client.channel).negotiated();
        assert_eq!(negotiated.responder_resources, RXE_DEPTH);
        assert_eq!(negotiated.initiator_depth, RXE_DEPTH);
        assert_eq!(server.id.negotiated(), Some(negotiated));
        assert_eq!(qp_attr(&client.parts.qp).max_rd_atomic, RXE_DEPTH);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_offer_is_turned_round_and_the_default_takes_it() {
    device();
    in_time("unequal depths", || {
        let listening = Listening::new();
        let client = End::client(listening.addr());
        let param = ConnParam::new()
            .responder_resources(5)
            .initiator_depth(3)
            .flow_control(true);
        client.id.connect(param).unwrap();
        let request = listening.request();
        assert_eq!(request.offer().responder_resources(), 3);
        assert_eq!(request.offer().initiator_depth(), 5);
        assert!(request.offer().flow_control());

        let parts = Parts::of_request(&request);
        let id = request.accept().unwrap();
        let answer = established(&client.channel);
        let seen = answer.negotiated();
        assert_eq!((seen.responder_resources, seen.initiator_depth), (5, 3));
        assert_eq!(answer.private_data(), [0; 196]);
        // The passive side's event carries nothing: it is what accept was given.
        let passive = established(&listening.channel);
        let carried = passive.negotiated();
        assert_eq!(
            (carried.responder_resources, carried.initiator_depth),
            (0, 0)
        );
        let seen = id.negotiated().unwrap();
        assert_eq!((seen.responder_resources, seen.initiator_depth), (3, 5));

        // rxe rounds both up to powers of two.
        let client = qp_attr(&client.parts.qp);
        assert!(client.max_rd_atomic >= 3 && client.max_dest_rd_atomic >= 5);
        assert!(client.max_rd_atomic <= 4 && client.max_dest_rd_atomic <= 8);
        let server = qp_attr(&parts.qp);
        assert!(server.max_rd_atomic >= 5 && server.max_dest_rd_atomic >= 3);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn more_than_the_offer_only_where_the_page_prefers_it() {
    device();
    in_time("more than the offer", || {
        let listening = Listening::new();
        let client = End::client(listening.addr());
        let param = ConnParam::new().responder_resources(1).initiator_depth(1);
        client.id.connect(param).unwrap();
        let request = listening.request();
        let parts = Parts::of_request(&request);
        let param = ConnParam::new().initiator_depth(2);
        let failed = request.accept_with(&param).unwrap_err();
        assert_too_large(failed.error(), "rdma_accept", "initiator_depth", 2, 1);
        let text = failed.error().to_string();
        assert!(text.contains("the peer's offer is the limit"), "{text}");

        let request = failed.into_inner().expect("the peer was not answered");
        let param = ConnParam::new().responder_resources(16).initiator_depth(1);
        let id = request.accept_with(&param).unwrap();
        let seen = established(&client.channel).negotiated();
        assert_eq!((seen.responder_resources, seen.initiator_depth), (1, 16));
        let seen = id.negotiated().unwrap();
        assert_eq!((seen.responder_resources, seen.initiator_depth), (16, 1));
        assert_eq!(qp_attr(&parts.qp).max_rd_atomic, 1);
        assert_eq!(qp_attr(&parts.qp).max_dest_rd_atomic, 16);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn accept_without_a_queue_pair_is_an_error_that_keeps_the_request() {
    device();
    in_time("accept without a queue pair", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let failed = listening.request().accept().unwrap_err();
        assert_state(failed.error(), "rdma_accept", "a queue pair on the request");
        let request = failed.into_inner().expect("the peer was not answered");

        // One that was made and destroyed again is none.
        drop(Parts::of_request(&request));
        let failed = request.accept_with(&ConnParam::new()).unwrap_err();
        assert_state(failed.error(), "rdma_accept", "there is none");
        let request = failed.into_inner().expect("the peer was not answered");
        let failed = request.accept_from(|_| ConnParam::new()).unwrap_err();
        assert_state(failed.error(), "rdma_accept", "there is none");

        let request = failed.into_inner().expect("the peer was not answered");
        let _parts = Parts::of_request(&request);
        let id = request.accept().unwrap();
        established(&client.channel);
        assert_eq!(id.negotiated().unwrap().responder_resources, RXE_DEPTH);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn without_rnr_retry_a_late_receive_ends_the_connection() {
    device();
    in_time("RNR retry", || {
        let listening = Listening::new();
        // The value that counts for the client's sends is the one that the server announces.
        let mut client = End::connecting(listening.addr());
        let never = ConnParam::new().rnr_retry(RnrRetry::NEVER);
        let server = End::accept(listening.request(), &never);
        established(&client.channel);
        established(&server.channel);
        client.parts.send(b"too early", 3);
        let done = client.parts.completion();
        assert_eq!(done, Done::Sent(Status::RNR_RETRY_EXCEEDED, 3));
        assert_eq!(Status::RNR_RETRY_EXCEEDED.as_raw(), 13);
        client.parts.send(b"and no more", 4);
        let done = client.parts.completion();
        assert_eq!(done, Done::Sent(Status::FLUSHED, 4));

        let (mut client, mut server) = pair(&listening);
        client.parts.send(b"waits", 5);
        client.parts.no_completion();
        server.parts.post_recv(6);
        let done = server.parts.completion();
        assert_eq!(done, Done::Received(Status::SUCCESS, 6, b"waits".to_vec()));
        let done = client.parts.completion();
        assert_eq!(done, Done::Sent(Status::SUCCESS, 5));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_peer_sees_the_rnr_retry_that_was_set() {
    device();
    in_time("RNR retry in the offer", || {
        let listening = Listening::new();
        for retry in [
            RnrRetry::NEVER,
            RnrRetry::times(1).unwrap(),
            RnrRetry::times(6).unwrap(),
            RnrRetry::FOREVER,
        ] {
            let client = End::client(listening.addr());
            let param = ConnParam::new().rnr_retry(retry);
            client.id.connect(param).unwrap();
            assert_eq!(listening.request().offer().rnr_retry(), retry);
            rejected(&client.channel);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_accept_that_fails_in_the_library_is_our_fault_and_rejects_the_peer() {
    device();
    in_time("a failing accept", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let request = listening.request();
        let mut parts = Parts::of_request(&request);
        // A queue pair in its error state cannot be made ready: EINVAL, although the peer is there.
        parts.qp.to_error().unwrap();
        let (local, peer) = (request.local_addr(), request.peer_addr());
        let failed = request.accept().unwrap_err();
        let error = failed.error();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.op(), "rdma_accept");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        // The text names call, addresses and errno.
        assert_eq!(
            error.to_string(),
            format!(
                "rdma_accept (local {}, peer {}): Invalid argument (os error 22)",
                local.unwrap(),
                peer.unwrap()
            )
        );
        assert!(failed.into_inner().is_none(), "the call was made");
        drop(parts);
        let rejection = rejected(&client.channel);
        assert_eq!(rejection.reason(), RejectReason::CONSUMER_DEFINED);
        assert_eq!(rejection.reason().as_raw(), 28);
        pair(&listening);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_create_qp_that_fails_keeps_the_request_and_its_end_rejects() {
    device();
    in_time("a failing create_qp", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let request = listening.request();
        let context = request.context().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(8).unwrap();
        let limit = context.limits().max_qp_wr();
        let init = QueuePairInit::new(&cq.handle()).max_send_wr(limit + 1);
        let error = request.create_qp(&pd, &init).unwrap_err();
        let value = u64::from(limit) + 1;
        assert_too_large(
            &error,
            "rdma_create_qp",
            "max_send_wr",
            value,
            u64::from(limit),
        );
        quiet(&client.channel);
        drop(request);
        assert_eq!(rejected(&client.channel).reason().as_raw(), 28);

        let listener = Listener::bind(common::any_port()).unwrap();
        let client = End::connecting(listener.local_addr());
        let options = Options::new().queue_depth(limit + 1);
        let request = listener.request().unwrap();
        let error = request.accept_with(&options).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(rejected(&client.channel).reason().as_raw(), 28);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_events_own_values_send_the_peers_data_back() {
    device();
    in_time("the event's own values", || {
        let listening = Listening::new();
        let client = End::client(listening.addr());
        let param = ConnParam::new().private_data(&b"echo"[..]);
        client.id.connect(param).unwrap();
        let request = listening.request();
        let _parts = Parts::of_request(&request);
        let id = request
            .accept_from(|offer| {
                ConnParam::new()
                    .private_data(offer.private_data())
                    .responder_resources(offer.responder_resources().into())
                    .initiator_depth(offer.initiator_depth().into())
            })
            .unwrap();
        let answer = established(&client.channel);
        assert_eq!(answer.private_data().len(), 196);
        assert!(answer.private_data().starts_with(b"echo\0"));
        established(&listening.channel);
        drop(id);
    });
}
