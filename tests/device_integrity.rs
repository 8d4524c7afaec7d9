//! Data arrives as it was sent, on a real device: by sends, writes and reads, in both directions at once.
//!
//! 20,000 messages by default, of 0 to 65,536 bytes, each power of two as often as any other: 130 MB, in a few seconds.
//! `RDMACM_FULL=1` sends 1,000,000, 6.4 GB in seven minutes under emulation; `RDMACM_ROUNDS` as many as it says. `RDMACM_SEED`
//! repeats the messages of an earlier run, which prints its seed.

mod common;
mod integrity;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{Listening, established, routed};
use common::load::{full, rounds};
use common::{device, within};
use integrity::end::{End, Progress};
use integrity::runner::{Direction, Runner};
use integrity::script::{Pattern, Script};
use rdmacm::{CmId, ConnParam};

/// Two ends of a connection that stands, ready to run, each with its id.
fn runners(messages: u64, seed: u64) -> [(Runner, CmId); 2] {
    let listening = Listening::new();
    // Each direction has a script and a pattern of its own.
    let seeds = [seed, seed.rotate_left(32) ^ 1];
    let patterns = seeds.map(|seed| Arc::new(Pattern::new(seed)));
    let direction = |side: usize| Direction {
        script: Script::new(seeds[side], messages),
        pattern: Arc::clone(&patterns[side]),
    };

    let (id, channel) = routed(listening.addr());
    let context = id.context().expect("a device");
    let client = End::new(&context, &patterns[1], |pd, init| id.create_qp(pd, init));
    let client = client.expect("the client's end");
    id.connect(ConnParam::new()).expect("connect");
    let request = listening.request();
    let context = request.context().expect("a device");
    let server = End::new(&context, &patterns[0], |pd, init| {
        request.create_qp(pd, init)
    });
    let server = server.expect("the server's end");
    let memory = [&client, &server].map(|end| [end.places.remote(), end.source.remote()]);
    let progress = [(); 2].map(|()| Arc::<Progress>::default());
    let [here, there] = [&progress[0], &progress[1]];
    let directions = [direction(0), direction(1)];
    let client = Runner::new(client, [here, there], memory[1], directions);
    let directions = [direction(1), direction(0)];
    let server = Runner::new(server, [there, here], memory[0], directions);

    let server_id = request.accept().expect("accept");
    established(&channel);
    established(&listening.channel);
    [(client, id), (server, server_id)]
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn every_byte_of_every_message_arrives() {
    device();
    let count = if full() { 1_000_000 } else { rounds(20_000) };
    // It says itself when it is stuck; this is for a wait that it does not know of.
    let patience =
        Duration::from_secs(60) + Duration::from_millis(10) * u32::try_from(count).unwrap();
    within(patience, "messages both ways", move || {
        let given = std::env::var("RDMACM_SEED").ok();
        let given = given.map(|text| text.parse().expect("RDMACM_SEED is a number"));
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("RDMACM_SEED={seed} repeats these {count} messages");
        let start = Instant::now();
        // Half of them in each direction.
        let messages = (count as u64).div_ceil(2);
        let threads = runners(messages, seed).map(|(mut runner, id)| {
            thread::spawn(move || {
                runner.run();
                (runner, id)
            })
        });
        let ended = threads.map(|thread| thread.join().expect("no panic"));
        let seconds = start.elapsed().as_secs_f64();
        let mut bytes = 0;
        for (runner, id) in ended {
            id.disconnect().expect("disconnect");
            let (end, script) = runner.into_parts();
            end.close();
            bytes += script.bytes();
            println!("{:?}", script.kinds());
            if messages >= 1000 {
                assert_eq!(script.kinds().len(), 9, "some kind is missing");
            }
        }
        println!("{count} messages, {bytes} bytes, {seconds:.1} s");
    });
}
