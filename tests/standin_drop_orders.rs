//! Every order in which a server's objects can be dropped: no call that the stand-in objects to, no wait, nothing left.

mod standin;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    CmId, CompletionQueue, ConnRequest, Context, EventChannel, EventKind, ProtectionDomain,
    QueuePair,
};
use standin::{Peer, Server, Standin, next_event, small_qp};

/// How often each order is tried: `STANDIN_ROUNDS`, or 100.
fn rounds() -> usize {
    match std::env::var("STANDIN_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("STANDIN_ROUNDS is a number"),
        Err(_) => 100,
    }
}

/// Of how many rounds one has nobody else to keep the device open: its last object takes the device's anchor along. That
/// takes more system calls than everything else.
const LONELY: usize = 10;

/// What is dropped.
const THINGS: usize = 7;

/// One of each thing, and the peers that keep the server company.
struct Round {
    listener: Option<CmId>,
    request: Option<ConnRequest>,
    accepted: Option<CmId>,
    qp: Option<QueuePair>,
    cq: Option<CompletionQueue>,
    pd: Option<ProtectionDomain>,
    channel: Option<EventChannel>,
    _peers: [Peer; 2],
}

impl Round {
    /// `unread`: the accepted end's ESTABLISHED stays on the channel.
    fn new(standin: &Standin, unread: bool) -> Self {
        let Server { id, channel } = Server::start();
        let to: SocketAddr = id.local_addr().unwrap();
        let first = standin.peer(to, (1, 1), b"first");
        let EventKind::ConnectRequest(request) = next_event(&channel).kind else {
            panic!("not a request");
        };
        let context = request.context().unwrap();
        let (pd, cq, qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
        let accepted = request.accept().unwrap();
        if !unread {
            assert!(matches!(
                next_event(&channel).kind,
                EventKind::Established(_)
            ));
        }
        let second = standin.peer(to, (1, 1), b"second");
        let request = loop {
            if let EventKind::ConnectRequest(request) = next_event(&channel).kind {
                break request;
            }
        };
        Self {
            listener: Some(id),
            request: Some(request),
            accepted: Some(accepted),
            qp: Some(qp),
            cq: Some(cq),
            pd: Some(pd),
            channel: Some(channel),
            _peers: [first, second],
        }
    }

    fn drop_one(&mut self, thing: usize) {
        match thing {
            0 => drop(self.listener.take()),
            1 => drop(self.request.take()),
            2 => drop(self.accepted.take()),
            3 => drop(self.qp.take()),
            4 => drop(self.cq.take()),
            5 => drop(self.pd.take()),
            6 => drop(self.channel.take()),
            _ => unreachable!("there are {THINGS} things"),
        }
    }
}

/// Every order of the things.
fn orders() -> Vec<[usize; THINGS]> {
    fn permute(order: &mut [usize; THINGS], from: usize, orders: &mut Vec<[usize; THINGS]>) {
        if from == THINGS {
            orders.push(*order);
        }
        for place in from..THINGS {
            order.swap(from, place);
            permute(order, from + 1, orders);
            order.swap(from, place);
        }
    }
    let mut orders = Vec::new();
    permute(&mut std::array::from_fn(|thing| thing), 0, &mut orders);
    assert_eq!(orders.len(), 5040);
    orders
}

/// The device of a new round, held until the result is dropped.
fn held_device(standin: &Standin) -> Context {
    let round = Round::new(standin, false);
    round.request.as_ref().unwrap().context().unwrap()
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn all_orders_on_one_thread() {
    let standin = Standin::start();
    standin.patience(Duration::from_secs(30));
    let (start, orders) = (Instant::now(), orders());
    let try_order = |order: [usize; THINGS], number: usize| {
        let mut round = Round::new(&standin, number % 2 == 1);
        for thing in order {
            round.drop_one(thing);
        }
    };
    // Two threads at once, but each round on one.
    let try_orders = |orders: &[[usize; THINGS]]| {
        for number in 0..rounds() {
            let _held = (number % LONELY != 0).then(|| held_device(&standin));
            for order in orders {
                try_order(*order, number);
            }
        }
    };
    let (half, rest) = orders.split_at(orders.len() / 2);
    thread::scope(|scope| {
        scope.spawn(|| try_orders(half));
        scope.spawn(|| try_orders(rest));
    });
    standin.nothing_left();
    println!(
        "5040 orders, {} rounds each: {:?}",
        rounds(),
        start.elapsed()
    );
}

/// Rounds of one order on their way from thread to thread.
type Batch = ([usize; THINGS], Vec<Round>);

/// Starts a thread that drops the thing whose turn is `turn`, and passes the rounds on.
fn dropper(
    turn: usize,
    from: Receiver<Batch>,
    to: Option<SyncSender<Batch>>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for (order, mut rounds) in from {
            for round in &mut rounds {
                round.drop_one(order[turn]);
            }
            if let Some(to) = &to {
                to.send((order, rounds)).unwrap();
            }
        }
    })
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn all_orders_with_each_drop_on_another_thread() {
    let standin = Standin::start();
    standin.patience(Duration::from_secs(30));
    let start = Instant::now();
    let (first, mut next) = sync_channel(2);
    let mut droppers = Vec::new();
    for turn in 0..THINGS {
        let (to, later) = sync_channel(2);
        let to = (turn + 1 < THINGS).then_some(to);
        droppers.push(dropper(turn, next, to));
        next = later;
    }
    let orders = orders();
    // As many at once as make the hand-overs cheap.
    for batch in (0..rounds()).collect::<Vec<_>>().chunks(LONELY) {
        let held = (batch[0] > 0).then(|| held_device(&standin));
        for order in &orders {
            let rounds = batch
                .iter()
                .map(|number| Round::new(&standin, number % 2 == 1))
                .collect();
            first.send((*order, rounds)).unwrap();
        }
        drop(held);
    }
    drop(first);
    for dropper in droppers {
        dropper.join().unwrap();
    }
    standin.nothing_left();
    println!(
        "5040 orders, {} rounds each: {:?}",
        rounds(),
        start.elapsed()
    );
}
