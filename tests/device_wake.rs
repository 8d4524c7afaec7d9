//! Waiting threads, on a real device.

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{Listening, established, pair};
use common::{device, in_time};
use rdmacm::EventChannel;

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn each_wake_wakes_one_of_many_waiting_threads() {
    device();
    let channel = EventChannel::new().expect("a channel");
    let (sender, woken) = mpsc::channel();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (channel, sender) = (channel.clone(), sender.clone());
            thread::spawn(move || {
                let event = channel.wait(None).expect("waiting");
                assert!(event.is_none(), "{event:?}");
                sender.send(()).expect("the test waits");
            })
        })
        .collect();
    for left in (0..threads.len()).rev() {
        channel.wake();
        let soon = Duration::from_secs(5);
        woken.recv_timeout(soon).expect("a wake wakes one");
        let more = woken.recv_timeout(Duration::from_millis(50));
        assert!(more.is_err(), "a wake has woken two, {left} should be left");
    }
    for thread in threads {
        in_time("a woken thread's end", move || thread.join()).expect("no panic");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_wake_before_the_wait_is_not_lost_and_is_taken_once() {
    device();
    let channel = EventChannel::new().expect("a channel");
    channel.wake();
    let start = Instant::now();
    let long = Duration::from_secs(10);
    assert!(channel.wait(Some(long)).expect("waiting").is_none());
    assert!(start.elapsed() < long, "it was woken");
    let start = Instant::now();
    let short = Duration::from_millis(100);
    assert!(channel.wait(Some(short)).expect("waiting").is_none());
    assert!(start.elapsed() >= short, "nobody woke it a second time");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_event_goes_before_a_wake() {
    device();
    let listening = Listening::new();
    let client = common::cm::End::connecting(listening.addr());
    // Until the request has come, for certain: nothing but reading would tell.
    thread::sleep(Duration::from_secs(2));
    listening.channel.wake();
    let server = common::cm::End::accept(listening.request(), &rdmacm::ConnParam::new());
    established(&client.channel);
    established(&server.channel);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_rnr_timer_is_set_on_a_connected_queue_pair_only() {
    device();
    let listening = Listening::new();
    let (mut client, _server) = pair(&listening);
    let time = Duration::from_micros(1280);
    client.parts.qp.set_min_rnr_timer(time).expect("connected");
    let mut fresh = common::cm::End::client(listening.addr());
    let error = fresh.parts.qp.set_min_rnr_timer(time).unwrap_err();
    assert_eq!(error.op(), "ibv_modify_qp");
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}
