//! The steps that both ends of a connection share while it is made.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::cm::{EventChannel, EventKind};
use crate::error::{Error, ErrorKind, Result};
use crate::os::Deadline;

/// Waits for the event that `wanted` takes something out of. A failure, any other event, and the deadline end the wait.
pub(super) fn await_event<T>(
    channel: &EventChannel,
    deadline: Deadline,
    op: &'static str,
    wanted: impl Fn(EventKind) -> Option<T>,
) -> Result<T> {
    loop {
        let Some(event) = channel.wait_until(deadline)? else {
            return Err(Error::plain(
                op,
                ErrorKind::TimedOut,
                "the peer, or the network, took longer than the time that was given",
            ));
        };
        if let Some(error) = event.failure_of(op) {
            return Err(error);
        }
        match event.kind {
            // News of the connection, and not of the step.
            EventKind::AddrChange | EventKind::TimewaitExit => {}
            kind => {
                let name = format!("{kind:?}");
                return wanted(kind).ok_or_else(|| Error::unexpected(op, name));
            }
        }
    }
}

/// How much time is left: what a step of the connection manager is given.
pub(super) fn time_left(deadline: Deadline) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| {
        deadline.saturating_duration_since(Instant::now())
    })
}

/// Tries `action` with each address that `addrs` stands for, until one works.
pub(super) fn with_each<T>(
    addrs: impl ToSocketAddrs,
    action: impl Fn(SocketAddr) -> Result<T>,
) -> Result<T> {
    let mut last = None;
    let addrs = addrs
        .to_socket_addrs()
        .map_err(|error| Error::resolve(error.to_string()))?;
    for addr in addrs {
        match action(addr) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::resolve("the name stands for no address".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_tried_and_the_last_error_is_told() {
        let addrs: [SocketAddr; 2] = ["10.9.0.1:1".parse().unwrap(), "10.9.0.2:2".parse().unwrap()];
        let error = with_each(&addrs[..], |addr| {
            Err::<(), _>(Error::os("rdma_bind_addr", libc::EADDRINUSE).at(Some(addr), None))
        })
        .unwrap_err();
        assert_eq!(error.local_addr(), Some(addrs[1]));
        let port = with_each(&addrs[..], |addr| Ok(addr.port())).unwrap();
        assert_eq!(port, 1);
    }

    #[test]
    fn a_name_that_is_no_address_says_so() {
        let error = with_each("no port here", |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = with_each(&[][..] as &[SocketAddr], |_| Ok(())).unwrap_err();
        assert!(
            error.to_string().contains("stands for no address"),
            "{error}"
        );
    }
}
