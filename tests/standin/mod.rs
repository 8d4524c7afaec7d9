//! Steering the stand-in for the C libraries: see `standin/` in the workspace.
#![expect(unsafe_code, reason = "calls the stand-in's own functions")]
#![allow(dead_code, reason = "every test program uses a part of this")]

#[path = "../../standin/src/abi.rs"]
mod abi;
mod child;
mod ends;
pub(crate) mod link;
pub(crate) mod raw;
pub(crate) mod verbs;

use std::ffi::{CString, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use abi::{DevicePlan, Entry, KINDS, Planned, VERSION};

#[allow(unused_imports, reason = "every test program uses a part of this")]
pub(crate) use self::child::{in_child, is_child_of, must_abort, must_die};
#[allow(unused_imports, reason = "every test program uses a part of this")]
pub(crate) use self::ends::{Client, Server, addr, next_event, small_qp};

/// The stand-in, for one test at a time.
pub(crate) struct Standin {
    /// `None` inside a child, whose test has the turn already.
    _alone: Option<MutexGuard<'static, ()>>,
}

/// One recorded call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) entered: u64,
    pub(crate) left: u64,
    pub(crate) thread: u64,
    pub(crate) args: [usize; 4],
    pub(crate) returned: i64,
    pub(crate) errno: i32,
}

/// An event to come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) event: u32,
    pub(crate) status: i32,
    /// Handed out without what the library does with such an event.
    pub(crate) raw: bool,
    /// The same, with garbage in the union.
    pub(crate) garbage: bool,
    pub(crate) depths: (u8, u8),
    pub(crate) private_data: Vec<u8>,
}

/// What a device is to be like; `None` leaves a value alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Device {
    pub(crate) transport: Option<i32>,
    pub(crate) max_qp_rd_atom: Option<i32>,
    pub(crate) max_qp_init_rd_atom: Option<i32>,
    pub(crate) hidden: Option<i32>,
    /// Whether memory may be registered without being pinned.
    pub(crate) on_demand: Option<bool>,
}

/// The numbers of the devices.
pub(crate) const RXE0: usize = 0;
pub(crate) const SIW0: usize = 2;

/// An end that asks for a connection and answers by itself. It goes away when dropped.
pub(crate) struct Peer {
    number: usize,
}

/// Looks one of the stand-in's functions up.
///
/// # Panics
///
/// When the real libraries are loaded.
fn symbol(name: &str) -> *mut c_void {
    let c_name = CString::new(name).unwrap();
    // SAFETY: a terminated name, looked for in everything that is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c_name.as_ptr()) };
    assert!(
        !found.is_null(),
        "{name} is missing: this test runs on the stand-in for the C libraries, by `cargo xtask test`"
    );
    found
}

/// Calls a function of the stand-in by name.
macro_rules! call {
    ($name:ident($($arg:expr),*): fn($($ty:ty),*) $(-> $ret:ty)?) => {{
        let found = symbol(stringify!($name));
        // SAFETY: the stand-in's function of this name has this signature, which the version stands for.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn($($ty),*) $(-> $ret)?>(found)
        };
        function($($arg),*)
    }};
}

pub(crate) mod calls;
pub(crate) mod provider;

static ALONE: Mutex<()> = Mutex::new(());

impl Standin {
    /// Waits for its turn and starts anew.
    pub(crate) fn start() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(call!(standin_version(): fn() -> u32), VERSION);
        call!(standin_reset(): fn());
        Self {
            _alone: Some(alone),
        }
    }

    /// For the inside of a child's test, which has its turn: steers without waiting for one.
    pub(crate) fn of_child() -> Self {
        Self { _alone: None }
    }

    /// Lets the next call of a function fail.
    pub(crate) fn fail(&self, name: &str, returned: i64, errno: i32) {
        self.fail_later(name, 0, 1, returned, errno);
    }

    /// Lets calls of a function fail: after `skip` good ones, `times` times.
    pub(crate) fn fail_later(&self, name: &str, skip: u32, times: u32, returned: i64, errno: i32) {
        call!(standin_fail(name.as_ptr(), name.len(), skip, times, returned, errno):
            fn(*const u8, usize, u32, u32, i64, i32));
    }

    /// Replaces the event that answers the next call of a function; `None`: no answer.
    pub(crate) fn answer(&self, name: &str, plan: Option<&Plan>) {
        let planned = planned(plan);
        call!(standin_answer(name.as_ptr(), name.len(), &raw const planned):
            fn(*const u8, usize, *const Planned));
    }

    /// Puts an event onto the channel of an id.
    pub(crate) fn event<T>(&self, id: *mut T, plan: &Plan) {
        let planned = planned(Some(plan));
        call!(standin_event(id.addr(), &raw const planned): fn(usize, *const Planned));
    }

    /// Counts an event of an id as handed out that nobody was given.
    pub(crate) fn lose_event<T>(&self, id: *mut T) {
        call!(standin_lose_event(id.addr()): fn(usize));
    }

    /// Holds threads at the dangerous place of a function for so long; zero ends that.
    pub(crate) fn hold(&self, name: &str, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap();
        call!(standin_delay(name.as_ptr(), name.len(), microseconds): fn(*const u8, usize, u64));
    }

    /// Waits until a thread is held there.
    pub(crate) fn until_held(&self, name: &str) {
        until("a thread is held", || {
            call!(standin_inside(name.as_ptr(), name.len()): fn(*const u8, usize) -> usize) > 0
        });
    }

    /// Changes a device.
    pub(crate) fn device(&self, number: usize, device: Device) {
        let plan = DevicePlan {
            transport: device.transport.unwrap_or(-1),
            max_qp_rd_atom: device.max_qp_rd_atom.unwrap_or(-1),
            max_qp_init_rd_atom: device.max_qp_init_rd_atom.unwrap_or(-1),
            hidden: device.hidden.unwrap_or(-1),
            on_demand: device.on_demand.map_or(-1, i32::from),
        };
        call!(standin_device(number, &raw const plan): fn(usize, *const DevicePlan));
    }

    /// Takes a device away.
    pub(crate) fn remove_device(&self, number: usize) {
        call!(standin_remove_device(number): fn(usize));
    }

    /// Puts a device that was taken away, and that nobody holds, back.
    pub(crate) fn restore_device(&self, number: usize) {
        call!(standin_restore_device(number): fn(usize));
    }

    /// How long a call may wait for what the program owes it.
    pub(crate) fn patience(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap();
        call!(standin_patience(milliseconds): fn(u64));
    }

    /// Starts a new record.
    pub(crate) fn record(&self) {
        call!(standin_record(1): fn(i32));
    }

    /// What was recorded, in the order in which calls ended.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Some(call) = entry(calls.len()) {
            calls.push(call);
        }
        calls
    }

    /// The recorded calls of one function.
    pub(crate) fn calls_of(&self, name: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.name == name);
        calls
    }

    /// The one recorded call of a function.
    pub(crate) fn call_of(&self, name: &str) -> Call {
        let mut calls = self.calls_of(name);
        assert_eq!(calls.len(), 1, "{name} was called: {calls:?}");
        calls.remove(0)
    }

    /// How many objects live, with their kinds; those that are none are left out.
    pub(crate) fn living(&self) -> Vec<(&'static str, u64)> {
        let mut counts = [0_u64; KINDS.len()];
        call!(standin_living(counts.as_mut_ptr(), counts.len()): fn(*mut u64, usize));
        let mut living: Vec<_> = KINDS.into_iter().zip(counts).collect();
        living.retain(|(_, count)| *count > 0);
        living
    }

    /// Waits for what ends on threads of its own; then nothing may be left, and nobody has written to what is gone.
    pub(crate) fn nothing_left(&self) {
        let start = Instant::now();
        while !self.living().is_empty() {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "left: {:?}",
                self.living()
            );
            thread::sleep(Duration::from_millis(1));
        }
        self.check();
    }

    /// Looks whether anybody has written to what is gone.
    pub(crate) fn check(&self) {
        call!(standin_check(): fn());
    }

    /// Another end asks for a connection to `to`, with depths as it sees them: what it answers, what it asks.
    pub(crate) fn peer(&self, to: SocketAddr, depths: (u8, u8), private_data: &[u8]) -> Peer {
        let to = socket2::SockAddr::from(to);
        let plan = Plan {
            depths,
            private_data: private_data.to_vec(),
            ..Plan::default()
        };
        let planned = planned(Some(&plan));
        let number = call!(standin_peer(to.as_ptr().cast(), &raw const planned):
            fn(*const c_void, *const Planned) -> usize);
        assert_ne!(number, 0, "nobody listens there");
        Peer { number }
    }
}

impl Plan {
    /// An event without anything.
    pub(crate) fn event(event: u32) -> Self {
        Self {
            event,
            ..Self::default()
        }
    }

    /// An event with a status.
    pub(crate) fn failed(event: u32, status: i32) -> Self {
        Self {
            event,
            status,
            ..Self::default()
        }
    }
}

/// Waits until `done`.
///
/// # Panics
///
/// When that takes 10 seconds.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "waited for: {what}"
        );
        thread::sleep(Duration::from_micros(200));
    }
}

fn planned(plan: Option<&Plan>) -> Planned {
    let none = Plan::default();
    let event = plan.map_or(-1, |plan| i64::from(plan.event));
    let plan = plan.unwrap_or(&none);
    Planned {
        event,
        status: plan.status,
        raw: match (plan.raw, plan.garbage) {
            (_, true) => 2,
            (raw, false) => raw.into(),
        },
        responder_resources: plan.depths.0,
        initiator_depth: plan.depths.1,
        private_data: plan.private_data.as_ptr(),
        private_data_len: plan.private_data.len(),
    }
}

fn entry(place: usize) -> Option<Call> {
    let mut entry = Entry {
        entered: 0,
        left: 0,
        thread: 0,
        name: ptr::null(),
        name_len: 0,
        args: [0; 4],
        returned: 0,
        errno: 0,
    };
    let found = call!(standin_entry(place, &raw mut entry): fn(usize, *mut Entry) -> i32);
    if found == 0 {
        return None;
    }
    // SAFETY: the name is a text of this length in the stand-in, which stays loaded.
    let name = unsafe { std::slice::from_raw_parts(entry.name, entry.name_len) };
    Some(Call {
        name: String::from_utf8_lossy(name).into_owned(),
        entered: entry.entered,
        left: entry.left,
        thread: entry.thread,
        args: entry.args,
        returned: entry.returned,
        errno: entry.errno,
    })
}

impl Call {
    /// Whether it had returned before `later` was called.
    pub(crate) fn is_before(&self, later: &Self) -> bool {
        self.left < later.entered
    }
}

impl Peer {
    /// The events that it saw: number and status.
    pub(crate) fn saw(&self) -> Vec<(u32, i32)> {
        let mut seen = Vec::new();
        loop {
            let (mut code, mut status) = (0, 0);
            let found = call!(standin_peer_saw(self.number, seen.len(), &raw mut code, &raw mut status):
                fn(usize, usize, *mut u32, *mut i32) -> i32);
            if found == 0 {
                return seen;
            }
            seen.push((code, status));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        call!(standin_peer_end(self.number): fn(usize));
    }
}
