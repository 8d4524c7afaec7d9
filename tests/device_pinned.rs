//! A protection domain that outlives every id and then its device, in a process that valgrind watches.
//!
//! librdmacm counts its ids on a device. When it compares its list of devices with the kernel's and a device is gone that no id
//! counts on, it closes it and frees its `ibv_context`, to which a domain of that device still points. The crate's domain keeps
//! an id of its own there; C's does not. Both go the same way here, so that the second shows that the first can fail.
#![expect(
    unsafe_code,
    reason = "does by hand what the crate does not allow, and compares the list of devices"
)]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, io, ptr};

use common::removal::Removal;
use common::{ADDR_OF_SECOND, device};
use rdma_sys::{ibv_pd, rdma_port_space};
use rdmacm::{CmId, EventChannel, ProtectionDomain};

/// Set in a child.
const CHILD: &str = "RDMACM_WATCHED";
/// The status of a child in which valgrind has seen a fault.
const FAULT: i32 = 99;
/// How long a child may take from one step to the next: on a slow machine, valgrind under emulation takes half a minute to start.
const LONG: Duration = Duration::from_secs(150);

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_domain_pins_its_device_beyond_every_id_and_its_removal() {
    if is_child() {
        let pd = domain();
        step("made");
        compare_devices();
        step("compared");
        drop(pd);
        step("ended");
        return;
    }
    device();
    let mut watched = Watched::start("a_domain_pins_its_device_beyond_every_id_and_its_removal");
    watched.says("made");
    watched.remove_device();
    watched.goes_on_to("compared");
    thread::sleep(Duration::from_millis(500));
    let stays = !watched.removal().is_over();
    watched.goes_on_to("ended");
    watched
        .removal()
        .must_end("the removal ends with the domain");
    let (status, said) = watched.end();
    assert_eq!(status.code(), Some(0), "{status}: {said}");
    assert!(said.contains("ERROR SUMMARY: 0 errors"), "{said}");
    assert!(stays, "the device was closed under its domain");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn without_the_pin_the_end_of_a_domain_reads_what_is_freed() {
    if is_child() {
        let pd = domain_of_c();
        step("made");
        compare_devices();
        step("compared");
        // SAFETY: none: `ibv_dealloc_pd` wants a domain of an open device, and this one was just closed. Valgrind keeps what is
        // freed as it was, so the call finds the old functions and a descriptor that is closed or another device's.
        let _ = unsafe { rdma_sys::ibv_dealloc_pd(pd) };
        step("ended");
        return;
    }
    device();
    let mut watched = Watched::start("without_the_pin_the_end_of_a_domain_reads_what_is_freed");
    watched.says("made");
    watched.remove_device();
    watched.goes_on_to("compared");
    watched
        .removal()
        .must_end("the comparison closes the device");
    watched.goes_on_to("ended");
    let (status, said) = watched.end();
    assert_eq!(status.code(), Some(FAULT), "{status}: {said}");
    let fault = said.split("Invalid read of size").nth(1);
    let fault = fault.unwrap_or_else(|| panic!("no invalid read: {said}"));
    let (read, freed) = fault.split_once("free'd").expect("it was freed");
    assert!(read.contains("ibv_dealloc_pd"), "{said}");
    assert!(freed.contains("rdma_get_devices"), "{said}");
}

/// A domain of the second device. There is no id afterwards but the one that it keeps.
fn domain() -> ProtectionDomain {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new(&channel).expect("an id");
    let addr = SocketAddr::new(ADDR_OF_SECOND.parse().expect("an address"), 0);
    id.bind_addr(addr).expect("the second device");
    let context = id.context().expect("the second device");
    context.alloc_pd().expect("a domain")
}

/// The same by hand, as one would write it in C.
fn domain_of_c() -> *mut ibv_pd {
    let ip: Ipv4Addr = ADDR_OF_SECOND.parse().expect("an address");
    let mut addr = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("a small number"),
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(ip.octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: `rdma_create_event_channel` takes nothing.
    let channel = unsafe { rdma_sys::rdma_create_event_channel() };
    assert!(!channel.is_null(), "{}", io::Error::last_os_error());
    let mut id = ptr::null_mut();
    let tcp = rdma_port_space::RDMA_PS_TCP;
    // SAFETY: `rdma_create_id` wants a channel, which was just made, and room for the id; the context may be anything.
    let returned = unsafe { rdma_sys::rdma_create_id(channel, &raw mut id, ptr::null_mut(), tcp) };
    assert_eq!(returned, 0, "{}", io::Error::last_os_error());
    // SAFETY: `rdma_bind_addr` wants an id, which was just made, and an address that it reads during the call.
    let returned = unsafe { rdma_sys::rdma_bind_addr(id, (&raw mut addr).cast()) };
    assert_eq!(returned, 0, "{}", io::Error::last_os_error());
    // SAFETY: the id was just made, and nothing else uses it.
    let verbs = unsafe { (*id).verbs };
    assert!(!verbs.is_null(), "an id with such an address has a device");
    // SAFETY: `ibv_alloc_pd` wants an open device, which that of a bound id is.
    let pd = unsafe { rdma_sys::ibv_alloc_pd(verbs) };
    assert!(!pd.is_null(), "{}", io::Error::last_os_error());
    // SAFETY: `rdma_destroy_id` wants an id without a queue pair; it is not used again.
    let returned = unsafe { rdma_sys::rdma_destroy_id(id) };
    assert_eq!(returned, 0, "{}", io::Error::last_os_error());
    // SAFETY: `rdma_destroy_event_channel` wants a channel whose ids are gone; it is not used again.
    unsafe { rdma_sys::rdma_destroy_event_channel(channel) };
    pd
}

/// Has librdmacm compare its list of devices with the kernel's, as any part of a program may.
fn compare_devices() {
    let mut count = 0;
    // SAFETY: `rdma_get_devices` wants room for a number.
    let list = unsafe { rdma_sys::rdma_get_devices(&raw mut count) };
    assert!(!list.is_null(), "{}", io::Error::last_os_error());
    assert!(count > 0, "the first device is there");
    // SAFETY: `rdma_free_devices` wants a list of `rdma_get_devices`. No device was removed since, see `give_back` in the crate.
    unsafe { rdma_sys::rdma_free_devices(list) };
}

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// In a child: says what it has done, and waits for the word to go on.
fn step(done: &str) {
    println!("\n{done}");
    let mut word = String::new();
    let read = io::stdin().read_line(&mut word).expect("the parent's word");
    assert!(read > 0, "the parent has ended");
}

/// A test of this program in a child under valgrind, ended with its parent.
struct Watched {
    child: Child,
    word: ChildStdin,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    /// After the child: it ends when nobody uses the device.
    removal: Option<Removal>,
}

impl Watched {
    fn start(test: &str) -> Self {
        let mut child = Command::new("valgrind")
            .args([
                &format!("--error-exitcode={FAULT}"),
                // It does not know what the kernel writes in the ioctls of verbs.
                "--undef-value-errors=no",
                "--leak-check=no",
                "--vgdb=no",
                // A quarter of its time.
                "--read-inline-info=no",
            ])
            .arg(env::current_exe().expect("the test's own path"))
            .args([
                "--exact",
                test,
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`valgrind` is needed");
        let word = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // Nobody listens any more when the test has failed.
            let mut lines = stdout.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        let mut stderr = child.stderr.take().expect("piped");
        let errors = thread::spawn(move || {
            let mut said = Vec::new();
            stderr.read_to_end(&mut said).expect("valgrind's words");
            String::from_utf8_lossy(&said).into_owned()
        });
        Self {
            child,
            word,
            lines,
            errors: Some(errors),
            removal: None,
        }
    }

    /// Waits until the child has said that it is so far.
    fn says(&mut self, done: &str) {
        let deadline = Instant::now() + LONG;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == done => return,
                Ok(_) => {}
                Err(error) => {
                    let said = self.kill();
                    panic!("the child has not {done}: {error}; it said: {said}");
                }
            }
        }
    }

    /// Lets the child go on, until it has said that it is so far.
    fn goes_on_to(&mut self, done: &str) {
        self.go_on();
        self.says(done);
    }

    fn go_on(&mut self) {
        self.word.write_all(b"go on\n").expect("the child listens");
    }

    /// Starts the removal of the second device, and waits until the kernel lists it no more. It is back when this is dropped.
    fn remove_device(&mut self) {
        self.removal.insert(Removal::start()).must_begin();
    }

    fn removal(&mut self) -> &mut Removal {
        self.removal.as_mut().expect("it was started")
    }

    /// Lets the child go on to its end. Gives its status and what valgrind said.
    fn end(mut self) -> (ExitStatus, String) {
        self.go_on();
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().expect("its own child") {
                return (status, self.kill());
            }
            assert!(Instant::now() < deadline, "the child has not ended");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the child, if it has not ended, and gives what it said on standard error.
    fn kill(&mut self) -> String {
        // It has ended already, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let errors = self.errors.take().map(JoinHandle::join);
        errors.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.kill();
    }
}
