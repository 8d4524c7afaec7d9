//! Datagrams on a real device: address handles and queue pairs.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use common::datagram::{DEPTH, End, SIZE, context, own_index};
use common::{PATIENCE, any_port, device};
use rdmacm::{
    AddressVector, CmId, Completion, DatagramInit, DatagramPair, DatagramWork, ErrorKind,
    EventChannel, EventKind, Gid, Inline, QueuePairInit, Status,
};

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_handle_outlives_what_it_was_made_of() {
    device();
    let context = context();
    let pd = context.alloc_pd().expect("a domain");
    let there = Gid::from(IpAddr::from([10, 9, 0, 77]));
    let address = AddressVector::global(1, there, own_index(&context)).with_traffic_class(0x20);
    let ah = pd.create_ah(&address).expect("create_ah");
    assert_eq!(ah.protection_domain(), &pd);
    let clone = ah.clone();
    assert_eq!(clone.as_raw(), ah.as_raw());
    drop((context, pd, ah));
    assert_eq!(clone.address().dgid(), Some(there));
    assert_eq!(clone.address().traffic_class(), 0x20);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_that_leads_nowhere_says_why() {
    device();
    let context = context();
    let pd = context.alloc_pd().expect("a domain");
    let there = Gid::from(any_port().ip());
    let refused = |address: AddressVector| pd.create_ah(&address).map(drop).unwrap_err();

    let error = refused(AddressVector::local(1, 5));
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("only a GID"), "{error}");
    let error = refused(AddressVector::global(2, there, 0));
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("port"), "{error}");
    let unused = (0..=255_u8).find(|&index| context.gid(1, index.into()).is_err());
    let error = refused(AddressVector::global(
        1,
        there,
        unused.expect("a free entry"),
    ));
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
}

/// That the look-up's answer and the address by hand are the same.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_by_hand_is_the_one_that_a_look_up_gives() {
    device();
    let server = EventChannel::new().expect("a channel");
    let listener = CmId::new_datagram(&server).expect("an id");
    listener.bind_addr(any_port()).expect("bind");
    listener.listen(0).expect("listen");
    let addr: SocketAddr = listener.local_addr().expect("an address");
    let client = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&client).expect("an id");
    common::cm::route(&id, &client, None, addr);
    id.look_up(b"").expect("look_up");
    match common::cm::event(&server).kind {
        EventKind::LookupRequest(request) => request.accept(7, b"").expect("accept"),
        other => panic!("not a look-up: {other:?}"),
    }
    let EventKind::LookedUp(destination) = common::cm::event(&client).kind else {
        panic!("no destination");
    };
    let context = id.context().expect("a device");
    let by_hand = AddressVector::global(1, addr.ip().into(), own_index(&context));
    let looked_up = destination.address();
    assert_eq!(looked_up.dgid(), by_hand.dgid());
    assert_eq!(looked_up.port_num(), by_hand.port_num());
    assert_eq!(looked_up.sgid_index(), by_hand.sgid_index());
    assert_eq!(looked_up.hop_limit(), by_hand.hop_limit());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_datagram_says_who_has_sent_it_and_is_answered() {
    device();
    let context = context();
    let (mut asking, mut answering) = (
        End::by_hand(&context, 0x1111),
        End::by_hand(&context, 0x2222),
    );
    let to = asking.peer_to(&answering, 0x2222);
    let question = asking.buf(b"what time is it?");
    asking.pair.send.send(to, question, 7).expect("send");
    let own = Gid::from(any_port().ip());
    let (from, src_qp) = answering.message(|message| {
        assert_eq!(message.payload(), b"what time is it?");
        assert_eq!(message.imm(), None);
        let grh = message.grh().expect("RoCE has a header");
        assert_eq!((grh.source(), grh.destination()), (own, own));
        assert!(grh.is_ipv4());
        assert!(!grh.is_multicast());
        assert_eq!(grh.hop_limit(), 64);
        (message.sender().expect("a sender"), message.src_qp())
    });
    assert_eq!(src_qp, asking.pair.qp_num());
    assert_eq!(from.dgid(), Some(own));
    assert_eq!(from.sgid_index(), own_index(&context));
    assert_eq!(from.port_num(), 1);
    let ah = answering.pd.create_ah(&from).expect("create_ah");
    let back = answering.pair.send.add_peer(&ah, src_qp, 0x1111).unwrap();
    drop(ah);
    let work = DatagramWork::send_with_imm(back, 0xfeed);
    answering.pair.send.post(work, Inline(b"late"), 1).unwrap();
    asking.message(|message| {
        assert_eq!(message.payload(), b"late");
        assert_eq!(message.imm(), Some(0xfeed));
    });
    asking.flush();
    asking.close();
    answering.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_is_sent_back_in_the_buffer_that_it_came_in() {
    device();
    let context = context();
    let (mut here, mut there) = (End::by_hand(&context, 5), End::by_hand(&context, 5));
    let to = here.peer_to(&there, 5);
    let back = there.peer_to(&here, 5);
    let buf = here.buf(b"ping");
    here.pair.send.send(to, buf, 0).expect("send");
    let start = Instant::now();
    let mut message = loop {
        assert!(start.elapsed() < PATIENCE, "no message");
        if let Some(Completion::Datagram(message)) = there.cq.poll().expect("poll") {
            break message.into_buf();
        }
    };
    assert_eq!(&message[..], b"ping");
    assert_eq!(message.capacity(), SIZE - 40);
    message[1] = b'o';
    there
        .pair
        .send
        .post(DatagramWork::send(back), message, 0)
        .expect("send");
    assert_eq!(here.payload(), b"pong");
    here.close();
    there.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn pieces_inline_data_and_unsignalled_sends_arrive_in_order() {
    device();
    let context = context();
    let (mut here, mut there) = (End::by_hand(&context, 5), End::by_hand(&context, 5));
    let to = here.peer_to(&there, 5);
    let work = DatagramWork::send(to);
    let bufs = [here.buf(b"two "), here.buf(b"pieces")];
    here.pair.send.post(work, bufs, 1).expect("pieces");
    let buf = here.buf(b"unsignalled");
    here.pair
        .send
        .post(work.unsignaled(), buf, 2)
        .expect("unsignalled");
    here.pair
        .send
        .post(work.unsignaled(), Inline(&[9; 64]), 3)
        .expect("inline");
    let too_long = here
        .pair
        .send
        .post(work, Inline(&[9; 65]), 4)
        .map_err(|refused| refused.error().kind());
    assert_eq!(too_long, Err(ErrorKind::TooLarge));
    assert_eq!(there.payload(), b"two pieces");
    assert_eq!(there.payload(), b"unsignalled");
    assert_eq!(there.payload(), [9; 64]);
    // What is unsignalled comes back with the end, too.
    here.close();
    there.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_fits_the_mtu_and_a_longer_one_is_refused() {
    device();
    let context = context();
    let mtu = context.port(1).unwrap().active_mtu().bytes().unwrap();
    let (mut here, mut there) = (End::by_hand(&context, 5), End::by_hand(&context, 5));
    assert_eq!(here.pair.send.max_message_len(), mtu);
    let to = here.peer_to(&there, 5);
    let whole: Vec<u8> = (0..mtu).map(|number| number.to_le_bytes()[0]).collect();
    let buf = here.buf(&whole);
    here.pair.send.send(to, buf, 0).expect("send");
    assert_eq!(there.payload(), whole);
    let buf = here.buf(&[whole, vec![1]].concat());
    let (error, buf) = here.pair.send.send(to, buf, 0).unwrap_err().into_parts();
    let length = u64::from(mtu);
    common::cm::assert_too_large(
        &error,
        "ibv_post_send",
        "length of the message",
        length + 1,
        length,
    );
    assert_eq!(buf.expect("it comes back").len() as u64, length + 1);
    there.silent();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_receive_has_room_for_the_header() {
    device();
    let context = context();
    let mut end = End::by_hand(&context, 5);
    let small = end.pd.pool(1, 40).expect("a pool");
    let buf = small.take().expect("a buffer");
    let (error, buf) = end.pair.recv.post(buf, 0).unwrap_err().into_parts();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("40 bytes"), "{error}");
    assert_eq!(buf.expect("it comes back").capacity(), 40);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_with_another_key_is_lost() {
    device();
    let context = context();
    let (mut here, mut there) = (End::by_hand(&context, 5), End::by_hand(&context, 6));
    let wrong = here.peer_to(&there, 5);
    let right = here.peer_to(&there, 6);
    for (to, content) in [(wrong, b"lost"), (right, b"here")] {
        let buf = here.buf(content);
        here.pair.send.send(to, buf, 0).expect("send");
    }
    assert_eq!(there.payload(), b"here");
    there.silent();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_peer_is_its_queues_and_gone_when_removed() {
    device();
    let context = context();
    let (mut here, mut there) = (End::by_hand(&context, 5), End::by_hand(&context, 5));
    let to = here.peer_to(&there, 5);
    let buf = here.buf(b"last");
    here.pair.send.send(to, buf, 0).expect("send");
    // The send that is posted still arrives.
    here.pair.send.remove_peer(to).expect("remove");
    assert_eq!(there.payload(), b"last");
    let state = |error: &rdmacm::Error| {
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        assert!(error.to_string().contains("another queue's"), "{error}");
    };
    state(&here.pair.send.remove_peer(to).unwrap_err());
    let again = here.peer_to(&there, 5);
    let buf = here.buf(b"x");
    state(here.pair.send.send(to, buf, 0).unwrap_err().error());
    let buf = there.buf(b"x");
    state(there.pair.send.send(again, buf, 0).unwrap_err().error());

    let elsewhere = context.alloc_pd().expect("a domain");
    let index = own_index(&context);
    let address = AddressVector::global(1, any_port().ip().into(), index);
    let ah = elsewhere.create_ah(&address).expect("create_ah");
    let error = here.pair.send.add_peer(&ah, 1, 5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    here.close();
    there.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn halves_end_in_any_order_with_sends_posted() {
    device();
    let context = context();
    for order in 0..4 {
        let (mut here, there) = (End::by_hand(&context, 5), End::by_hand(&context, 5));
        let to = here.peer_to(&there, 5);
        for _ in 0..4 {
            let buf = here.buf(b"on its way");
            here.pair.send.send(to, buf, 0).expect("send");
        }
        let End { pair, cq, pool, pd } = here;
        let DatagramPair { send, recv } = pair;
        match order {
            0 => drop((send, recv, cq, pool, pd)),
            1 => drop((recv, send, pd, pool, cq)),
            2 => drop((pd, pool, cq, recv, send)),
            _ => DatagramPair { send, recv }.destroy().expect("destroy"),
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_pair_of_an_id_is_found_by_a_look_up() {
    device();
    let server_channel = EventChannel::new().expect("a channel");
    let listener = CmId::new_datagram(&server_channel).expect("an id");
    listener.bind_addr(any_port()).expect("bind");
    listener.listen(0).expect("listen");
    let addr = listener.local_addr().expect("an address");
    let context = listener.context().expect("a device");
    let mut server = End::new(&context, |pd, init| listener.create_datagram_qp(pd, init));

    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    common::cm::route(&id, &channel, None, addr);
    let mut client = End::new(&context, |pd, init| id.create_datagram_qp(pd, init));
    let init = QueuePairInit::new(&client.cq.handle());
    let error = id.create_datagram_qp(&client.pd, &init).unwrap_err();
    common::cm::assert_state(&error, "rdma_create_qp", "there is one already");
    id.look_up(b"").expect("look_up");
    match common::cm::event(&server_channel).kind {
        EventKind::LookupRequest(request) => {
            request.accept(server.pair.qp_num(), b"").expect("accept")
        }
        other => panic!("not a look-up: {other:?}"),
    }
    let EventKind::LookedUp(there) = common::cm::event(&channel).kind else {
        panic!("no destination");
    };
    let ah = client.pd.create_ah(&there.address()).expect("create_ah");
    let to = client
        .pair
        .send
        .add_peer(&ah, there.qp_num(), there.qkey())
        .unwrap();
    let buf = client.buf(b"hello");
    client.pair.send.send(to, buf, 0).expect("send");
    assert_eq!(server.payload(), b"hello");
    // The ids may go first.
    drop((id, channel, listener, server_channel));
    let buf = client.buf(b"still");
    client.pair.send.send(to, buf, 0).expect("send");
    assert_eq!(server.payload(), b"still");
    client.close();
    server.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_that_is_longer_than_its_receive_ends_the_pair() {
    device();
    let context = context();
    let mut here = End::by_hand(&context, 5);
    let pd = context.alloc_pd().expect("a domain");
    let mut cq = context.create_cq(2 * DEPTH).expect("a queue");
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH);
    let mut there = pd
        .create_datagram_qp(&init, DatagramInit::new(1, 5))
        .expect("a queue pair");
    let small = pd.pool(2, 60).expect("a pool");
    for user in [3, 4] {
        let buf = small.take().expect("a buffer");
        there.recv.post(buf, user).expect("a receive");
    }
    let address = AddressVector::global(1, any_port().ip().into(), own_index(&context));
    let ah = here.pd.create_ah(&address).expect("create_ah");
    let to = here
        .pair
        .send
        .add_peer(&ah, there.qp_num(), 5)
        .expect("a peer");
    let buf = here.buf(&[7; 100]);
    here.pair.send.send(to, buf, 0).expect("send");
    here.flush();
    // On soft-RoCE; others say LOCAL_LENGTH for the first.
    for (user, status) in [(3, Status::LOCAL_QP_OPERATION), (4, Status::FLUSHED)] {
        let start = Instant::now();
        let done = loop {
            assert!(start.elapsed() < PATIENCE, "the receive has not ended");
            if let Some(Completion::Datagram(done)) = cq.poll().expect("poll") {
                break done;
            }
        };
        assert_eq!((done.user(), done.status()), (user, status));
        assert_eq!(done.check().unwrap_err().kind(), ErrorKind::WorkFailed);
        assert_eq!(done.sender().unwrap_err().kind(), ErrorKind::WorkFailed);
        assert_eq!(done.payload(), b"");
        assert_eq!(done.grh(), None);
        assert_eq!(done.src_qp(), 0);
    }
    here.close();
}
