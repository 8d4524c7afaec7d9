//! What the first call says on a machine without an RDMA device; on one that has a device, that it says nothing of the kind.

use std::io;

use rdmacm::{Connection, ErrorKind, EventChannel, Listener};

fn has_device() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
fn a_channel_opens_only_where_there_is_a_device_and_otherwise_says_what_to_do() {
    let opened = EventChannel::new();
    if has_device() {
        opened.expect("the machine has an RDMA device");
        return;
    }
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert_eq!(error.op(), "rdma_create_event_channel");
    let errno = error.raw_os_error();
    assert!(
        matches!(errno, Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS)),
        "{errno:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("rdma link") || text.contains("modprobe rdma_ucm"),
        "{text}"
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
}

#[test]
fn the_loopback_interface_has_no_device_in_the_blocking_layer_either() {
    let listened = Listener::bind("127.0.0.1:0").map(|_| ()).unwrap_err();
    assert_eq!(listened.kind(), ErrorKind::NoDevice, "{listened}");
    let connected = Connection::connect("127.0.0.1:7471")
        .map(|_| ())
        .unwrap_err();
    assert_eq!(connected.kind(), ErrorKind::NoDevice, "{connected}");
}

#[test]
fn an_address_that_is_none_is_found_before_the_device() {
    let error = Listener::bind("not an address").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.op(), "getaddrinfo");
    assert_eq!(error.raw_os_error(), None);
}
