//! Orders in which a server's objects can be dropped, on soft-RoCE (rxe): no crash, no wait, nothing left.
//!
//! By default a sample; `RDMACM_FULL=1` takes all 5,040 orders on one thread, and 2,000 random ones across threads.

mod common;

use std::any::Any;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use common::cm::{DEPTH, End, Listening, disconnected, established, rejected};
use common::load::{Held, Random, full, patience};
use common::{device, within};
use rdmacm::QueuePairInit;

/// The listener, a request, an accepted id, its queue pair, completion queue and domain, and the channel of them all.
const NAMES: [&str; 7] = ["listener", "request", "id", "qp", "cq", "pd", "channel"];
const ORDERS: u64 = 5040;

type Thing = Box<dyn Any + Send>;

/// Makes the seven, and the two clients at the other ends: of the request, and of the accepted id.
fn things() -> ([Thing; 7], [End; 2]) {
    let listening = Listening::new();
    let addr = listening.addr();
    let accepted = End::connecting(addr);
    let request = listening.request();
    let context = request.context().expect("a device");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq_with_channel(2 * DEPTH).expect("a queue");
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH);
    let mut qp = request.create_qp(&pd, &init).expect("a queue pair");
    // Something is posted to it, and its pool is gone already.
    let pool = pd.pool(2, 64).expect("a pool");
    qp.recv.post(pool.take().expect("free"), 0).expect("post");
    let server = request.accept().expect("accept");
    established(&accepted.channel);
    established(&listening.channel);
    let waiting = End::connecting(addr);
    let request = listening.request();
    let Listening {
        id: listener,
        channel,
    } = listening;
    let things: [Thing; 7] = [
        Box::new(listener),
        Box::new(request),
        Box::new(server),
        Box::new(qp),
        Box::new(cq),
        Box::new(pd),
        Box::new(channel),
    ];
    (things, [waiting, accepted])
}

/// The `number`-th of the orders of seven.
fn order(number: u64) -> [usize; 7] {
    let mut left: Vec<usize> = (0..7).collect();
    let mut number = number;
    [7, 6, 5, 4, 3, 2, 1].map(|choices| {
        let choice = usize::try_from(number % choices).expect("small");
        number /= choices;
        left.remove(choice)
    })
}

/// What the clients see in the end, whatever the order was.
fn clients_are_told([waiting, accepted]: [End; 2], order: &[usize]) {
    let names = || order.iter().map(|&place| NAMES[place]).collect::<Vec<_>>();
    let reason = rejected(&waiting.channel).reason().as_raw();
    assert_eq!(reason, 28, "{:?}", names());
    disconnected(&accepted.channel);
}

#[test]
fn there_are_5040_orders_and_each_number_is_another() {
    let mut orders: Vec<_> = (0..ORDERS).map(order).collect();
    orders.sort_unstable();
    orders.dedup();
    assert_eq!(orders.len(), 5040);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn drop_orders_on_one_thread_leave_nothing() {
    device();
    within(patience(), "drop orders", || {
        let once = |number: u64| {
            let order = order(number);
            let (things, clients) = things();
            let mut things = things.map(Some);
            for place in order {
                drop(things[place].take());
            }
            clients_are_told(clients, &order);
        };
        once(0);
        let held = Held::now();
        let numbers: Vec<u64> = if full() {
            (0..ORDERS).collect()
        } else {
            let mut random = Random::new(36);
            (0..300).map(|_| random.below(ORDERS)).collect()
        };
        for &number in &numbers {
            once(number);
            held.is_back(&format!("order {number}, {:?}", order(number)));
        }
        println!("{} drop orders on one thread", numbers.len());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn drops_on_seven_threads_leave_nothing() {
    device();
    within(patience(), "drop orders across threads", || {
        let mut random = Random::new(3636);
        let mut once = || {
            let (things, clients) = things();
            let start = Arc::new(Barrier::new(things.len()));
            let threads: Vec<_> = things
                .into_iter()
                .map(|thing| {
                    let start = Arc::clone(&start);
                    let delay = Duration::from_micros(random.below(400));
                    thread::spawn(move || {
                        start.wait();
                        if !delay.is_zero() {
                            thread::sleep(delay);
                        }
                        drop(thing);
                    })
                })
                .collect();
            for (name, thread) in NAMES.iter().zip(threads) {
                thread
                    .join()
                    .unwrap_or_else(|_| panic!("dropping the {name}"));
            }
            clients_are_told(clients, &[]);
        };
        once();
        let held = Held::now();
        let rounds = if full() { 2000 } else { 60 };
        for round in 0..rounds {
            once();
            held.is_back(&format!("round {round}"));
        }
        println!("{rounds} random drop orders across threads");
    });
}
