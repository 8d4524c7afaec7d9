//! The two sides: both go from event to event until all connections stand, and from there through their messages to the end.

use std::collections::HashMap;
use std::thread;

use rdmacm::{
    CmId, ConnParam, ConnRequest, Event, EventChannel, EventKind, RetryCount, RnrRetry, Token,
};

use crate::Args;
use crate::events::{self, RESOLVE};
use crate::node::{Node, Traffic};
use crate::tool::Outcome;

/// How often completions are polled in vain between two looks at the channel, which are calls into the kernel.
const POLLS: u32 = 1000;

/// All connections of a side. The order is the order of dropping.
struct Test<'a> {
    nodes: Vec<Node>,
    places: HashMap<Token, usize>,
    channel: EventChannel,
    args: &'a Args,
    connects_left: u32,
    disconnects_left: u32,
}

pub(crate) fn server(args: &Args) -> Outcome {
    let addr = events::local(args.bind.as_deref(), args.port, args.format)?;
    let mut test = Test::new(args)?;
    let listener = CmId::new(&test.channel)?;
    listener.bind_addr(addr)?;
    listener.listen(0)?;
    println!("listening on {}", listener.local_addr().unwrap_or(addr));
    test.connect()?;
    if args.count() > 0 {
        println!("sending");
        test.send()?;
        test.complete(|traffic| traffic.sent)?;
        println!("receiving");
        test.complete(|traffic| traffic.received)?;
    }
    if args.migrate {
        test.migrate()?;
    }
    println!("disconnecting");
    for node in &mut test.nodes {
        if std::mem::take(&mut node.connected) {
            node.id.disconnect()?;
        }
    }
    test.disconnect()?;
    test.close()
}

pub(crate) fn client(args: &Args, server: &str) -> Outcome {
    let server = args.format.find(server, args.port)?;
    let bind = args.bind.as_deref().map(|bind| args.format.find(bind, 0));
    let bind = bind.transpose()?;
    let mut test = Test::new(args)?;
    for _ in 0..args.connections {
        let id = CmId::new(&test.channel)?;
        test.add(Node::new(id, None));
    }
    println!("connecting to {server}");
    for node in &test.nodes {
        node.id.resolve_addr(bind, server, RESOLVE)?;
    }
    test.connect()?;
    if args.count() > 0 {
        println!("receiving");
        test.complete(|traffic| traffic.received)?;
        println!("sending");
        test.send()?;
    }
    if args.migrate {
        test.migrate()?;
    }
    test.disconnect()?;
    test.close()
}

impl<'a> Test<'a> {
    fn new(args: &'a Args) -> Outcome<Self> {
        Ok(Self {
            nodes: Vec::new(),
            places: HashMap::new(),
            channel: EventChannel::new()?,
            args,
            connects_left: args.connections,
            disconnects_left: 0,
        })
    }

    fn add(&mut self, node: Node) {
        self.places.insert(node.id.token(), self.nodes.len());
        self.nodes.push(node);
    }

    /// Goes from event to event until all connections stand.
    fn connect(&mut self) -> Outcome {
        while self.connects_left > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Goes from event to event until no connection stands.
    fn disconnect(&mut self) -> Outcome {
        while self.disconnects_left > 0 {
            self.wait()?;
        }
        println!("disconnected");
        Ok(())
    }

    fn wait(&mut self) -> Outcome {
        match self.channel.wait(None)? {
            Some(event) => self.on_event(event),
            None => Ok(()),
        }
    }

    fn on_event(&mut self, event: Event) -> Outcome {
        let failed = events::check(&event);
        let kind = match event.kind {
            EventKind::ConnectRequest(request) => return self.accept(request),
            other => other,
        };
        let place = self.places.get(&event.token).copied();
        let Some(node) = place.and_then(|place| self.nodes.get_mut(place)) else {
            // Of the listener, or of an id that was not accepted.
            return Ok(());
        };
        match kind {
            EventKind::AddrResolved => return resolve_route(self.args, node),
            EventKind::RouteResolved => return connect(self.args, node),
            EventKind::Established(_) => {
                node.connected = true;
                self.connects_left -= 1;
                self.disconnects_left += 1;
            }
            EventKind::Disconnected(_) => {
                node.connected = false;
                self.disconnects_left = self.disconnects_left.saturating_sub(1);
            }
            _ => {}
        }
        failed
    }

    /// Accepts a request, if it is not one too many.
    fn accept(&mut self, request: ConnRequest) -> Outcome {
        if self.nodes.len() == self.args.connections as usize {
            eprintln!("rejecting a connection more than {}", self.nodes.len());
            return Ok(request.reject(b"")?);
        }
        let traffic = Traffic::new(self.args, &request.context()?, |pd, init| {
            request.create_qp(pd, init)
        })?;
        if let Some(timeout) = self.args.ack_timeout {
            request.id().set_ack_timeout(timeout)?;
        }
        let id = request.accept()?;
        self.add(Node::new(id, Some(traffic)));
        Ok(())
    }

    /// Sends all messages over all connections.
    fn send(&mut self) -> Outcome {
        for node in self.nodes.iter_mut().filter(|node| node.connected) {
            if let Some(traffic) = &mut node.traffic {
                traffic.send()?;
            }
        }
        Ok(())
    }

    /// Polls until each connection has counted all its messages of a kind.
    fn complete(&mut self, counted: impl Fn(&Traffic) -> u32) -> Outcome {
        let wanted = self.args.count();
        for place in 0..self.nodes.len() {
            let mut idle = 0;
            while let Some(traffic) = &mut self.nodes[place].traffic {
                if counted(traffic) >= wanted {
                    break;
                }
                if traffic.poll()? {
                    continue;
                }
                idle += 1;
                thread::yield_now();
                if idle % POLLS == 0 {
                    self.stands(place)?;
                }
            }
        }
        Ok(())
    }

    /// Takes what events there are; an error when a connection has ended that messages are still to come over.
    fn stands(&mut self, place: usize) -> Outcome {
        while let Some(event) = self.channel.try_event()? {
            self.on_event(event)?;
        }
        if self.nodes[place].connected {
            return Ok(());
        }
        Err("the peer has ended a connection before all its messages came".into())
    }

    /// Moves all connections to another channel, where their next events come. A listener stays: it has all that it waited for.
    fn migrate(&mut self) -> Outcome {
        println!("moving to another event channel");
        let channel = EventChannel::new()?;
        for node in &self.nodes {
            node.id.migrate(&channel)?;
        }
        self.channel = channel;
        Ok(())
    }

    /// Ends all queue pairs in order.
    fn close(self) -> Outcome {
        for traffic in self.nodes.into_iter().filter_map(|node| node.traffic) {
            traffic.close()?;
        }
        println!("done");
        Ok(())
    }
}

fn resolve_route(args: &Args, node: &Node) -> Outcome {
    if let Some(tos) = args.tos {
        node.id.set_tos(tos)?;
    }
    if let Some(timeout) = args.ack_timeout {
        node.id.set_ack_timeout(timeout)?;
    }
    Ok(node.id.resolve_route(RESOLVE)?)
}

fn connect(args: &Args, node: &mut Node) -> Outcome {
    let id = &node.id;
    let traffic = Traffic::new(args, &id.context()?, |pd, init| id.create_qp(pd, init))?;
    node.traffic = Some(traffic);
    let param = ConnParam::new()
        .responder_resources(1)
        .initiator_depth(1)
        .rnr_retry(RnrRetry::NEVER)
        .retry_count(RetryCount::new(5).unwrap_or_default());
    Ok(node.id.connect(param)?)
}
