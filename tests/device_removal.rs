//! An RDMA device that is removed while it is in use: the second soft-RoCE device, which comes back afterwards.

mod common;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use common::cm::{End, Listening, Parts, RESOLVE, established, event, message, pair, quiet};
use common::removal::{DEVICE, Removal};
use common::{ADDR_OF_SECOND, device, in_time};
use rdmacm::{CmId, ConnParam, Connection, ErrorKind, EventChannel, EventKind, Listener};

fn addr(port: u16) -> SocketAddr {
    SocketAddr::new(ADDR_OF_SECOND.parse().expect("an address"), port)
}

/// Reads events until the removal is told.
fn removed(channel: &EventChannel) {
    loop {
        match event(channel).kind {
            EventKind::DeviceRemoval => return,
            EventKind::Disconnected(_) => {}
            other => panic!("not DEVICE_REMOVAL: {other:?}"),
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn every_id_on_the_device_is_told_and_its_end_lets_the_device_go() {
    device();
    in_time("a removal", || {
        let wildcard = Listening::at(SocketAddr::new([0, 0, 0, 0].into(), 0), 0);
        let listening = Listening::at(addr(0), 0);
        let (mut client, mut server) = pair(&listening);
        message(&mut client, &mut server, b"before");
        let waiting = End::connecting(listening.addr());
        let request = listening.request();
        let request_parts = Parts::of_request(&request);

        let mut removal = Removal::start();
        removed(&client.channel);
        removed(&server.channel);
        removed(&listening.channel);
        removed(&waiting.channel);
        quiet(&wildcard.channel);
        assert!(!removal.is_over(), "the ids are still there");

        for id in [&client.id, &server.id] {
            let error = id.disconnect().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
            assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
        }
        let error = client.id.resolve_route(RESOLVE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
        let error = listening.id.listen(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
        // A request that was not accepted gets no event; its accept is told.
        let failed = request.accept().unwrap_err();
        assert_eq!(
            failed.error().kind(),
            ErrorKind::DeviceRemoved,
            "{}",
            failed.error()
        );
        assert_eq!(failed.error().raw_os_error(), Some(libc::ENXIO));
        assert!(failed.into_inner().is_none());

        drop((client, server, waiting, request_parts, listening));
        removal.must_end("the removal ends with the last object");
        drop(removal);

        // The wildcard listener has outlived it, and serves the device that is new.
        let client = End::connecting(addr(wildcard.addr().port()));
        let request = wildcard.request();
        assert_eq!(request.context().unwrap().name(), DEVICE);
        let _server = End::accept(request, &ConnParam::new());
        established(&client.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_outlives_its_id_may_be_dropped_after_the_removal() {
    device();
    in_time("objects without ids", || {
        let listening = Listening::at(addr(0), 0);
        let (client, server) = pair(&listening);
        let context = client.id.context().unwrap();
        let End { parts, id, channel } = client;
        let Parts { qp, cq, pool, pd } = parts;
        let buf = pool.take().unwrap();
        let mut removal = Removal::start();
        removed(&channel);
        removed(&server.channel);
        removed(&listening.channel);
        drop((server, listening, qp, id, channel));
        thread::sleep(Duration::from_millis(500));
        assert!(
            !removal.is_over(),
            "domain, queue and memory are still there"
        );
        // The memory is still the program's.
        assert!(buf.iter().all(|&byte| byte == 0));
        drop((context, pd, cq, pool));
        drop(buf);
        removal.must_end("the removal ends with the last object");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_blocking_layer_is_told() {
    device();
    in_time("a removal under blocking calls", || {
        let listener = Listener::bind(addr(0)).unwrap();
        let at = listener.local_addr();
        let client = thread::spawn(move || {
            let mut connection = Connection::connect(at).unwrap();
            connection.recv().map(|message| message.is_some())
        });
        let mut connection = listener.accept().unwrap();
        let mut removal = Removal::start();
        let error = listener.request().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
        assert_eq!(error.local_addr(), Some(at));
        // A receive may see the flushed queue first: then the connection has ended, which is true as well.
        let told = |result: rdmacm::Result<bool>| match result {
            Ok(message) => assert!(!message, "there was no message"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}"),
        };
        told(connection.recv().map(|message| message.is_some()));
        told(client.join().unwrap());
        drop((connection, listener));
        removal.must_end("the removal ends with the last connection");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_id_alone_that_has_not_read_its_removal_lets_the_device_go() {
    device();
    in_time("an unread removal", || {
        for datagram in [false, true] {
            let channel = EventChannel::new().unwrap();
            let id = if datagram {
                CmId::new_datagram(&channel)
            } else {
                CmId::new(&channel)
            };
            let id = id.unwrap();
            id.bind_addr(addr(0)).unwrap();
            let mut removal = Removal::start();
            thread::sleep(Duration::from_millis(500));
            assert!(!removal.is_over(), "the id is still there");
            drop(id);
            removal.must_end("the removal ends with the id");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ids_whose_removal_nobody_has_read_let_the_device_go_too() {
    device();
    in_time("unread removals", || {
        let listening = Listening::at(addr(0), 0);
        let (client, server) = pair(&listening);
        let mut removal = Removal::start();
        thread::sleep(Duration::from_millis(500));
        assert!(!removal.is_over());
        drop((client, server, listening));
        removal.must_end("the removal ends with the last object");
    });
}
