//! Memory that a device uses, on soft-RoCE (rxe).
#![expect(
    unsafe_code,
    reason = "lowers the limit of locked memory and a thread's rights"
)]

mod common;

use std::process::Command;
use std::thread;
use std::time::Duration;

use common::cm::{DEPTH, Done, End, Listening, Parts, SIZE, message, pair, routed};
use common::{device, in_time};
use rdmacm::{Connection, ErrorKind, Listener, Options, Status};

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_89_memory_stays_until_the_device_has_let_go() {
    device();
    in_time("memory in flight", || {
        let listening = Listening::new();
        let (client, mut server) = pair(&listening);
        for user in 0..u64::from(DEPTH) {
            server.parts.post_recv(user);
        }
        let End { parts, id, channel } = client;
        let Parts {
            mut qp,
            mut cq,
            pool,
            pd,
        } = parts;
        for number in 0..u64::from(DEPTH) {
            let mut buf = pool.take().unwrap();
            buf.fill_from(&number.to_ne_bytes().repeat(SIZE / 8));
            qp.send.send(buf, number).unwrap();
        }
        // Pool and domain go while the device reads.
        drop((pool, pd));
        for number in 0..u64::from(DEPTH) {
            let data = number.to_ne_bytes().repeat(SIZE / 8);
            let done = server.parts.completion();
            assert_eq!(done, Done::Received(Status::SUCCESS, number, data));
        }
        assert!(cq.wait(Some(common::PATIENCE)).unwrap());
        drop((qp, cq, id, channel));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_106_the_limit_of_locked_memory_is_named() {
    device();
    in_time("locked memory", || {
        const LIMIT: libc::rlim_t = 64 * 1024;
        let listening = Listening::new();
        let (id, _channel) = routed(listening.addr());
        let pd = id.context().unwrap().alloc_pd().unwrap();
        let old = memlock(libc::rlimit {
            rlim_cur: LIMIT,
            rlim_max: libc::RLIM_INFINITY,
        });
        let for_nobody = pd.clone();
        // Root may lock as much as it likes; nobody may not.
        let results = thread::spawn(move || {
            // SAFETY: a system call with three numbers. Bare, it changes this thread only, which ends below.
            let returned = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            assert_eq!(returned, 0, "this test must be root");
            let pools = [4096, 1 << 20].map(|size| {
                // The text tells the limit as it is when the text is made.
                let pool = for_nobody.pool(1, size).map(drop);
                pool.map_err(|error| (error.to_string(), error))
            });
            drop(for_nobody);
            pools
        })
        .join();
        memlock(old);
        let [small, large] = results.unwrap();
        small.unwrap();
        let (text, error) = large.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert_eq!(error.op(), "ibv_reg_mr");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        assert!(text.contains("may lock 64 KiB"), "{text}");
        assert!(text.contains("ulimit -l"), "{text}");
    });
}

/// Sets the limit of locked memory and gives what it was.
fn memlock(new: libc::rlimit) -> libc::rlimit {
    let mut old = new;
    // SAFETY: `prlimit` wants two structures, and 0 is this process.
    let returned = unsafe { libc::prlimit(0, libc::RLIMIT_MEMLOCK, &raw const new, &raw mut old) };
    assert_eq!(returned, 0);
    old
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_108_starting_a_program_leaves_connections_alone() {
    device();
    in_time("fork and exec", || {
        let listening = Listening::new();
        let (mut client, mut server) = pair(&listening);
        server.parts.post_recv(1);
        for _ in 0..5 {
            assert!(Command::new("true").status().unwrap().success());
        }
        client.parts.send(b"after five forks", 2);
        let data = b"after five forks".to_vec();
        let done = server.parts.completion();
        assert_eq!(done, Done::Received(Status::SUCCESS, 1, data));
        assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, 2));
        message(&mut server, &mut client, b"and back");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_longer_than_the_buffer_is_an_error_on_both_sides() {
    device();
    in_time("a message that is too long", || {
        let listener = Listener::bind(common::any_port()).unwrap();
        let addr = listener.local_addr();
        let client = thread::spawn(move || {
            let mut connection = Connection::connect(addr).unwrap();
            connection.send(&[1; 65]).unwrap();
            connection.flush().unwrap_err()
        });
        let options = Options::new().message_size(64);
        let request = listener.request().unwrap();
        let mut connection = request.accept_with(&options).unwrap();
        let error = connection
            .recv_timeout(Duration::from_secs(10))
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WorkFailed, "{error}");
        // rxe: a local operation error, and not the length error that InfiniBand asks for.
        assert_eq!(error.status(), Some(Status::from_raw(2)));
        let error = client.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::WorkFailed, "{error}");
        assert_eq!(error.status(), Some(Status::from_raw(11)));
    });
}
