//! Memory windows, on soft-RoCE (rxe).

mod common;

use std::ops::Range;
use std::thread;
use std::time::Duration;

use common::cm::{Done, End, Listening, pair};
use common::{device, in_time};
use rdmacm::{
    Access, Buf, Completion, ErrorKind, Exposed, MappedMemory, Op, Registration, RemoteMemory,
    Status, Window, WindowType, Work,
};

const SIZE: usize = 8192;

fn exposed(end: &End) -> Exposed {
    let memory = MappedMemory::new(SIZE).unwrap();
    let exposed = end.parts.pd.expose_for_windows(memory, Registration::new());
    exposed.expect("exposing for windows")
}

fn filled(end: &End, data: &[u8]) -> Buf {
    let mut buf = end.parts.pool.take().expect("a free buffer");
    buf.fill_from(data);
    buf
}

/// The next completion, which must be of a request without a buffer: what it did, and how it ended.
fn bare(end: &mut End) -> (Op, Status) {
    assert!(end.parts.cq.wait(Some(common::PATIENCE)).unwrap());
    match end.parts.cq.poll().unwrap().expect("was promised") {
        Completion::Bare(bare) => (bare.op(), bare.status()),
        other => panic!("not bare: {other:?}"),
    }
}

/// Binds a window, and waits until it is.
fn bind(
    end: &mut End,
    window: &mut Window,
    memory: &Exposed,
    range: Range<usize>,
    access: Access,
) -> RemoteMemory {
    let remote = end.parts.qp.send.bind(window, memory, range, access, 7);
    let remote = remote.expect("bind");
    assert_eq!(bare(end), (Op::Bind, Status::SUCCESS));
    remote
}

fn write(end: &mut End, data: &[u8], to: RemoteMemory) -> Status {
    let buf = filled(end, data);
    end.parts.qp.send.write(buf, to, 1).expect("write");
    match end.parts.completion() {
        Done::Sent(status, 1) => status,
        other => panic!("not a write: {other:?}"),
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_peer_writes_through_a_window_until_it_is_invalidated() {
    device();
    in_time("a window", || {
        let listening = Listening::new();
        let (mut client, mut server) = pair(&listening);
        let memory = exposed(&server);
        // By itself the memory is open to nobody.
        assert_eq!(memory.access(), Access::empty());
        let mut window = server.parts.qp.send.alloc_window().unwrap();
        assert_eq!(window.kind(), WindowType::Type2);
        assert_eq!(window.key(), None);
        let mut keys = Vec::new();
        for round in 1..=3_u8 {
            let start = 100 + usize::from(round - 1) * 1000;
            let range = start..start + 50;
            let remote = bind(&mut server, &mut window, &memory, range, Access::WRITE);
            assert_eq!(remote.len(), 50);
            assert_eq!(remote.addr(), memory.remote().addr() + start as u64);
            assert_eq!(window.key(), Some(remote.rkey()));
            keys.push(remote.rkey());
            let data = [round; 50];
            assert_eq!(write(&mut client, &data, remote), Status::SUCCESS);
            let mut bytes = [0; 52];
            memory.read_at(start - 1, &mut bytes);
            assert_eq!((bytes[0], &bytes[1..51], bytes[51]), (0, &data[..], 0));
            server.parts.qp.send.invalidate(&mut window, 8).unwrap();
            assert_eq!(bare(&mut server), (Op::Invalidate, Status::SUCCESS));
            window.invalidated(remote.rkey()).unwrap();
            assert_eq!(window.key(), None);
        }
        keys.dedup();
        assert_eq!(keys.len(), 3, "each time another key");
        let remote = RemoteMemory::new(memory.remote().addr() + 2100, keys[2], 50);
        // The key is no key any more.
        assert_eq!(write(&mut client, b"late", remote), Status::REMOTE_ACCESS);
        let memory = memory.revoke().expect("no window is bound");
        assert_eq!(memory[2100..2150], [3; 50]);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_peer_ends_a_window_with_its_message() {
    device();
    in_time("send with invalidate", || {
        let listening = Listening::new();
        let (mut client, mut server) = pair(&listening);
        let memory = exposed(&server);
        let mut window = server.parts.qp.send.alloc_window().unwrap();
        let remote = bind(&mut server, &mut window, &memory, 0..SIZE, Access::WRITE);
        assert_eq!(write(&mut client, b"all of it", remote), Status::SUCCESS);
        let refused = memory.revoke().unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
        let memory = refused.into_inner().unwrap();

        server.parts.post_recv(3);
        let buf = filled(&client, b"done");
        let work = Work::send_with_invalidate(remote.rkey());
        client.parts.qp.send.post(work, buf, 4).unwrap();
        assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, 4));
        let done = server.parts.completion();
        assert_eq!(done, Done::Received(Status::SUCCESS, 3, b"done".to_vec()));
        let error = window.invalidated(remote.rkey() ^ 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        window.invalidated(remote.rkey()).unwrap();
        assert_eq!(write(&mut client, b"late", remote), Status::REMOTE_ACCESS);
        let memory = memory.revoke().expect("no window is bound");
        assert_eq!(memory[..10], *b"all of it\0");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_window_opens_for_what_it_says_only() {
    device();
    in_time("access through a window", || {
        let listening = Listening::new();
        for case in ["read", "beyond the memory", "the memory's own key"] {
            let (mut client, mut server) = pair(&listening);
            let memory = exposed(&server);
            let mut window = server.parts.qp.send.alloc_window().unwrap();
            let remote = bind(&mut server, &mut window, &memory, 0..SIZE, Access::WRITE);
            let status = match case {
                "read" => {
                    let buf = filled(&client, b"12345678");
                    client.parts.qp.send.read(buf, remote, 1).unwrap();
                    match client.parts.completion() {
                        Done::Sent(status, 1) => status,
                        other => panic!("not a read: {other:?}"),
                    }
                }
                "beyond the memory" => {
                    let last = remote.addr() + SIZE as u64 - 4;
                    let beyond = RemoteMemory::new(last, remote.rkey(), 5);
                    write(&mut client, b"12345", beyond)
                }
                _ => write(&mut client, b"12345", memory.remote()),
            };
            assert_eq!(status, Status::REMOTE_ACCESS, "{case}");
            drop(window);
            let memory = memory.revoke().expect("the window is gone");
            assert!(memory.iter().all(|&byte| byte == 0), "{case}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_window_ends_with_its_queue_pair() {
    device();
    // While a window is bound, soft-RoCE never ends the destruction of its queue pair.
    in_time("the end of a pair with windows", || {
        let listening = Listening::new();
        let (mut client, mut server) = pair(&listening);
        let memory = exposed(&server);
        let mut windows: Vec<_> = (0..3)
            .map(|_| server.parts.qp.send.alloc_window().unwrap())
            .collect();
        for window in &mut windows[..2] {
            let remote = bind(&mut server, window, &memory, 0..64, Access::WRITE);
            assert_eq!(write(&mut client, b"here", remote), Status::SUCCESS);
        }
        drop(windows.pop());
        let End { parts, id, channel } = server;
        drop((parts.qp, id, channel));
        assert_eq!(windows[0].key(), None);
        let memory = memory.revoke().expect("no window is left");
        assert_eq!(memory[..5], *b"here\0");
        for window in windows {
            window.dealloc().unwrap();
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_makes_no_sense_is_refused_before_it_is_posted() {
    device();
    in_time("wrong use of windows", || {
        let listening = Listening::new();
        let (client, mut server) = pair(&listening);
        let memory = exposed(&server);
        let mut window = server.parts.qp.send.alloc_window().unwrap();
        let queue = &mut server.parts.qp.send;
        for (range, access) in [
            (0..0, Access::WRITE),
            (Range { start: 5, end: 3 }, Access::WRITE),
            (0..SIZE + 1, Access::WRITE),
            (SIZE..SIZE + 1, Access::WRITE),
            (0..usize::MAX, Access::WRITE),
            (0..8, Access::empty()),
        ] {
            let refused = queue.bind(&mut window, &memory, range.clone(), access, 1);
            let kind = refused.unwrap_err().error().kind();
            assert_eq!(kind, ErrorKind::InvalidInput, "{range:?} for {access:?}");
        }
        let plain = server.parts.pd.expose(64, Access::all()).unwrap();
        let refused = queue.bind(&mut window, &plain, 0..8, Access::READ, 1);
        assert_eq!(refused.unwrap_err().error().kind(), ErrorKind::State);
        let others = exposed(&client);
        let refused = queue.bind(&mut window, &others, 0..8, Access::READ, 1);
        assert_eq!(refused.unwrap_err().error().kind(), ErrorKind::InvalidInput);
        let refused = queue.invalidate(&mut window, 1).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
        let mut strange = client.parts.qp.send.alloc_window().unwrap();
        let refused = queue.bind(&mut strange, &memory, 0..8, Access::READ, 1);
        assert_eq!(refused.unwrap_err().error().kind(), ErrorKind::State);

        queue
            .bind(&mut window, &memory, 0..8, Access::READ, 1)
            .unwrap();
        let refused = queue.bind(&mut window, &memory, 0..8, Access::READ, 1);
        assert_eq!(refused.unwrap_err().error().kind(), ErrorKind::State);
        queue.invalidate(&mut window, 2).unwrap();
        // Twice would crash a machine with Linux 6.1.
        let refused = queue.invalidate(&mut window, 2).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
        // Behind the invalidation, in the same queue.
        let remote = queue
            .bind(&mut window, &memory, 8..16, Access::READ, 3)
            .unwrap();
        for wanted in [Op::Bind, Op::Invalidate, Op::Bind] {
            assert_eq!(bare(&mut server), (wanted, Status::SUCCESS));
        }
        assert_eq!(window.key(), Some(remote.rkey()));
    });
}

/// Writes to `to` as fast as it goes, until that is refused; says how often it worked.
fn write_on(mut client: End, to: RemoteMemory) -> (u64, Status) {
    for count in 0.. {
        let data = [u8::try_from(count % 251).unwrap(); 256];
        let status = write(&mut client, &data, to);
        if status != Status::SUCCESS {
            return (count, status);
        }
    }
    unreachable!("it writes until it is refused")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn no_write_arrives_after_a_window_or_its_memory_was_taken_back() {
    device();
    in_time("a peer that writes all the time", || {
        let listening = Listening::new();
        for round in 0..6 {
            let (client, mut server) = pair(&listening);
            let through_a_window = round % 2 == 0;
            let mut window = server.parts.qp.send.alloc_window().unwrap();
            let (memory, to) = if through_a_window {
                let memory = exposed(&server);
                let to = bind(&mut server, &mut window, &memory, 0..256, Access::WRITE);
                (memory, to)
            } else {
                let memory = server.parts.pd.expose(256, Access::WRITE).unwrap();
                let to = memory.remote();
                (memory, to)
            };
            let writer = thread::spawn(move || write_on(client, to));
            common::eventually("the peer writes", || {
                let mut byte = [0];
                memory.read_at(0, &mut byte);
                byte != [0]
            });
            if through_a_window {
                server.parts.qp.send.invalidate(&mut window, 1).unwrap();
                assert_eq!(bare(&mut server), (Op::Invalidate, Status::SUCCESS));
                window.invalidated(to.rkey()).unwrap();
            }
            // Without a window this is what takes it back.
            let memory = memory.revoke().expect("no window is bound");
            let then = memory[..256].to_vec();
            let (count, status) = writer.join().unwrap();
            assert_eq!(status, Status::REMOTE_ACCESS);
            assert!(count > 0);
            thread::sleep(Duration::from_millis(20));
            assert_eq!(memory[..256], then, "round {round}: a write came later");
        }
    });
}
