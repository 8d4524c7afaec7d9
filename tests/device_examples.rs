//! The examples beside rdma-core's own `rdma_client` and `rdma_server`, on a real device.

mod common;

use std::process::Command;

use common::{ADDR, ADDR6, Server, descriptors, device, eventually, example, resources, run};

/// How often each pair must work in a row.
const ROUNDS: usize = 20;

/// Runs `client` against a fresh `server` and checks that both end with 0; gives what each printed.
fn pair(mut server: Server, client: &mut Command, ready: &str) -> (Vec<String>, String) {
    let line = server.line();
    assert!(line.starts_with(ready), "the server said {line:?}");
    let output = run(client);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "client: {output:?}");
    let (status, lines) = server.finish();
    assert_eq!(status, Some(0), "server: {lines:?}");
    (lines, text)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn connect_and_accept() {
    device();
    for addr in [ADDR, ADDR6] {
        for round in 0..ROUNDS / 2 {
            let server = Server::start(example("accept").args([addr, "--private-data", "welcome"]));
            let (lines, client) = pair(
                server,
                example("connect").args([addr, "--private-data", "hello"]),
                "listening on ",
            );
            let said = |text: &str| lines.iter().any(|line| line == text);
            assert!(
                lines[0].starts_with("request from "),
                "round {round}: {lines:?}"
            );
            assert!(
                lines[1].starts_with("offered responder_resources "),
                "{lines:?}"
            );
            assert!(said("established"), "round {round}: {lines:?}");
            assert!(said("received 16 bytes"), "round {round}: {lines:?}");
            assert_eq!(
                lines.last().map(String::as_str),
                Some("disconnected"),
                "{lines:?}"
            );
            assert!(client.contains("accepted with \"welcome\""), "{client}");
            assert!(client.contains("received 16 bytes"), "{client}");
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_c_client_against_accept() {
    device();
    for _ in 0..ROUNDS {
        let server = Server::start(example("accept").arg(ADDR));
        let (lines, client) = pair(
            server,
            Command::new("rdma_client").args(["-s", ADDR]),
            "listening on ",
        );
        assert!(
            lines.iter().any(|line| line == "received 16 bytes"),
            "{lines:?}"
        );
        assert!(client.contains("rdma_client: end 0"), "{client}");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn connect_against_the_c_server() {
    device();
    for _ in 0..ROUNDS {
        // Its output is buffered when it goes to a pipe, so there is no line to wait for: try until it listens.
        let server = Server::start(Command::new("rdma_server").args(["-s", ADDR]));
        let mut client = None;
        eventually("rdma_server listens", || {
            let output = run(example("connect").arg(ADDR));
            let error = String::from_utf8_lossy(&output.stderr);
            let absent = error.contains("nobody listens there");
            client = Some(output);
            !absent
        });
        let client = client.expect("was run");
        assert_eq!(client.status.code(), Some(0), "client: {client:?}");
        let text = String::from_utf8_lossy(&client.stdout);
        assert!(text.contains("received 16 bytes"), "{text}");
        let (status, lines) = server.finish();
        assert_eq!(status, Some(0), "server: {lines:?}");
        assert!(
            lines.iter().any(|line| line == "rdma_server: end 0"),
            "{lines:?}"
        );
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn listen_shows_the_private_data_and_rejects() {
    device();
    let mut server = Server::start(example("listen").args([ADDR, "--count", "1"]));
    assert!(server.line().starts_with("listening on "));
    let output = run(example("connect").args([ADDR, "--private-data", "hello"]));
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("the program there said no (reason 28)"),
        "{error}"
    );
    assert!(
        error.contains("the server says: \"this server only listens\""),
        "{error}"
    );
    let (status, lines) = server.finish();
    assert_eq!(status, Some(0));
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("56 bytes of private data: \"hello\\x00")),
        "{lines:?}"
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn one_thread_serves_five_at_a_time() {
    device();
    for server in ["event_loop", "tokio_echo"] {
        serves_five(example(server).args([ADDR, "--count", "5"]));
    }
}

fn serves_five(server: &mut Command) {
    let mut server = Server::start(server);
    assert!(server.line().starts_with("listening on "));
    let clients: Vec<_> = (0..5)
        .map(|_| std::thread::spawn(|| run(example("connect").arg(ADDR))))
        .collect();
    for client in clients {
        let output = client.join().expect("no panic");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("received 16 bytes"), "{text}");
    }
    let (status, lines) = server.finish();
    assert_eq!(status, Some(0), "{lines:?}");
    let gone = lines.iter().filter(|line| line.contains("is gone, "));
    assert_eq!(gone.count(), 5, "{lines:?}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn clients_find_what_others_have_stored() {
    device();
    let mut server = Server::start(example("key_value").args(["serve", ADDR, "--count", "7"]));
    assert!(server.line().starts_with("listening on "));
    let ask = |requests: &[&str]| {
        let output = run(example("key_value").args(["ask", ADDR]).args(requests));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(ask(&["a=1", "b=two=2", "a"]), "\n\n1\n");
    std::thread::scope(|scope| {
        for client in 0..5 {
            scope.spawn(move || {
                let key = format!("key {client}");
                let requests: Vec<_> = (0..20).map(|value| format!("{key}={value}")).collect();
                let requests: Vec<_> = requests.iter().map(String::as_str).collect();
                let before: String = (0..19).map(|value| format!("{value}\n")).collect();
                assert_eq!(ask(&requests), format!("\n{before}"));
            });
        }
    });
    let wanted = "1\n3\ntwo=2\n19\n19\n\n";
    assert_eq!(ask(&["a=3", "a", "b", "key 0", "key 4", "key 5"]), wanted);
    let (status, lines) = server.finish();
    assert_eq!((status, lines.len()), (Some(0), 0), "{lines:?}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn visitors_find_what_the_last_one_left() {
    device();
    let mut server = Server::start(example("one_sided").args(["serve", ADDR]));
    assert!(server.line().starts_with("listening on "));
    for (text, before, left) in [("first", 0, ""), ("second", 1, "first")] {
        let output = run(example("one_sided").args(["visit", ADDR, text]));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let wanted = format!("visitors before: {before}\nthe last one left: {left}\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
    }
    let (status, lines) = server.finish();
    assert_eq!(status, Some(0), "{lines:?}");
    assert_eq!(lines, ["visitor 1: first", "visitor 2: second"]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn datagrams_come_back() {
    device();
    for addr in [ADDR, ADDR6] {
        let mut server = Server::start(example("ud_echo").args([addr, "--count", "4"]));
        assert!(server.line().starts_with("listening on "));
        for texts in [&["one"][..], &["two", "three", "four"]] {
            let output = run(example("ud_echo").arg(addr).args(texts));
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let wanted = format!("{}\n", texts.join("\n"));
            assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
        }
        let (status, lines) = server.finish();
        assert_eq!(status, Some(0), "{lines:?}");
        assert_eq!(lines.len(), 2, "two askers: {lines:?}");
        let from = format!(" at {addr}");
        assert!(lines.iter().all(|line| line.ends_with(&from)), "{lines:?}");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn nothing_is_left_after_a_hundred_connections() {
    device();
    let before = resources();
    let mut server = Server::start(example("accept").args([ADDR, "--count", "102"]));
    assert!(server.line().starts_with("listening on "));
    let at_start = resources();
    assert_ne!(at_start, before, "the listener is to be counted");

    let connect = || {
        let output = run(example("connect").arg(ADDR));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    };
    // librdmacm opens a device once and keeps it: the first connection is not counted.
    connect();
    eventually("the first connection is gone", || resources() == at_start);
    let open = descriptors(server.pid());
    for _ in 0..100 {
        connect();
    }
    eventually(
        "ids, queue pairs, regions and channels are back at the start",
        || resources() == at_start && descriptors(server.pid()) == open,
    );
    assert!(server.is_running(), "it must still accept");
    connect();
    let (status, _) = server.finish();
    assert_eq!(status, Some(0));
    eventually("all is gone with the process", || resources() == before);
}
