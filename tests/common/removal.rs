//! The removal of the second soft-RoCE device.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{ADDR_OF_SECOND, PATIENCE, eventually, netdev_of, run};

pub(crate) const DEVICE: &str = "rxe1";

/// The device's removal, which waits in the kernel until nothing uses the device. Dropped, it waits a while for that, and adds
/// the device again.
pub(crate) struct Removal {
    child: Child,
    netdev: String,
}

impl Removal {
    pub(crate) fn start() -> Self {
        let netdev = netdev_of(ADDR_OF_SECOND);
        let child = Command::new("rdma")
            .args(["link", "del", DEVICE])
            .stdin(Stdio::null())
            .spawn()
            .expect("`rdma` of iproute2 is needed");
        Self { child, netdev }
    }

    /// Waits until the kernel does not list the device any more, which is before anybody has let go of it.
    pub(crate) fn must_begin(&self) {
        eventually("the device is off the list", || {
            let output = run(Command::new("rdma").args(["dev", "show"]));
            assert!(output.status.success(), "rdma dev show: {output:?}");
            let listed = String::from_utf8_lossy(&output.stdout);
            !listed
                .split_whitespace()
                .any(|word| word == format!("{DEVICE}:"))
        });
    }

    pub(crate) fn is_over(&mut self) -> bool {
        match self.child.try_wait().expect("its own child") {
            Some(status) => {
                assert!(status.success(), "rdma link del: {status}");
                true
            }
            None => false,
        }
    }

    pub(crate) fn must_end(&mut self, what: &str) {
        eventually(what, || self.is_over());
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        // One that never ends cannot even be killed: then the device stays away, and the tests after this one say so.
        let start = Instant::now();
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if start.elapsed() > PATIENCE {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let args = ["link", "add", DEVICE, "type", "rxe", "netdev", &self.netdev];
        let added = Command::new("rdma").args(args).status();
        assert!(
            thread::panicking() || added.is_ok_and(|status| status.success()),
            "{DEVICE} is not back"
        );
    }
}
