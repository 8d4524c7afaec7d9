//! Joins a multicast group and sends to it, or receives from it: the twin of rdma-core's `mckey`, which it speaks with.
//!
//! Usage: `mckey -m GROUP`, and elsewhere `mckey -m GROUP -s`. Both need the same `-C` and `-S`. Whoever has joined waits three
//! seconds, until switches know.

#[path = "common/events.rs"]
mod events;
#[path = "common/node.rs"]
mod node;
#[path = "common/tool.rs"]
mod tool;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use events::{RESOLVE, Udp};
use node::{Messages, Node};
use rdmacm::{CmId, Event, EventChannel, EventKind, Gid, JoinState, Membership};
use tool::Outcome;

/// How long a join may take to be known everywhere.
const SETTLE: Duration = Duration::from_secs(3);

/// Joins a multicast group and receives from it, or sends to it.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Args {
    /// The group, by name or address
    #[arg(short = 'm', value_name = "GROUP")]
    group: Option<String>,
    /// The group by the transport's own address: not supported
    #[arg(short = 'M', value_name = "GROUP", value_parser = unmapped)]
    _unmapped: Option<String>,
    /// Send to the group
    #[arg(short = 's')]
    sender: bool,
    /// The address of this side
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// How many queue pairs join
    #[arg(short = 'c', value_name = "N", default_value_t = 1)]
    connections: usize,
    /// How many messages each queue pair sends, or gets
    #[arg(short = 'C', value_name = "N", default_value_t = 10)]
    count: u32,
    /// How many bytes a message has
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 100)]
    size: usize,
    /// The port space by its number: 0x111 (UDP)
    #[arg(short = 'p', value_name = "NUMBER", value_parser = Udp::by_number, default_value = "0x111")]
    _number: Udp,
    /// Join to send only
    #[arg(short = 'o')]
    send_only: bool,
    /// Keep messages from receivers on this machine: not supported
    #[arg(short = 'l')]
    no_loopback: bool,
}

fn unmapped(_: &str) -> Result<String, String> {
    Err(
        "groups by the transport's own address (AF_IB) are not supported; -m takes an IP address"
            .to_owned(),
    )
}

fn main() -> ExitCode {
    tool::main(1, 1, run)
}

fn run(args: &Args) -> Outcome {
    if args.no_loopback {
        let text = "-l is not supported: every member on the machine gets what is sent";
        return Err(tool::failure(1, text));
    }
    let channel = EventChannel::new()?;
    let here = args.bind.as_deref().map(|host| tool::host(host, 0));
    let here = here.transpose()?;
    // No name is one without an address.
    let group = tool::host(args.group.as_deref().unwrap_or_default(), 0)?;
    let ids: Result<Vec<_>, _> = (0..args.connections)
        .map(|_| CmId::new_datagram(&channel))
        .collect();
    let mut members: Vec<_> = ids?.into_iter().map(Member::new).collect();
    for Member { id, .. } in &members {
        if let Some(here) = here {
            id.bind_addr(here)?;
        }
        id.resolve_addr(here, group, RESOLVE)?;
    }
    let mut left = members.len();
    while left > 0 {
        let Some(event) = channel.wait(None)? else {
            continue;
        };
        let member = members
            .iter_mut()
            .find(|member| member.id.token() == event.token);
        if let Some(member) = member {
            left -= usize::from(member.step(event, group, args)?);
        }
    }
    thread::scope(|scope| {
        scope.spawn(|| watch(&channel));
        thread::sleep(SETTLE);
        let result = transfer(&mut members, args.sender);
        // Ends the watch.
        channel.wake();
        result
    })?;
    for member in members {
        member.leave()?;
    }
    Ok(())
}

fn transfer(members: &mut [Member], sender: bool) -> Outcome {
    for node in members.iter_mut().filter_map(|member| member.node.as_mut()) {
        if sender {
            node.send()?;
            node.flush()?;
        } else {
            node.receive()?;
        }
    }
    let what = if sender { "sent" } else { "there" };
    println!("every message is {what}");
    Ok(())
}

/// Tells what happens to the groups, until there is a wake.
fn watch(channel: &EventChannel) {
    while let Ok(Some(event)) = channel.wait(None) {
        match event.kind {
            EventKind::MulticastError { .. } | EventKind::AddrChange => {
                println!("event: {:?}", event.kind);
            }
            _ => {}
        }
    }
}

/// A queue pair in the group. The order is the order of dropping.
struct Member {
    membership: Option<Membership>,
    node: Option<Node>,
    id: CmId,
}

impl Member {
    fn new(id: CmId) -> Self {
        Self {
            membership: None,
            node: None,
            id,
        }
    }

    /// Does what follows an event; `true` when the queue pair is in the group.
    fn step(&mut self, event: Event, group: SocketAddr, args: &Args) -> Outcome<bool> {
        events::check(&event)?;
        match (event.kind, &mut self.node) {
            (EventKind::AddrResolved, node) => {
                let messages = Messages::new(args.count, args.size);
                let node = node.insert(Node::new(&self.id, messages)?);
                if !args.sender {
                    node.post_receives()?;
                }
                let state = if args.send_only {
                    JoinState::SendOnlyFullMember
                } else {
                    JoinState::FullMember
                };
                self.membership = Some(self.id.join_multicast(group.ip(), state)?);
            }
            (EventKind::MulticastJoined { destination, .. }, Some(node)) => {
                let address = destination.address();
                let gid = address.dgid().map(Gid::to_ip);
                let gid = gid.map_or("none".to_owned(), |gid| gid.to_string());
                let (lid, level) = (address.dlid(), address.service_level());
                println!("joined: GID {gid}, LID {lid:#x}, service level {level}");
                node.aim(&destination)?;
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    fn leave(self) -> Outcome {
        if let Some(membership) = self.membership {
            membership.leave()?;
        }
        if let Some(node) = self.node {
            node.close()?;
        }
        Ok(())
    }
}
