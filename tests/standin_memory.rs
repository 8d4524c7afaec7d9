//! Registered memory, against calls that fail and devices that can what none here can.

mod standin;

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rdmacm::{
    Access, Completion, ConnParam, ErrorKind, EventKind, HugePage, MappedMemory, ProtectionDomain,
    Registration, RemoteMemory, Status,
};
use standin::{Client, Server, Standin, addr, is_child_of, small_qp};

/// A domain on the device that `to` is reached by.
fn domain(to: SocketAddr) -> (Client, ProtectionDomain) {
    let client = Client::resolved(to);
    let pd = client.id.context().unwrap().alloc_pd().unwrap();
    (client, pd)
}

/// An address on the network of the device without on-demand paging or dma-buf.
fn iwarp() -> SocketAddr {
    SocketAddr::from(([10, 9, 2, 1], 1))
}

/// A file without a name that stands for a dma-buf here.
fn file(len: u64) -> File {
    let path = std::env::temp_dir().join(format!("rdmacm-dmabuf-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(len).unwrap();
    file
}

/// Lets `memory`, in a domain on the server's side, be written by a peer, and gives the status.
fn write_from_a_peer(
    data: &[u8],
    memory: impl FnOnce(&ProtectionDomain) -> RemoteMemory,
) -> Status {
    let server = Server::start();
    let mut client = Client::asking(server.addr(), ConnParam::new());
    let request = server.request();
    let context = request.context().unwrap();
    let (pd, _cq, _qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let remote = memory(&pd);
    let _accepted = request.accept().unwrap();
    assert!(matches!(client.event().kind, EventKind::Established(_)));
    let qp = client.qp.as_mut().unwrap();
    let pool = qp.protection_domain().pool(1, data.len()).unwrap();
    let mut buf = pool.take().unwrap();
    buf.fill_from(data);
    qp.send.write(buf, remote, 1).unwrap();
    let completion = client.cq.as_mut().unwrap().poll().unwrap().unwrap();
    assert!(matches!(completion, Completion::Sent(_)));
    completion.status()
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_owner_comes_back_with_its_bytes() {
    let standin = Standin::start();
    let (client, pd) = domain(addr(1));
    let data: Vec<u8> = (0..100).collect();
    let place = data.as_ptr();
    let pool = pd.pool_of(data, 30, Registration::new()).unwrap();
    // Ten bytes at the end make no buffer.
    assert_eq!((pool.available(), pool.buffer_size()), (3, 30));
    let mut bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(bufs[1][..], (30..60).collect::<Vec<u8>>()[..]);
    bufs[2].fill(0xee);

    // Not while a buffer is out, not while there is a clone, and not as something else.
    let refused = pool.into_owner::<Vec<u8>>().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
    let pool = refused.into_inner().unwrap();
    drop(bufs);
    let clone = pool.clone();
    let pool = pool
        .into_owner::<Vec<u8>>()
        .unwrap_err()
        .into_inner()
        .unwrap();
    drop(clone);
    let refused = pool.into_owner::<Box<[u8]>>().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput, "{refused}");
    let pool = refused.into_inner().unwrap();

    let back = pool.into_owner::<Vec<u8>>().unwrap();
    assert_eq!(back.as_ptr(), place);
    let mut wanted: Vec<u8> = (0..100).collect();
    wanted[60..90].fill(0xee);
    assert_eq!(back, wanted);
    standin.record();
    let pool = pd.pool(2, 16).unwrap();
    assert_eq!(pool.into_owner::<MappedMemory>().unwrap().len(), 32);
    assert_eq!(standin.calls_of("ibv_dereg_mr").len(), 1);
    drop((pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_owner_that_cannot_be_registered_comes_back() {
    let standin = Standin::start();
    let (client, pd) = domain(addr(1));
    standin.fail("ibv_reg_mr_iova2", 0, libc::EFAULT);
    let owner = vec![7_u8; 10].into_boxed_slice();
    let refused = pd.pool_of(owner, 5, Registration::new()).unwrap_err();
    assert_eq!(refused.error().raw_os_error(), Some(libc::EFAULT));
    let owner = refused.into_inner().unwrap();
    // Shorter than one buffer: it was registered before that was seen, and is no more.
    let refused = pd.pool_of(owner, 11, Registration::new()).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput, "{refused}");
    let owner = refused.into_inner().unwrap();
    for size in [0, (1 << 31) + 1] {
        let refused = pd.pool_of(owner.clone(), size, Registration::new());
        let kind = refused.unwrap_err().error().kind();
        assert!(
            matches!(kind, ErrorKind::InvalidInput | ErrorKind::TooLarge),
            "{kind}"
        );
    }
    assert_eq!(&owner[..], [7; 10]);
    let empty: Vec<u8> = Vec::new();
    let refused = pd.pool_of(empty, 1, Registration::new()).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput, "{refused}");
    let error = pd.pool(0, 5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    for (count, size) in [(usize::MAX, 5), (1 << 32, 1), (1 << 21, 1 << 20)] {
        let error = pd.pool(count, size).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    }
    drop((pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_limit_of_locked_memory_is_told_with_what_was_asked() {
    let standin = Standin::start();
    let (client, pd) = domain(addr(1));
    standin.fail("ibv_reg_mr_iova2", 0, libc::ENOMEM);
    let error = pd.pool(3, 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    let text = error.to_string();
    assert!(text.contains("registering these 12 KiB"), "{text}");
    drop((pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_that_the_device_keeps_is_never_freed() {
    // The child leaves regions behind on purpose.
    if !is_child_of("memory_that_the_device_keeps_is_never_freed") {
        return;
    }
    let standin = Standin::of_child();
    let (client, pd) = domain(addr(1));
    let bytes: &'static mut [u8] = vec![1; 64].leak();
    let pool = pd.pool_of(bytes, 8, Registration::new()).unwrap();
    standin.fail("ibv_dereg_mr", libc::EBUSY.into(), 0);
    let refused = pool.into_owner::<&'static mut [u8]>().unwrap_err();
    assert_eq!(refused.error().raw_os_error(), Some(libc::EBUSY));
    assert!(refused.into_inner().is_none());

    let memory = pd.expose(64, Access::WRITE).unwrap();
    standin.fail("ibv_dereg_mr", libc::EBUSY.into(), 0);
    let refused = memory.revoke().unwrap_err();
    assert_eq!(refused.error().raw_os_error(), Some(libc::EBUSY));
    assert!(refused.into_inner().is_none());

    let (dropped, exposed) = (pd.pool(1, 8).unwrap(), pd.expose(8, Access::READ).unwrap());
    standin.fail_later("ibv_dereg_mr", 0, 2, libc::EBUSY.into(), 0);
    drop((dropped, exposed));
    drop((pd, client));
    let left = standin.living();
    assert!(left.contains(&("memory region", 4)), "{left:?}");
    assert!(left.contains(&("protection domain", 1)), "{left:?}");
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_that_is_taken_back_is_plain_bytes() {
    let standin = Standin::start();
    let (client, pd) = domain(addr(1));
    let mut memory = MappedMemory::new(5000).unwrap();
    memory.fill(3);
    let ordering = Registration::new().relaxed_ordering();
    standin.record();
    let mut exposed = pd.expose_memory(memory, Access::all(), ordering).unwrap();
    let iova = standin.call_of("ibv_reg_mr_iova2").args[3];
    assert_eq!(iova as u64, exposed.remote().addr());
    exposed.write_at(8, &[1, 2]);
    exposed.store_u64(4992, 0x0102_0304_0506_0708);
    assert_eq!(exposed.load_u64(4992), 0x0102_0304_0506_0708);
    let memory = exposed.revoke().unwrap();
    assert_eq!(memory[7..11], [3, 1, 2, 3]);
    assert_eq!(memory[4992..], 0x0102_0304_0506_0708_u64.to_ne_bytes());
    drop((pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn counters_are_aligned_and_inside() {
    let standin = Standin::start();
    let (client, pd) = domain(addr(1));
    let exposed = pd.expose(16, Access::ATOMIC).unwrap();
    for offset in [1, 4, 16, usize::MAX - 7] {
        let loaded = catch_unwind(AssertUnwindSafe(|| exposed.load_u64(offset)));
        assert!(loaded.is_err(), "{offset}");
    }
    assert_eq!(exposed.load_u64(8), 0);
    drop((exposed, pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_is_fetched_on_demand_where_the_device_can() {
    let standin = Standin::start();
    let on_demand = Registration::new().on_demand();
    let (client, pd) = domain(addr(1));
    let pool = pd.pool_of(vec![0; 64], 8, on_demand).unwrap();
    let memory = MappedMemory::new(64).unwrap();
    let exposed = pd.expose_memory(memory, Access::READ, on_demand).unwrap();
    drop((pool, exposed, pd, client));

    let (client, pd) = domain(iwarp());
    standin.record();
    let refused = pd.pool_of(vec![9; 64], 8, on_demand).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
    assert!(
        refused.to_string().contains("on-demand paging"),
        "{refused}"
    );
    assert_eq!(refused.into_inner().unwrap(), [9; 64]);
    let memory = MappedMemory::new(64).unwrap();
    let refused = pd
        .expose_memory(memory, Access::READ, on_demand)
        .unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
    assert!(standin.calls_of("ibv_reg_mr_iova2").is_empty());
    drop((pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_peer_writes_into_a_dma_buf() {
    let standin = Standin::start();
    let dmabuf = file(3 * 4096);
    let mut exposed = None;
    let status = write_from_a_peer(b"through the wire", |pd| {
        let memory = pd
            .expose_dmabuf(dmabuf.as_fd(), 4096 + 8, 100, Access::WRITE)
            .unwrap();
        assert_eq!((memory.len(), memory.access()), (100, Access::WRITE));
        let remote = memory.remote();
        assert_eq!((remote.addr(), remote.len()), (4096 + 8, 100));
        exposed = Some(memory);
        remote.part(84, 16).unwrap()
    });
    assert_eq!(status, Status::SUCCESS);
    exposed.unwrap().revoke().unwrap();
    let mut bytes = [0; 3 * 4096];
    dmabuf.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes[4096 + 8 + 84..][..16], b"through the wire");
    assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 16);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_dma_buf_that_cannot_be_reached_is_refused() {
    let standin = Standin::start();
    let mut dmabuf = file(4096);
    dmabuf.write_all(b"here").unwrap();
    let (client, pd) = domain(addr(1));
    for (offset, len) in [(0, 4097), (4096, 1), (u64::MAX, 1), (0, 0)] {
        let error = pd
            .expose_dmabuf(&dmabuf, offset, len, Access::READ)
            .unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidInput,
            "{len} at {offset}: {error}"
        );
    }
    let error = pd
        .expose_dmabuf(&dmabuf, 0, 1 << 32, Access::READ)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    drop((pd, client));

    let (client, pd) = domain(iwarp());
    let error = pd
        .expose_dmabuf(&dmabuf, 0, 4096, Access::READ)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "ibv_reg_dmabuf_mr: the device has no registration of a dma-buf"
    );
    drop((pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn huge_pages_are_pages_of_their_size() {
    // None are reserved on most machines: what comes then is an error with the numbers, and never small pages.
    let standin = Standin::start();
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free = free.ok().and_then(|free| free.trim().parse::<u64>().ok());
    let mapped = MappedMemory::huge(5, HugePage::Mib2);
    match free {
        Some(1..) => assert_eq!(mapped.unwrap().as_ptr() as usize % HugePage::Mib2.size(), 0),
        _ => {
            let error = mapped.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}");
            assert!(
                error.to_string().contains("huge pages of 2048 KiB: 1"),
                "{error}"
            );
        }
    }
    standin.nothing_left();
}
