//! The first program of the guest: sets the machine up, runs one command for the host, reports its status.
//!
//! `build.rs` compiles this into a static program that the library carries and puts into the initial file system. It uses the standard
//! library only. Cargo also builds it as a test target, for its unit tests and for clippy.

#[path = "../src/protocol.rs"]
#[allow(dead_code, reason = "the host's half of the protocol")]
mod protocol;

mod command;
mod devices;
mod modules;
mod netlink;
mod root;
mod sys;

use std::{
    fs::{self, File},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use protocol::{Job, Kind, PORT_NAME, read_frame, write_frame};

/// The guest's end of the virtual serial port, for writing.
#[derive(Clone)]
struct Port(Arc<Mutex<File>>);

impl Port {
    /// Sends one frame. When that fails the host has gone, and so does this machine.
    fn send(&self, kind: Kind, payload: &[u8]) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if write_frame(&mut *file, kind, payload).is_err() {
            sys::power_off();
        }
    }

    fn send_status(&self, kind: Kind, code: i32, text: &str) {
        self.send(kind, &[&code.to_le_bytes(), text.as_bytes()].concat());
    }
}

fn main() {
    let port = root::mount_early()
        .map_err(|error| format!("cannot mount the kernel's file systems: {error}"))
        .and_then(|()| modules::load_folder("/modules/port"))
        .and_then(|()| open_port());
    match port {
        Ok((port, input)) => {
            match serve(&port, input) {
                Ok(code) => port.send_status(Kind::Exit, code, ""),
                Err((code, text)) => port.send_status(Kind::Failed, code, &text),
            }
            // The host ends the machine as soon as it has the status.
            thread::sleep(Duration::from_secs(10));
        }
        // Standard error is the console, which the host shows when the machine ends without a status.
        Err(text) => eprintln!("init: {text}"),
    }
    sys::power_off();
}

fn serve(port: &Port, mut input: File) -> Result<i32, command::NotRun> {
    port.send(Kind::Hello, &[]);
    let setup = |text: String| (125, format!("the guest could not be set up: {text}"));
    // The two halves wait for different things and need nothing from each other: two processors do them at once.
    let devices =
        thread::spawn(|| modules::load_folder("/modules/rdma").and_then(|()| devices::set_up()));
    modules::load_folder("/modules/root")
        .and_then(|()| root::assemble())
        .map_err(setup)?;
    let devices = devices
        .join()
        .unwrap_or_else(|_| Err("the set-up of the devices panicked".into()));
    devices.map_err(setup)?;
    modules::load_folder("/modules/extra")
        .and_then(|()| devices::set_up_extra("/modules/extra"))
        .map_err(setup)?;
    root::enter().map_err(setup)?;
    let job = match read_frame(&mut input) {
        Ok(Some((Kind::Start, payload))) => Job::decode(&payload),
        _ => None,
    };
    let job = job.ok_or_else(|| setup("the host sent no job".into()))?;
    for share in job.shares.chunks_exact(2) {
        root::share(
            &String::from_utf8_lossy(&share[0]),
            &String::from_utf8_lossy(&share[1]),
        )
        .map_err(setup)?;
    }
    if !job.module_tree.is_empty() {
        root::show_modules(&String::from_utf8_lossy(&job.module_tree));
    }
    limits().map_err(|error| setup(format!("cannot set the limits: {error}")))?;
    port.send(Kind::Ready, &[]);
    let code = command::run(&job, port, input)?;
    if !job.shares.is_empty() {
        sys::sync_all();
    }
    Ok(code)
}

fn limits() -> std::io::Result<()> {
    sys::set_umask(0o022);
    sys::set_host_name("softroce")?;
    sys::set_limit(sys::RLIMIT_MEMLOCK, sys::UNLIMITED)?;
    sys::set_limit(sys::RLIMIT_NOFILE, 65536)
}

/// Waits for the port to appear and opens it, for writing and for reading.
fn open_port() -> Result<(Port, File), String> {
    let start = Instant::now();
    loop {
        if let Some(device) = find_port() {
            let open = |path: &str| File::options().read(true).write(true).open(path);
            let file = open(&format!("/dev/{device}"))
                .map_err(|error| format!("cannot open /dev/{device}: {error}"))?;
            let input = file
                .try_clone()
                .map_err(|error| format!("cannot use /dev/{device} twice: {error}"))?;
            return Ok((Port(Arc::new(Mutex::new(file))), input));
        }
        if start.elapsed() > Duration::from_secs(20) {
            return Err(format!(
                "the virtual serial port {PORT_NAME} did not appear"
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn find_port() -> Option<String> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?;
    entries.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        (name.trim() == PORT_NAME).then(|| entry.file_name().to_string_lossy().into_owned())
    })
}
