//! The soft-RDMA devices: `rxe0` on `d0`, `rxe1` on `d1`, and `siw0` on `s0` when that module was given.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    thread,
    time::{Duration, Instant},
};

use crate::{modules, netlink};

/// How long the kernel may take to bring a device up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A link, its address and the device on it.
struct Plan {
    link: &'static str,
    device: &'static str,
    kind: &'static str,
    v4: Ipv4Addr,
    v6: Option<Ipv6Addr>,
}

const RXE: [Plan; 2] = [
    Plan {
        link: "d0",
        device: "rxe0",
        kind: "rxe",
        v4: Ipv4Addr::new(10, 9, 0, 1),
        v6: Some(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)),
    },
    Plan {
        link: "d1",
        device: "rxe1",
        kind: "rxe",
        v4: Ipv4Addr::new(10, 9, 1, 1),
        v6: None,
    },
];

const SIW: Plan = Plan {
    link: "s0",
    device: "siw0",
    kind: "siw",
    v4: Ipv4Addr::new(10, 9, 2, 1),
    v6: Some(Ipv6Addr::new(0xfd09, 2, 0, 0, 0, 0, 0, 1)),
};

/// Brings the loopback link and the RXE devices up and waits until their addresses can be used.
pub(crate) fn set_up() -> Result<(), String> {
    let (mut route, _) = sockets()?;
    netlink::set_up(&mut route, 1).map_err(|error| format!("cannot bring lo up: {error}"))?;
    RXE.iter().try_for_each(add)?;
    RXE.iter().try_for_each(wait_for)
}

/// Makes the soft-iWARP device when its module is among the extra ones, which have been loaded.
pub(crate) fn set_up_extra(folder: &str) -> Result<(), String> {
    if modules::folder_has(folder, SIW.kind) {
        add(&SIW)?;
        wait_until_active(&SIW)
    } else {
        Ok(())
    }
}

fn sockets() -> Result<(fs::File, fs::File), String> {
    netlink::sockets().map_err(|error| format!("cannot open a netlink socket: {error}"))
}

fn add(plan: &Plan) -> Result<(), String> {
    let Plan {
        link,
        device,
        kind,
        v4,
        v6,
    } = plan;
    let (mut route, mut rdma) = sockets()?;
    let steps = || -> io::Result<()> {
        netlink::add_dummy(&mut route, link)?;
        let index = fs::read_to_string(format!("/sys/class/net/{link}/ifindex"))?;
        let index = index.trim().parse().map_err(io::Error::other)?;
        netlink::add_address(&mut route, index, IpAddr::V4(*v4), 24)?;
        if let Some(v6) = v6 {
            netlink::add_address(&mut route, index, IpAddr::V6(*v6), 64)?;
        }
        netlink::add_rdma(&mut rdma, device, kind, link)
    };
    let mut steps = steps;
    steps().map_err(|error| format!("cannot make the RDMA device {device}: {error}"))
}

/// Waits until the port is active. iWARP's one GID is the link's hardware address, and there at once.
fn wait_until_active(plan: &Plan) -> Result<(), String> {
    let start = Instant::now();
    while !is_active(plan) {
        if start.elapsed() > PATIENCE {
            return Err(format!("the RDMA device {} did not come up", plan.device));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn is_active(plan: &Plan) -> bool {
    let state = format!("/sys/class/infiniband/{}/ports/1/state", plan.device);
    fs::read_to_string(state).is_ok_and(|state| state.contains("ACTIVE"))
}

/// Waits until the port is active and its addresses are in the table of GIDs.
fn wait_for(plan: &Plan) -> Result<(), String> {
    let port = format!("/sys/class/infiniband/{}/ports/1", plan.device);
    let wanted: Vec<String> = [Some(plan.v4.to_ipv6_mapped()), plan.v6]
        .into_iter()
        .flatten()
        .map(gid_text)
        .collect();
    let start = Instant::now();
    loop {
        let active = is_active(plan);
        let gids: Vec<String> = (0..8)
            .filter_map(|index| fs::read_to_string(format!("{port}/gids/{index}")).ok())
            .map(|gid| gid.trim().to_owned())
            .collect();
        if active && wanted.iter().all(|gid| gids.contains(gid)) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!(
                "the RDMA device {} did not come up (active: {active}, GIDs: {gids:?})",
                plan.device
            ));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Writes a GID as sysfs does.
fn gid_text(address: Ipv6Addr) -> String {
    address
        .segments()
        .map(|segment| format!("{segment:04x}"))
        .join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_written_as_sysfs_writes_them() {
        assert_eq!(
            gid_text(RXE[0].v4.to_ipv6_mapped()),
            "0000:0000:0000:0000:0000:ffff:0a09:0001"
        );
        assert_eq!(
            gid_text(RXE[0].v6.unwrap()),
            "fd09:0000:0000:0000:0000:0000:0000:0001"
        );
    }
}
