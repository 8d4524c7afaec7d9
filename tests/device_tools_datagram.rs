//! The examples `udaddy` and `mckey` beside rdma-core's, on a real device.

mod common;

use std::process::{Command, Output};
use std::thread;

use common::{ADDR, ADDR6, Server, device, eventually, example, resources, run};

/// A program in C, and the example that has its name.
fn both(name: &str) -> [fn(&str) -> Command; 2] {
    // The machine must have it.
    let output = run(Command::new(name).arg("-Z"));
    assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
    [c, example]
}

fn c(name: &str) -> Command {
    Command::new(name)
}

/// Each with each: servers and clients.
fn pairs(name: &str) -> Vec<(Command, Command)> {
    let [c, rust] = both(name);
    [(rust, c), (c, rust), (rust, rust)]
        .map(|(server, client)| (server(name), client(name)))
        .into()
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether an id listens.
fn is_listening() -> bool {
    let output = run(Command::new("rdma").args(["resource", "show", "cm_id"]));
    String::from_utf8_lossy(&output.stdout).contains("state LISTEN")
}

fn udaddy(addr: &str, options: &[&str]) {
    for (mut server, mut client) in pairs("udaddy") {
        let server = Server::start(server.args(["-b", addr]).args(options));
        eventually("udaddy listens", is_listening);
        let output = run(client.args(["-s", addr]).args(options));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let (status, lines) = server.finish();
        assert_eq!(status, Some(0), "{client:?}: {lines:?}");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn udaddy_and_its_twin_exchange_messages() {
    device();
    let before = resources();
    udaddy(ADDR, &["-c", "3", "-C", "20", "-S", "1000", "-f", "ip"]);
    udaddy(ADDR6, &[]);
    eventually("all is gone with the programs", || resources() == before);
}

/// The status of a program that fails, and what it says.
fn failing(mut command: Command, args: &[&str]) -> (Option<i32>, String) {
    let output = run(command.args(args));
    assert!(!output.status.success(), "{command:?}: {output:?}");
    (output.status.code(), error_of(&output))
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn udaddy_and_its_twin_fail_with_one_status() {
    device();
    let [c, rust] = both("udaddy");
    for (args, says) in [
        (&["-s", ADDR][..], "nobody"),
        (&["-s", ""], "no address for"),
        (&["-Z"], "-Z"),
    ] {
        let (status, text) = failing(rust("udaddy"), args);
        assert_eq!(Some(failing(c("udaddy"), args).0), Some(status), "{args:?}");
        assert!(text.contains(says), "{args:?}: {text}");
    }
    for (args, says) in [
        (&["-f", "gid"][..], "AF_IB"),
        (&["-p", "0x2"], "only 0x111"),
    ] {
        let (status, text) = failing(rust("udaddy"), args);
        assert_eq!(status, Some(1), "{args:?}: {text}");
        assert!(text.contains(says), "{args:?}: {text}");
    }
    // Longer than a packet: both sides find that before they ask.
    let args = ["-s", ADDR, "-S", "5000"];
    let (status, text) = failing(rust("udaddy"), &args);
    assert_eq!(status, failing(c("udaddy"), &args).0);
    assert!(text.contains("5000 bytes do not fit"), "{text}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn mckey_and_its_twin_hear_each_other() {
    device();
    // The programs wait for three seconds, so all run at once, each pair in a group of its own.
    let pairs = pairs("mckey").into_iter().zip(1..);
    let runs: Vec<_> = pairs
        .map(|((mut receiver, mut sender), last)| {
            thread::spawn(move || {
                let group = format!("239.9.8.{last}");
                let args = ["-m", &group, "-b", ADDR, "-c", "2", "-S", "1000"];
                let receiver = Server::start(receiver.args(args));
                let output = run(sender.args(args).args(["-s", "-o"]));
                assert_eq!(output.status.code(), Some(0), "{output:?}");
                let (status, lines) = receiver.finish();
                assert_eq!(status, Some(0), "{sender:?}: {lines:?}");
            })
        })
        .collect();
    for run in runs {
        run.join().expect("no panic");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn mckey_and_its_twin_fail_with_one_status() {
    device();
    let [c, rust] = both("mckey");
    let args = ["-m", "ff0e::1234", "-b", ADDR6];
    let ((in_c, text_of_c), (in_rust, text)) =
        (failing(c("mckey"), &args), failing(rust("mckey"), &args));
    assert_eq!(in_rust, in_c, "{text}");
    for text in [text_of_c, text] {
        assert!(text.contains("524"), "{text}");
    }
    for args in [&[][..], &["-Z"], &["-m", "239.9.8.9", "-M", "0"]] {
        let (status, text) = failing(rust("mckey"), args);
        assert_eq!(status, failing(c("mckey"), args).0, "{args:?}: {text}");
    }
    let (status, text) = failing(rust("mckey"), &["-m", "239.9.8.9", "-l"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("-l is not supported"), "{text}");
}
