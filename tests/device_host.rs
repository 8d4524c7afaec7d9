//! What a machine withholds from a program although it has a device, on soft-RoCE (rxe).
#![expect(unsafe_code, reason = "takes rights and networks from threads")]

mod common;

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use common::cm::{Listening, RESOLVE, event, pair};
use common::{PlainNetdev, device, in_time};
use rdmacm::{CmId, Connection, ErrorKind, EventChannel, EventKind};

/// The device node with other rights, until the test ends.
struct Node {
    before: Permissions,
}

impl Node {
    const PATH: &str = "/dev/infiniband/rdma_cm";

    fn with_mode(mode: u32) -> Self {
        let before = fs::metadata(Self::PATH).expect("the node").permissions();
        fs::set_permissions(Self::PATH, Permissions::from_mode(mode)).expect("root's rights");
        Self { before }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        fs::set_permissions(Self::PATH, self.before.clone()).expect("root's rights");
    }
}

/// Runs `action` on a thread that is the user nobody.
fn as_nobody<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> T {
    let nobody = thread::spawn(|| {
        // SAFETY: a system call with three numbers. Bare, it changes this thread only, which ends with `action`.
        let returned = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(returned, 0, "this test must be root");
        action()
    });
    nobody.join().expect("no panic")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_node_that_may_not_be_opened_is_named() {
    device();
    in_time("the device node", || {
        let node = Node::with_mode(0o600);
        let (channel, connection) = as_nobody(|| {
            let connection = Connection::connect("10.9.0.1:7471").map(drop);
            (EventChannel::new().map(drop), connection)
        });
        for error in [channel.unwrap_err(), connection.unwrap_err()] {
            // The library reports ENOENT, and not EACCES.
            assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
            assert_eq!(error.op(), "rdma_create_event_channel");
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
            let text = error.to_string();
            assert!(text.contains("/dev/infiniband/rdma_cm"), "{text}");
            assert!(text.contains("modprobe rdma_ucm"), "{text}");
            assert!(text.contains("let this user open it"), "{text}");
        }
        // Who may open it has no trouble, and with the rights back nobody has.
        pair(&Listening::new());
        drop(node);
        as_nobody(|| EventChannel::new().map(drop)).unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn in_another_network_namespace_there_is_no_device() {
    device();
    in_time("a network namespace", || {
        let elsewhere = thread::spawn(|| {
            // SAFETY: a system call with one number. It moves this thread only, which ends soon.
            let returned = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(returned, 0, "this test must be root");
            // rxe: the device is in the first namespace only (Linux before 2026).
            let _plain = PlainNetdev::new();
            let channel = EventChannel::new().expect("the node is there");
            let id = CmId::new(&channel).unwrap();
            let local = SocketAddr::new(PlainNetdev::ADDR.parse().unwrap(), 0);
            let error = id.bind_addr(local).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV));

            let id = CmId::new(&channel).unwrap();
            let peer = SocketAddr::new(PlainNetdev::PEER.parse().unwrap(), 7471);
            id.resolve_addr(None, peer, RESOLVE).unwrap();
            let event = event(&channel);
            assert!(
                matches!(event.kind, EventKind::AddrError(status) if status.as_raw() == -libc::ENODEV),
                "{event:?}"
            );
        });
        elsewhere.join().expect("no panic");
        pair(&Listening::new());
    });
}
