//! Messages and the end of connections on soft-iWARP (siw), where they differ from soft-RoCE, and whole connections over it.

mod common;

use std::process::Command;
use std::thread;
use std::time::Instant;

use common::cm::{Done, End, disconnected, established, message, pair, quiet};
use common::iwarp::{ADDR, any_port, device, listening};
use common::{PATIENCE, Server, eventually, example, in_time, run};
use rdmacm::{ConnParam, Connection, Connector, ErrorKind, Listener, Options, RnrRetry, Status};

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_send_without_a_receive_is_sent_well_and_ends_the_connection() {
    device();
    in_time("a late receive", || {
        let listening = listening();
        // Not even "for ever" makes a send wait: iWARP knows no such thing.
        for retry in [RnrRetry::NEVER, RnrRetry::FOREVER] {
            let mut client = End::client(listening.addr());
            client
                .id
                .connect(ConnParam::new().rnr_retry(retry))
                .unwrap();
            let server = End::accept(listening.request(), &ConnParam::new().rnr_retry(retry));
            established(&client.channel);
            established(&server.channel);
            client.parts.send(b"too early", 7);
            assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, 7));
            disconnected(&server.channel);
            disconnected(&client.channel);
        }
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn disconnect_is_no_error_whenever_it_is_called() {
    device();
    in_time("disconnecting again", || {
        let listening = listening();
        let idle = End::client(listening.addr());
        idle.id.disconnect().unwrap();
        let (client, server) = pair(&listening);
        for _ in 0..3 {
            client.id.disconnect().unwrap();
        }
        disconnected(&client.channel);
        disconnected(&server.channel);
        client.id.disconnect().unwrap();
        server.id.disconnect().unwrap();
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_queue_pair_without_sends_under_way_is_closed_at_once() {
    device();
    in_time("closing", || {
        let listening = listening();
        let (mut client, mut server) = pair(&listening);
        message(&mut client, &mut server, b"a send that has completed");
        client.parts.post_recv(3);
        for mut end in [client, server] {
            let start = Instant::now();
            end.parts.qp.close(&mut end.parts.cq, PATIENCE).unwrap();
            // It would take all the patience to wait for a send that is posted now: siw does not flush it.
            assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        }
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn the_side_that_disconnects_hears_of_it_without_the_other() {
    device();
    in_time("one side disconnects", || {
        let listening = listening();
        let (client, server) = pair(&listening);
        client.id.disconnect().unwrap();
        disconnected(&client.channel);
        disconnected(&server.channel);
        let (client, server) = pair(&listening);
        server.id.disconnect().unwrap();
        disconnected(&server.channel);
        disconnected(&client.channel);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn nothing_comes_after_disconnected() {
    device();
    in_time("the time after the end", || {
        let (client, server) = pair(&listening());
        client.id.disconnect().unwrap();
        disconnected(&client.channel);
        disconnected(&server.channel);
        // On RoCE TIMEWAIT_EXIT would follow.
        quiet(&client.channel);
        quiet(&server.channel);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn what_is_posted_is_flushed_when_the_connection_ends() {
    device();
    in_time("flushed receives", || {
        let (mut client, mut server) = pair(&listening());
        message(&mut client, &mut server, b"before");
        server.parts.post_recv(1);
        server.parts.post_recv(2);
        client.id.disconnect().unwrap();
        disconnected(&server.channel);
        for user in [1, 2] {
            match server.parts.completion() {
                Done::Received(status, found, _) => {
                    assert_eq!((status, found), (Status::FLUSHED, user));
                }
                other => panic!("not a receive: {other:?}"),
            }
        }
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn whole_connections_carry_messages_both_ways_to_the_end() {
    device();
    in_time("an echo", || {
        let listener = Listener::bind(any_port()).unwrap();
        let addr = listener.local_addr();
        let server = thread::spawn(move || {
            let request = listener.request().unwrap();
            assert_eq!(request.private_data(), b"hello");
            let options = Options::new().private_data("welcome");
            let mut connection = request.accept_with(&options).unwrap();
            let mut count = 0;
            while let Some(message) = connection.recv().unwrap() {
                connection.send_buf(message).unwrap();
                count += 1;
            }
            let error = connection.send(b"too late").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            connection.close().unwrap();
            count
        });
        let connector = Connector::with(Options::new().private_data("hello"));
        let mut connection = connector.connect(addr).unwrap();
        assert_eq!(connection.private_data(), b"welcome");
        for round in 0..200_u32 {
            connection.send(&round.to_le_bytes()).unwrap();
            let back = connection.recv().unwrap().expect("a message");
            assert_eq!(*back, round.to_le_bytes());
        }
        connection.close().unwrap();
        assert_eq!(server.join().unwrap(), 200);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn what_was_sent_before_the_end_is_received() {
    device();
    in_time("the last messages", || {
        for _ in 0..10 {
            let listener = Listener::bind(any_port()).unwrap();
            let addr = listener.local_addr();
            let client = thread::spawn(move || {
                let mut connection = Connection::connect(addr).unwrap();
                for number in 0..8_u8 {
                    connection.send(&[number]).unwrap();
                }
                connection.close().unwrap();
            });
            let mut connection = listener.accept().unwrap();
            client.join().unwrap();
            for number in 0..8_u8 {
                assert_eq!(*connection.recv().unwrap().expect("a message"), [number]);
            }
            assert!(connection.recv().unwrap().is_none());
        }
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn the_examples_talk_to_each_other_and_to_those_in_c() {
    device();
    for _ in 0..3 {
        let mut server = Server::start(example("accept").args([ADDR, "--private-data", "welcome"]));
        assert!(server.line().starts_with("listening on "));
        let client = run(example("connect").args([ADDR, "--private-data", "hello"]));
        let text = String::from_utf8_lossy(&client.stdout);
        assert_eq!(client.status.code(), Some(0), "{client:?}");
        assert!(text.contains("accepted with \"welcome\""), "{text}");
        assert!(text.contains("received 16 bytes"), "{text}");
        let (status, lines) = server.finish();
        assert_eq!(status, Some(0), "{lines:?}");
        for said in ["established", "received 16 bytes", "disconnected"] {
            assert!(lines.iter().any(|line| line == said), "{said}: {lines:?}");
        }

        let mut server = Server::start(example("accept").arg(ADDR));
        assert!(server.line().starts_with("listening on "));
        let client = run(Command::new("rdma_client").args(["-s", ADDR]));
        let text = String::from_utf8_lossy(&client.stdout);
        assert!(text.contains("rdma_client: end 0"), "{client:?}");
        let (status, lines) = server.finish();
        assert_eq!(status, Some(0), "{lines:?}");

        // Its output is buffered when it goes to a pipe, so there is no line to wait for: try until it listens.
        let server = Server::start(Command::new("rdma_server").args(["-s", ADDR]));
        let mut client = None;
        eventually("rdma_server listens", || {
            let output = run(example("connect").arg(ADDR));
            let refused = String::from_utf8_lossy(&output.stderr).contains("os error 111");
            client = Some(output);
            !refused
        });
        let client = client.expect("was run");
        assert_eq!(client.status.code(), Some(0), "{client:?}");
        let (status, lines) = server.finish();
        assert_eq!(status, Some(0), "{lines:?}");
    }
}
