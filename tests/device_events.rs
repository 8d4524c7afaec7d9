//! Reading events, on soft-RoCE (rxe).
#![expect(
    unsafe_code,
    reason = "sends signals, and uses descriptors as it must not be done"
)]

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{
    End, Listening, Parts, RESOLVE, disconnected, established, event, message, pair, quiet,
    rejected, request,
};
use common::load::{Held, patience, rounds};
use common::{any_port, device, in_time, within};
use rdmacm::{CmId, ConnParam, ErrorKind, EventChannel, EventKind, Listener, Options};

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn who_reads_events_may_wait_for_a_lock_of_who_destroys_ids() {
    device();
    within(patience(), "a lock between reader and owner", || {
        let listening = Listening::new();
        let channel = EventChannel::new().unwrap();
        let lock = Arc::new(Mutex::new(0_usize));
        let stop = Arc::new(AtomicBool::new(false));
        let reader = {
            let (channel, lock, stop) = (channel.clone(), Arc::clone(&lock), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let event = channel.wait(Some(Duration::from_millis(50))).unwrap();
                    // With the event in hand it waits for the lock, behind which the id is destroyed.
                    *lock.lock().unwrap() += usize::from(event.is_some());
                }
            })
        };
        let rounds = rounds(1000);
        for round in 0..rounds {
            let id = CmId::new(&channel).unwrap();
            id.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
            thread::sleep(Duration::from_micros(10 * (round as u64 % 40)));
            let seen = lock.lock().unwrap();
            drop(id);
            drop(seen);
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        let seen = *lock.lock().unwrap();
        println!("{seen} events of {rounds} ids were read before their ends");
        assert!(channel.try_event().unwrap().is_none());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn no_event_is_none_and_no_error() {
    device();
    in_time("no event", || {
        let channel = EventChannel::new().unwrap();
        assert!(channel.try_event().unwrap().is_none());
        let start = Instant::now();
        let patience = Duration::from_millis(120);
        assert!(channel.wait(Some(patience)).unwrap().is_none());
        assert!(start.elapsed() >= patience);
        assert!(channel.wait(Some(Duration::ZERO)).unwrap().is_none());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_server_is_established_only_when_the_client_reads_its_events() {
    device();
    in_time("a client that does not read", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let server = End::accept(listening.request(), &ConnParam::new());
        // rxe: the client's last message of the handshake is sent while it reads.
        quiet(&server.channel);
        established(&client.channel);
        established(&server.channel);
    });
}

/// Whether a channel has an event, now or within some milliseconds.
fn is_readable(channel: &EventChannel, patience: i32) -> bool {
    let mut polled = libc::pollfd {
        fd: channel.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` wants as many structures as it is told, which is one.
    unsafe { libc::poll(&raw mut polled, 1, patience) == 1 }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_client_that_gives_up_after_the_accept_is_a_rejection_to_the_server() {
    device();
    in_time("giving up late", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let server = End::accept(listening.request(), &ConnParam::new());
        // The answer is there, and nobody reads it.
        assert!(is_readable(&client.channel, 10_000));
        drop(client);
        let rejection = rejected(&server.channel);
        assert_eq!(rejection.reason().as_raw(), 28);
        server.id.disconnect().unwrap();
        drop(server);

        // The same under the blocking accept, which is waiting for the client.
        let listener = Listener::bind(any_port()).unwrap();
        let client = End::connecting(listener.local_addr());
        let server = thread::spawn(move || {
            let request = listener.request().unwrap();
            let error = request.accept_with(&Options::new()).map(drop).unwrap_err();
            (error, listener)
        });
        // The answer is there, and the server waits, as nobody reads it.
        assert!(is_readable(&client.channel, 10_000));
        thread::sleep(Duration::from_millis(300));
        assert!(!server.is_finished());
        drop(client);
        let (error, _listener) = server.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
        assert_eq!(error.op(), "rdma_accept");
        assert_eq!(error.rejection().unwrap().reason().as_raw(), 28);
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Has SIGUSR1 counted, and system calls interrupted by it.
fn catch_signals() {
    // SAFETY: all zeros is a valid `sigaction`: no flags, so no SA_RESTART, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count_signal as *const () as usize;
    // SAFETY: the handler does nothing but an atomic addition, which a signal handler may do.
    let returned =
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(returned, 0);
}

/// Sends ten signals to a thread, one every 30 ms.
fn bombard<T>(thread: &thread::JoinHandle<T>) {
    let before = SIGNALS.load(Ordering::Relaxed);
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(30));
        // SAFETY: the handle keeps the thread's number valid, since it was not joined.
        let returned = unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
        assert_eq!(returned, 0);
    }
    thread::sleep(Duration::from_millis(30));
    assert_eq!(SIGNALS.load(Ordering::Relaxed), before + 10);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_signal_ends_no_wait() {
    device();
    in_time("signals", || {
        catch_signals();
        let listening = Listening::new();
        let channel = listening.channel.clone();
        let waiting = thread::spawn(move || request(&channel));
        bombard(&waiting);
        assert!(!waiting.is_finished(), "a signal has ended the wait");
        let client = End::connecting(listening.addr());
        let server = End::accept(waiting.join().unwrap(), &ConnParam::new());
        established(&client.channel);

        // Nor does a signal make a wait longer than its time.
        let channel = server.channel.clone();
        established(&channel);
        let waiting = thread::spawn(move || {
            let start = Instant::now();
            let event = channel.wait(Some(Duration::from_secs(1))).unwrap();
            (event.is_none(), start.elapsed())
        });
        bombard(&waiting);
        let (nothing, took) = waiting.join().unwrap();
        assert!(nothing);
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(5));

        // Waiting for completions is no different.
        let mut parts = server.parts;
        let waiting = thread::spawn(move || {
            let start = Instant::now();
            let ready = parts.cq.wait(Some(Duration::from_secs(1))).unwrap();
            (ready, start.elapsed())
        });
        bombard(&waiting);
        let (ready, took) = waiting.join().unwrap();
        assert!(!ready);
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(5));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn events_of_an_id_that_is_gone_are_never_seen() {
    device();
    in_time("stale events", || {
        let listening = Listening::new();
        let channel = EventChannel::new().unwrap();
        for round in 0..50 {
            let gone = CmId::new(&channel).unwrap();
            gone.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(10));
            }
            let token = gone.token();
            drop(gone);
            let next = CmId::new(&channel).unwrap();
            assert_ne!(next.token(), token, "a number is never used again");
            next.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
            let event = event(&channel);
            assert_eq!(event.token, next.token(), "round {round}");
            assert!(matches!(event.kind, EventKind::AddrResolved), "{event:?}");
        }
        assert!(channel.try_event().unwrap().is_none());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_failure_inside_the_library_is_its_errno_and_not_eperm() {
    device();
    in_time("a failure in the library", || {
        let listening = Listening::new();
        let mut client = End::connecting(listening.addr());
        let server = End::accept(listening.request(), &ConnParam::new());
        // The library is to move this queue pair on while it reads the answer, and cannot.
        client.parts.qp.to_error().unwrap();
        let event = event(&client.channel);
        let EventKind::ConnectError(status) = event.kind else {
            panic!("not CONNECT_ERROR: {event:?}");
        };
        assert_eq!(status.as_raw(), -1);
        assert_eq!(status.errno(), Some(libc::EINVAL));
        // rxe: the server hears of it when the client goes.
        quiet(&server.channel);
        drop(client);
        assert_eq!(rejected(&server.channel).reason().as_raw(), 28);
    });
}

/// In 1 of 300 rounds another thread reads the child's ESTABLISHED before accept has returned.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn established_may_be_read_before_accept_has_returned() {
    device();
    within(patience(), "early ESTABLISHED", || {
        let listening = Listening::new();
        let rounds = rounds(300);
        let mut early = 0;
        for round in 0..rounds {
            let (sender, requests) = mpsc::channel();
            let seen = Arc::new(AtomicBool::new(false));
            let reader = {
                let (channel, seen) = (listening.channel.clone(), Arc::clone(&seen));
                thread::spawn(move || {
                    sender.send(request(&channel)).unwrap();
                    let event = event(&channel);
                    seen.store(true, Ordering::Release);
                    event
                })
            };
            let client = End::connecting(listening.addr());
            let client_reader = {
                let channel = client.channel.clone();
                thread::spawn(move || established(&channel))
            };
            let request = requests.recv().unwrap();
            let parts = Parts::of_request(&request);
            let token = request.token();
            let id = request.accept().unwrap();
            early += usize::from(seen.load(Ordering::Acquire));
            let event = reader.join().unwrap();
            assert_eq!(event.token, token, "round {round}");
            assert!(
                matches!(event.kind, EventKind::Established(_)),
                "round {round}: {event:?}"
            );
            client_reader.join().unwrap();
            // Neither the phase nor what was agreed has gone back.
            assert_eq!(id.negotiated().unwrap().initiator_depth, 128);
            id.disconnect().unwrap();
            disconnected(&client.channel);
            disconnected(&listening.channel);
            drop((id, parts));
        }
        println!("ESTABLISHED came before accept had returned in {early} of {rounds} rounds");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn nothing_that_is_done_to_the_descriptor_steals_an_event() {
    device();
    in_time("a descriptor in other hands", || {
        let before = {
            drop(Listening::new());
            Held::now()
        };
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        // Clearing O_NONBLOCK on a clone of the channel's own descriptor would make the reader block.
        let clone = listening.channel.as_fd().try_clone_to_owned().unwrap();
        rustix::io::ioctl_fionbio(&clone, false).unwrap();
        let mut clone = File::from(clone);
        // 24 bytes are the command that takes an event.
        clone.write_all(&[0; 24]).unwrap_err();
        clone.read_exact(&mut [0; 24]).unwrap_err();

        let server = End::accept(listening.request(), &ConnParam::new());
        let start = Instant::now();
        assert!(listening.channel.try_event().unwrap().is_none());
        assert!(start.elapsed() < Duration::from_secs(1), "it has blocked");
        established(&client.channel);
        established(&server.channel);
        drop((client, server, listening, clone));
        before.is_back("after the descriptor's misuse");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_descriptor_is_readable_when_an_event_can_be_taken() {
    device();
    in_time("polling the descriptor", || {
        let listening = Listening::new();
        let ready = |patience| is_readable(&listening.channel, patience);
        assert!(!ready(200));
        let client = End::connecting(listening.addr());
        assert!(ready(10_000));
        // It stays so until the event is taken.
        assert!(ready(0));
        let server = End::accept(listening.request(), &ConnParam::new());
        assert!(!ready(200));
        established(&client.channel);
        established(&server.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn many_threads_wait_on_one_channel_and_each_event_goes_to_one() {
    device();
    in_time("many readers", || {
        const READERS: usize = 4;
        let listening = Listening::new();
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let channel = listening.channel.clone();
                thread::spawn(move || request(&channel))
            })
            .collect();
        let clients: Vec<_> = (0..READERS)
            .map(|_| End::connecting(listening.addr()))
            .collect();
        for reader in readers {
            let server = End::accept(reader.join().unwrap(), &ConnParam::new());
            // Kept, so that its client gets ESTABLISHED below.
            std::mem::forget(server);
        }
        for client in clients {
            established(&client.channel);
        }
        let (mut client, mut server) = pair(&listening);
        message(&mut client, &mut server, b"and one more");
    });
}
