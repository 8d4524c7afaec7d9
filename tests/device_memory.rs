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
use rdmacm::{
    Access, Connection, ErrorKind, HugePage, Listener, MappedMemory, MemoryOwner, Options, Pool,
    Registration, Status,
};

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn memory_stays_until_the_device_has_let_go() {
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
fn the_limit_of_locked_memory_is_named() {
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
        assert!(text.contains("registering these 1024 KiB"), "{text}");
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
fn starting_a_program_leaves_connections_alone() {
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

/// Sends what is in the first buffer of a pool over `owner` into memory of the same kind, and gives both owners back.
fn sent_over<O: MemoryOwner>(owners: [O; 2]) -> [O; 2] {
    let listening = Listening::new();
    let (mut client, mut server) = pair(&listening);
    let [from, to] = owners;
    let pool_of = |end: &End, owner| -> Pool {
        let pool = end.parts.pd.pool_of(owner, 64, Registration::new());
        pool.expect("registering the owner's memory")
    };
    let (from, to) = (pool_of(&client, from), pool_of(&server, to));
    server.parts.qp.recv.post(to.take().unwrap(), 1).unwrap();
    client.parts.qp.send.send(from.take().unwrap(), 2).unwrap();
    assert!(matches!(
        server.parts.completion(),
        Done::Received(Status::SUCCESS, 1, _)
    ));
    assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, 2));
    // Both ends still stand: only the memory is given up.
    [from, to].map(|pool| pool.into_owner().expect("the owner"))
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn messages_go_through_memory_of_every_owner() {
    device();
    in_time("owners", || {
        let data: Vec<u8> = (0..64).collect();
        let [_, vec] = sent_over([data.clone(), vec![0; 64]]);
        assert_eq!(vec, data);
        let boxes = [data.clone(), vec![0; 64]].map(Vec::into_boxed_slice);
        let [_, boxed] = sent_over(boxes);
        assert_eq!(boxed[..], data[..]);
        let mut mapped = [(); 2].map(|()| MappedMemory::new(64).unwrap());
        mapped[0].copy_from_slice(&data);
        let [_, mapped] = sent_over(mapped);
        assert_eq!(mapped[..], data[..]);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn messages_go_through_huge_pages() {
    device();
    in_time("huge pages", || {
        std::fs::write("/proc/sys/vm/nr_hugepages", "2").expect("reserving huge pages");
        let mut mapped = [(); 2].map(|()| MappedMemory::huge(64, HugePage::Mib2).unwrap());
        mapped[0].fill(7);
        let error = MappedMemory::huge(64, HugePage::Mib2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(
            error
                .to_string()
                .contains("2048 KiB: 1, of which 0 are free"),
            "{error}"
        );
        let [_, mapped] = sent_over(mapped);
        assert_eq!(mapped[..], [7; 64]);
        drop(mapped);
        std::fs::write("/proc/sys/vm/nr_hugepages", "0").expect("giving them back");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_soft_roce_cannot_register_is_unsupported() {
    device();
    in_time("unsupported registrations", || {
        let listening = Listening::new();
        let (id, _channel) = routed(listening.addr());
        let pd = id.context().unwrap().alloc_pd().unwrap();
        let on_demand = Registration::new().on_demand();
        let refused = pd.pool_of(vec![0; 64], 64, on_demand).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Unsupported, "{refused}");
        assert_eq!(
            refused.to_string(),
            "ibv_reg_mr: the device has no on-demand paging; register without it"
        );
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = pd.expose_dmabuf(file, 0, 4096, Access::READ).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(
            error.to_string(),
            "ibv_reg_dmabuf_mr: the device has no registration of a dma-buf"
        );
        // What it does not know of, it may leave out.
        let ordering = Registration::new().relaxed_ordering();
        pd.pool_of(vec![0; 64], 64, ordering).unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn soft_roce_refuses_to_fetch_memory_on_demand_without_saying_why() {
    device();
    in_time("on-demand paging", || {
        let listening = Listening::new();
        let (id, _channel) = routed(listening.addr());
        let pd = id.context().unwrap().alloc_pd().unwrap();
        let mut page = [0_u8; 4096];
        let access = rdma_sys::IBV_ACCESS_ON_DEMAND | rdma_sys::IBV_ACCESS_LOCAL_WRITE;
        // SAFETY: a domain, and memory that stays here; a region that comes of it ends below.
        let mr = unsafe {
            rdma_sys::ibv_reg_mr(
                pd.as_raw(),
                page.as_mut_ptr().cast(),
                page.len(),
                access as i32,
            )
        };
        let errno = std::io::Error::last_os_error().raw_os_error();
        if !mr.is_null() {
            // SAFETY: the region just made, which nothing uses.
            unsafe { rdma_sys::ibv_dereg_mr(mr) };
        }
        assert!(mr.is_null(), "it does not check the flag");
        // Not EOPNOTSUPP: so this crate asks for the capability before.
        assert_eq!(errno, Some(libc::EINVAL));
    });
}
