//! Sends datagrams there and back: the twin of rdma-core's `udaddy`, which it speaks with.
//!
//! Usage: `udaddy [-b ADDR]`, and elsewhere `udaddy -s ADDR`. Both need the same `-c`, `-C` and `-S`. The server learns where to
//! answer from the first message: its header has the address, and its immediate value the queue pair.

#[path = "common/events.rs"]
mod events;
#[path = "common/node.rs"]
mod node;
#[path = "common/tool.rs"]
mod tool;

use std::process::ExitCode;

use clap::Parser;
use events::{Format, RESOLVE, Udp};
use node::{Messages, Node};
use rdmacm::{CmId, Error, Event, EventChannel, EventKind, LookupRequest};
use tool::Outcome;

const PORT: u16 = 7174;

/// Sends datagrams to a server and gets as many back; without -s, is that server.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Args {
    /// The server to send to, by name or address
    #[arg(short = 's', value_name = "SERVER")]
    server: Option<String>,
    /// The address of this side
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// How addresses are written: name, ip or ipv6
    #[arg(short = 'f', value_name = "FORMAT", value_parser = Format::read, default_value = "name")]
    format: Format,
    /// The port space: udp
    #[arg(short = 'P', value_name = "NAME", value_parser = Udp::by_name, default_value = "udp")]
    _port_space: Udp,
    /// How many queue pairs on each side
    #[arg(short = 'c', value_name = "N", default_value_t = 1)]
    connections: usize,
    /// How many messages each queue pair sends
    #[arg(short = 'C', value_name = "N", default_value_t = 10)]
    count: u32,
    /// How many bytes a message has
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 100)]
    size: usize,
    /// The type of service of the client's packets
    #[arg(short = 't', value_name = "TOS", value_parser = tool::byte)]
    tos: Option<u8>,
    /// The port space by its number: 0x111 (UDP)
    #[arg(short = 'p', value_name = "NUMBER", value_parser = Udp::by_number, default_value = "0x111")]
    _number: Udp,
}

fn main() -> ExitCode {
    tool::main(1, 1, |args: &Args| {
        let messages = Messages::new(args.count, args.size);
        match &args.server {
            Some(server) => ask(args, server, messages),
            None => serve(args, messages),
        }
    })
}

fn serve(args: &Args, messages: Messages) -> Outcome {
    let channel = EventChannel::new()?;
    let listener = CmId::new_datagram(&channel)?;
    let addr = events::local(args.bind.as_deref(), PORT, args.format)?;
    listener.bind_addr(addr)?;
    listener.listen(0)?;
    println!("listening on {addr}");
    let mut nodes = Vec::new();
    while nodes.len() < args.connections {
        let event = channel.wait(None)?.map(|event| event.kind);
        if let Some(EventKind::LookupRequest(request)) = event {
            nodes.push(answer(request, messages)?);
        }
    }
    for node in &mut nodes {
        node.receive()?;
    }
    println!("every message is there");
    for node in &mut nodes {
        node.send()?;
    }
    for node in &mut nodes {
        node.flush()?;
    }
    println!("every answer is sent");
    close(nodes)
}

/// Makes a queue pair for one who asks, and tells its number. A failure rejects.
fn answer(request: LookupRequest, messages: Messages) -> Outcome<Node> {
    let mut node = Node::new(request.id(), messages)?;
    node.post_receives()?;
    request.accept(node.qp_num(), b"").map_err(Error::from)?;
    Ok(node)
}

fn ask(args: &Args, server: &str, messages: Messages) -> Outcome {
    let channel = EventChannel::new()?;
    let there = args.format.find(server, PORT)?;
    let here = args.bind.as_deref();
    let here = here.map(|host| args.format.find(host, 0));
    let here = here.transpose()?;
    let ids: Result<Vec<_>, _> = (0..args.connections)
        .map(|_| CmId::new_datagram(&channel))
        .collect();
    let mut ends: Vec<_> = ids?.into_iter().map(|id| (None, id)).collect();
    for (_, id) in &ends {
        id.resolve_addr(here, there, RESOLVE)?;
    }
    let mut left = ends.len();
    while left > 0 {
        let Some(event) = channel.wait(None)? else {
            continue;
        };
        let end = ends.iter_mut().find(|(_, id)| id.token() == event.token);
        if let Some((node, id)) = end {
            left -= usize::from(step(node, id, event, args.tos, messages)?);
        }
    }
    println!("every queue pair of the server is known");
    let mut nodes: Vec<_> = ends.into_iter().filter_map(|(node, _)| node).collect();
    for node in &mut nodes {
        node.send()?;
    }
    for node in &mut nodes {
        node.receive()?;
    }
    println!("every answer is there");
    close(nodes)
}

/// Does what follows an event; `true` when the id has found its queue pair.
fn step(
    node: &mut Option<Node>,
    id: &CmId,
    event: Event,
    tos: Option<u8>,
    messages: Messages,
) -> Outcome<bool> {
    events::check(&event)?;
    match (event.kind, node) {
        (EventKind::AddrResolved, _) => {
            if let Some(tos) = tos {
                id.set_tos(tos)?;
            }
            id.resolve_route(RESOLVE)?;
        }
        (EventKind::RouteResolved, node) => {
            node.insert(Node::new(id, messages)?).post_receives()?;
            id.look_up(b"")?;
        }
        (EventKind::LookedUp(there), Some(node)) => {
            node.aim(&there)?;
            return Ok(true);
        }
        _ => {}
    }
    Ok(false)
}

fn close(nodes: Vec<Node>) -> Outcome {
    for node in nodes {
        node.close()?;
    }
    Ok(())
}
