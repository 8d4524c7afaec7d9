//! The tools where they fail, beside rdma-core's of the same names: with the same exit statuses, on a real device.

mod common;

use common::interop::STEPS;
use common::tools::{Maker, failing, failing_alike, lines_of, listening, tool};
use common::{ADDR, ADDR6, PlainNetdev, device, run};

/// Runs an example that must fail, and says why in these words.
fn refuses(name: &str, args: &[&str], status: i32, words: &str) {
    let (code, text) = failing(Maker::Rust, name, args);
    assert_eq!(code, Some(status), "{name} {args:?}: {text}");
    assert!(text.contains(words), "{name} {args:?}: {text}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_takes_no_ping_above_its_size() {
    device();
    let server = listening(Maker::Rust, "rping", &["-s", "-a", ADDR]);
    let args = ["-c", "-a", ADDR, "-C", "1", "-S", "65", "-v"];
    let output = run(&mut tool(Maker::C, "rping", &args));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("rdma-ping-"), "{output:?}");
    assert_eq!(server.finish(), (Some(255), Vec::new()));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_ends_as_its_twin_does() {
    device();
    for (args, status) in [
        (&[][..], 22),
        (&["-x"], 22),
        (&["-s", "-S", "22"], 22),
        (&["-s", "-S", "65536"], 22),
        // An address that no device has, and a port where nobody listens.
        (&["-s", "-a", "192.0.2.1"], 255),
        (&["-c", "-a", ADDR, "-p", "9"], 255),
    ] {
        failing_alike("rping", args, status);
    }
    // Without a server.
    refuses("rping", &["-c"], 22, "-a <ADDR>");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ucmatose_ends_as_its_twin_does() {
    device();
    failing_alike("ucmatose", &["-x"], 1);
    // An address that no device has.
    failing_alike("ucmatose", &["-b", "192.0.2.1"], 255);
    // Nobody listens: C's program waits for ever to see end what never began, after it has said the same number.
    refuses("ucmatose", &["-s", ADDR, "-p", "9"], 8, "");
    let no_gids = "GIDs (AF_IB) are not supported";
    refuses("ucmatose", &["-f", "gid"], 1, no_gids);
    refuses("ucmatose", &["-P", "ib"], 1, "not InfiniBand's services");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn udaddy_ends_as_its_twin_does() {
    device();
    for (args, status, words) in [
        (&["-s", ADDR][..], 1, "nobody"),
        (&["-s", ""], 254, "no address for"),
        (&["-Z"], 1, "-Z"),
        // Longer than a packet: both sides find that before they ask.
        (&["-s", ADDR, "-S", "5000"], 234, "5000 bytes do not fit"),
    ] {
        let [text, _] = failing_alike("udaddy", args, status);
        assert!(text.contains(words), "{args:?}: {text}");
    }
    refuses("udaddy", &["-f", "gid"], 1, "AF_IB");
    refuses("udaddy", &["-p", "0x2"], 1, "only 0x111");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn mckey_ends_as_its_twin_does() {
    device();
    // Over IPv6 rxe has no multicast.
    let args = ["-m", "ff0e::1234", "-b", ADDR6];
    for text in failing_alike("mckey", &args, 255) {
        assert!(text.contains("524"), "{text}");
    }
    failing_alike("mckey", &[], 254);
    failing_alike("mckey", &["-Z"], 1);
    failing_alike("mckey", &["-m", "239.9.8.9", "-M", "0"], 1);
    let args = ["-m", "239.9.8.9", "-l"];
    refuses("mckey", &args, 1, "-l is not supported");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn cmtime_ends_as_its_twin_does() {
    device();
    failing_alike("cmtime", &["-Z"], 1);
    // Nobody listens, or no device leads there: the table is printed, and the calls have not failed.
    let plain = PlainNetdev::new();
    let ends = [ADDR, PlainNetdev::PEER]
        .map(|server| [Maker::C, Maker::Rust].map(|maker| (server, maker)));
    for (server, maker) in ends.into_iter().flatten() {
        let args = ["-s", server, "-c", "2", "-p", "7499"];
        let output = run(&mut tool(maker, "cmtime", &args));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let lines = lines_of(&output);
        let told = |line: &&String| line.starts_with("connection ") || line.contains("error");
        assert_eq!(lines.iter().filter(told).count(), 2, "{lines:?}");
        // All rows but the binding's, whatever is in them: of what has not happened the shortest time has no place in its column.
        let rows = STEPS.iter().filter(|step| {
            let is_row = |line: &String| line.starts_with(*step) && line.contains(':');
            lines.iter().any(is_row)
        });
        assert_eq!(rows.count(), STEPS.len() - 1, "{lines:?}");
    }
    drop(plain);
}
