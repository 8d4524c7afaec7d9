//! The examples that move data, each side a process of its own, on a real device: what they print is what they did.

mod common;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};

use common::load::Random;
use common::{ADDR, Server, command, device, eventually, example, run};

/// Starts a server and waits until it listens.
fn listening(name: &str, args: &[&str]) -> Server {
    let mut server = Server::start(example(name).args(args));
    let line = server.line();
    assert!(line.starts_with("listening on "), "{name} said {line:?}");
    server
}

/// What a client has printed, which must have ended well.
fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number between two texts of a line.
fn between<'t>(line: &'t str, before: &str, after: &str) -> &'t str {
    let rest = line.split_once(before).map(|(_, rest)| rest);
    let number = rest.and_then(|rest| rest.split_once(after));
    number
        .unwrap_or_else(|| panic!("{line:?} has no {before:?}"))
        .0
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn pingpong_prints_the_best_and_the_median_of_its_rounds() {
    device();
    for size in ["8", "64", "20000"] {
        let server = listening("pingpong", &["serve", ADDR]);
        let args = ["play", ADDR, "--size", size, "--rounds", "100"];
        let text = said(&run(example("pingpong").args(args)));
        let start = format!("100 rounds of {size} bytes, one way: ");
        assert!(text.starts_with(&start), "{text:?}");
        let [best, median] = ["best ", "median "].map(|name| -> f64 {
            let time = between(&text, name, " us");
            time.parse().expect("a number of microseconds")
        });
        assert!(0.0 < best && best <= median, "{text:?}");
        assert_eq!(server.finish(), (Some(0), Vec::new()));
        println!("{}", text.trim_end());
    }
}

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stream_file-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The test has ended, or failed already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text_of(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// CRC-32 as zlib has it: not the crate that the example uses.
fn crc_32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        let byte = u32::try_from(byte).expect("small");
        (0..8).fold(byte, |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    });
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        let [low, ..] = crc.to_le_bytes();
        (crc >> 8) ^ table[usize::from(low ^ byte)]
    })
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn stream_file_copies_every_byte() {
    device();
    assert_eq!(crc_32(b"123456789"), 0xcbf4_3926, "the known value");
    let folder = Folder::new();
    let (from, to) = (folder.file("from"), folder.file("to"));
    let piece = 64 << 10;
    // Nothing; one piece that is not full; the last piece full, or one byte beyond; more than there are places.
    for len in [0_usize, 1, piece, 16 * piece + 1, 3_000_000] {
        let mut random = Random::new(len as u64);
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&random.next().to_ne_bytes());
        }
        bytes.truncate(len);
        fs::write(&from, &bytes).expect("written");
        let server = listening("stream_file", &["receive", ADDR, text_of(&to)]);
        let args = ["send", ADDR, text_of(&from)];
        let text = said(&run(example("stream_file").args(args)));
        let wanted = format!("{len} bytes, CRC-32 {:08x}", crc_32(&bytes));
        assert_eq!(text.trim_end(), wanted);
        assert_eq!(server.finish(), (Some(0), vec![wanted]));
        let copy = fs::read(&to).expect("read");
        assert_eq!(copy.len(), len);
        assert!(copy == bytes, "the copy of {len} bytes is another");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn stream_file_fails_when_the_sender_is_killed() {
    device();
    let folder = Folder::new();
    let (from, to) = (folder.file("pipe"), folder.file("to"));
    command("mkfifo", &[text_of(&from)]);
    let server = listening("stream_file", &["receive", ADDR, text_of(&to)]);
    let sender = Server::start(example("stream_file").args(["send", ADDR, text_of(&from)]));
    // The sender waits for the rest.
    let mut pipe = fs::File::options().write(true).open(&from).expect("a pipe");
    pipe.write_all(&[7; 50_000]).expect("written");
    eventually("the receiver has what was sent", || {
        fs::read(&to).is_ok_and(|bytes| bytes == [7; 50_000])
    });
    drop(sender);
    assert_eq!(server.finish(), (Some(1), Vec::new()));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn remote_counter_adds_up() {
    device();
    let server = listening("remote_counter", &["serve", ADDR, "--clients", "4"]);
    let clients = [100, 200, 2, 300].map(|times: u64| {
        std::thread::spawn(move || {
            let times = times.to_string();
            let args = ["count", ADDR, "--times", &times];
            said(&run(example("remote_counter").args(args)))
        })
    });
    for (client, times) in clients.into_iter().zip([100, 200, 2, 300]) {
        let text = client.join().expect("no panic");
        let start = format!("counted {times} times, from ");
        assert!(text.starts_with(&start), "{text:?}");
        let first: u64 = between(&text, "from ", " to ").parse().expect("a number");
        let last: u64 = between(&text, " to ", "\n").parse().expect("a number");
        assert!(last < 602 && last - first + 1 >= times, "{text:?}");
    }
    let sum = "counted to 602, and 602 were told".to_owned();
    assert_eq!(server.finish(), (Some(0), vec![sum]));
}
