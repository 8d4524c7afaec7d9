//! Just enough netlink to make links, give them addresses, and make soft-RDMA devices on them.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::IpAddr,
};

use crate::sys;

const NLM_F_REQUEST_ACK: u16 = 5;
const NLM_F_CREATE_EXCL: u16 = 0x600;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18 | 0x8000;
const IFLA_INFO_KIND: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RDMA_NLDEV_NEWLINK: u16 = (5 << 10) + 3;
const RDMA_ATTR_DEV_NAME: u16 = 2;
const RDMA_ATTR_NDEV_NAME: u16 = 0x33;
const RDMA_ATTR_LINK_TYPE: u16 = 0x41;

/// Brings up the link with that index.
pub(crate) fn set_up(socket: &mut File, index: u32) -> io::Result<()> {
    request(socket, RTM_NEWLINK, 0, &link_info(index))
}

/// Makes a dummy link, up at once.
pub(crate) fn add_dummy(socket: &mut File, name: &str) -> io::Result<()> {
    let mut body = link_info(0);
    attribute(&mut body, IFLA_IFNAME, &terminated(name));
    let mut kind = Vec::new();
    attribute(&mut kind, IFLA_INFO_KIND, &terminated("dummy"));
    attribute(&mut body, IFLA_LINKINFO, &kind);
    request(socket, RTM_NEWLINK, NLM_F_CREATE_EXCL, &body)
}

/// Gives a link an address, without duplicate address detection.
pub(crate) fn add_address(
    socket: &mut File,
    index: u32,
    address: IpAddr,
    prefix: u8,
) -> io::Result<()> {
    let (family, bytes) = match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    };
    let flags = if family == AF_INET6 { IFA_F_NODAD } else { 0 };
    let mut body = vec![family, prefix, flags, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, &bytes);
    attribute(&mut body, IFA_ADDRESS, &bytes);
    request(socket, RTM_NEWADDR, NLM_F_CREATE_EXCL, &body)
}

/// Makes a soft-RDMA device of a kind (`rxe`, `siw`) on a link; `socket` speaks `NETLINK_RDMA`.
pub(crate) fn add_rdma(socket: &mut File, name: &str, kind: &str, link: &str) -> io::Result<()> {
    let mut body = Vec::new();
    attribute(&mut body, RDMA_ATTR_DEV_NAME, &terminated(name));
    attribute(&mut body, RDMA_ATTR_LINK_TYPE, &terminated(kind));
    attribute(&mut body, RDMA_ATTR_NDEV_NAME, &terminated(link));
    request(socket, RDMA_NLDEV_NEWLINK, 0, &body)
}

/// A `struct ifinfomsg` that brings the link up.
fn link_info(index: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend_from_slice(&IFF_UP.to_ne_bytes());
    body.extend_from_slice(&IFF_UP.to_ne_bytes());
    body
}

fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("attributes here are a few bytes long");
    to.extend_from_slice(&length.to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length =
        u32::try_from(16 + body.len()).expect("messages here are a few hundred bytes long");
    let mut bytes = Vec::with_capacity(16 + body.len());
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST_ACK | flags).to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(body);
    bytes
}

fn request(socket: &mut File, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    socket.write_all(&message(kind, flags, body))?;
    let mut answer = [0; 4096];
    let length = socket.read(&mut answer)?;
    match acknowledged(&answer[..length]) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not an acknowledgement",
        )),
    }
}

/// Reads the errno (0: done) from an acknowledgement.
fn acknowledged(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then(|| code.wrapping_neg())
}

/// Makes the two sockets: one for links and addresses, one for RDMA devices.
pub(crate) fn sockets() -> io::Result<(File, File)> {
    Ok((
        sys::netlink(sys::NETLINK_ROUTE)?,
        sys::netlink(sys::NETLINK_RDMA)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_their_length_is_not() {
        let mut bytes = Vec::new();
        attribute(&mut bytes, IFLA_IFNAME, &terminated("d0"));
        assert_eq!(bytes, [7, 0, 3, 0, b'd', b'0', 0, 0]);
    }

    #[test]
    fn a_message_states_its_length_and_asks_for_an_answer() {
        let bytes = message(RDMA_NLDEV_NEWLINK, 0, &[1, 2, 3, 4]);
        assert_eq!(bytes[..8], [20, 0, 0, 0, 3, 20, 5, 0]);
        assert_eq!(bytes.len(), 20);
    }

    #[test]
    fn an_acknowledgement_holds_a_negated_errno() {
        let mut answer = message(NLMSG_ERROR, 0, &(-17i32).to_ne_bytes());
        assert_eq!(acknowledged(&answer), Some(17));
        answer[4] = 3;
        assert_eq!(acknowledged(&answer), None);
        assert_eq!(acknowledged(&answer[..10]), None);
    }
}
