//! The machine's own RDMA devices: which address leads to one of them.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
    path::Path,
    process::Command,
};

use anyhow::{Result, bail};
use softroce::host;

/// An RDMA device of the machine, and an address that the connection manager resolves to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnDevice {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// Finds the first of the machine's own devices that has an address.
pub(crate) fn find() -> Result<OwnDevice> {
    let names = host::rdma_devices();
    if names.is_empty() {
        bail!("this machine has no RDMA device; without --device a micro-VM brings its own");
    }
    for name in &names {
        if let Some(address) = address(name) {
            return Ok(OwnDevice {
                name: name.clone(),
                address,
            });
        }
    }
    bail!(
        "no RDMA device of this machine ({}) has an IP address: give its network interface one with `ip addr add`, or leave out --device",
        names.join(", ")
    )
}

/// Looks first at a device's GIDs, which on RoCE are its addresses, then at its network interface's addresses.
fn address(device: &str) -> Option<IpAddr> {
    let device = Path::new("/sys/class/infiniband").join(device);
    let ports = fs::read_dir(device.join("ports")).ok()?.flatten();
    let gids: Vec<String> = ports
        .flat_map(|port| {
            fs::read_dir(port.path().join("gids"))
                .into_iter()
                .flatten()
                .flatten()
        })
        .filter_map(|gid| fs::read_to_string(gid.path()).ok())
        .collect();
    if let Some(address) = best(gids.iter().filter_map(|gid| of_gid(gid))) {
        return Some(address);
    }
    let interfaces = fs::read_dir(device.join("device/net")).ok()?.flatten();
    best(interfaces.flat_map(|interface| {
        let shown = Command::new("ip")
            .args(["-o", "addr", "show", "dev"])
            .arg(interface.file_name())
            .output();
        let shown = shown
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        shown.lines().filter_map(of_ip_line).collect::<Vec<_>>()
    }))
}

/// IPv4 before IPv6; link-local addresses need a scope, so they do not count.
fn best(addresses: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    addresses.filter(usable).min_by_key(IpAddr::is_ipv6)
}

fn usable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_unicast_link_local() && !v6.is_multicast(),
    }
}

/// Reads a GID such as `0000:0000:0000:0000:0000:ffff:0a09:0001`. Only some GIDs are addresses: those that map an
/// IPv4 address, and global IPv6 ones. InfiniBand's begin with fe80 unless a subnet prefix was set.
fn of_gid(gid: &str) -> Option<IpAddr> {
    let gid: Ipv6Addr = gid.trim().parse().ok()?;
    Some(gid.to_canonical())
}

/// Reads a line of `ip -o addr show`, such as `2: eth0    inet 10.0.0.5/24 brd 10.0.0.255 scope global eth0 ...`.
fn of_ip_line(line: &str) -> Option<IpAddr> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| !matches!(*word, "inet" | "inet6"));
    words.next()?;
    words.next()?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gids_of_a_roce_port_give_its_address() {
        let gids = [
            "fe80:0000:0000:0000:d8a6:c8ff:fe3e:2d01\n",
            "fd09:0000:0000:0000:0000:0000:0000:0001\n",
            "0000:0000:0000:0000:0000:ffff:0a09:0001\n",
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
        ];
        let v4 = "10.9.0.1".parse().ok();
        let v6 = "fd09::1".parse().ok();
        assert_eq!(best(gids.iter().filter_map(|gid| of_gid(gid))), v4);
        assert_eq!(best(gids[..2].iter().filter_map(|gid| of_gid(gid))), v6);
        assert_eq!(best(gids[..1].iter().filter_map(|gid| of_gid(gid))), None);
    }

    #[test]
    fn lines_of_ip_are_read() {
        let v4 = "2: eth0    inet 10.0.0.5/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever";
        let v6 = "2: ib0    inet6 fd00::5/64 scope global \\       valid_lft forever preferred_lft forever";
        assert_eq!(of_ip_line(v4), "10.0.0.5".parse().ok());
        assert_eq!(of_ip_line(v6), "fd00::5".parse().ok());
        assert_eq!(of_ip_line("Device \"eth9\" does not exist."), None);
    }
}
