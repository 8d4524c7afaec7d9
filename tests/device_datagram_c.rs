//! Datagrams beside rdma-core's own `udaddy` and `mckey`.

mod common;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{event, route};
use common::datagram::{DEPTH, End, context, group, join, member};
use common::{ADDR, PATIENCE, Server, any_port, device, run};
use rdmacm::{CmId, DatagramWork, Destination, EventChannel, EventKind, JoinState};

/// Messages of each run; every one is waited for, and the receives of a pair suffice.
const COUNT: u32 = DEPTH / 2;
/// Bytes of each.
const LEN: usize = 100;

/// Asks `udaddy` until it listens.
fn look_up() -> (End, CmId, Destination) {
    let mut addr = any_port();
    addr.set_port(7174);
    let start = Instant::now();
    loop {
        let channel = EventChannel::new().expect("a channel");
        let id = CmId::new_datagram(&channel).expect("an id");
        route(&id, &channel, None, addr);
        let end = End::new(&context(), |pd, init| id.create_datagram_qp(pd, init));
        id.look_up(b"").expect("look_up");
        match event(&channel).kind {
            EventKind::LookedUp(there) => return (end, id, there),
            other => assert!(start.elapsed() < PATIENCE, "{other:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn udaddy_answers() {
    device();
    let (count, len) = (COUNT.to_string(), LEN.to_string());
    let server = Server::start(Command::new("udaddy").args(["-b", ADDR, "-C", &count, "-S", &len]));
    let (mut end, _id, there) = look_up();
    let ah = end.pd.create_ah(&there.address()).expect("create_ah");
    let to = end
        .pair
        .send
        .add_peer(&ah, there.qp_num(), there.qkey())
        .expect("a peer");
    // It answers to the queue pair that the immediate value names.
    let work = DatagramWork::send_with_imm(to, end.pair.qp_num());
    for _ in 0..COUNT {
        let buf = end.buf(&[3; LEN]);
        end.pair.send.post(work, buf, 0).expect("send");
    }
    for _ in 0..COUNT {
        end.message(|message| {
            assert_eq!(message.payload().len(), LEN);
            assert_eq!(message.src_qp(), there.qp_num());
            assert_eq!(message.imm(), Some(there.qp_num()));
        });
    }
    let (status, lines) = server.finish();
    assert_eq!(status, Some(0), "{lines:?}");
    end.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn mckey_reaches_a_member_and_hears_a_sender() {
    device();
    let name = group(9).to_string();
    let (count, len) = (COUNT.to_string(), LEN.to_string());
    let args = ["-m", &name, "-b", ADDR, "-C", &count, "-S", &len];
    let (mut end, id, channel) = member();
    let (membership, to) = join(&mut end, &id, &channel, group(9), JoinState::FullMember);
    let output = run(Command::new("mckey").args(args).arg("-s"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for _ in 0..COUNT {
        end.message(|message| {
            assert_eq!(message.payload().len(), LEN);
            assert_eq!(message.imm(), Some(message.src_qp()));
            assert!(message.grh().expect("a header").is_multicast());
        });
    }
    // It waits three seconds after its join, and does not say when: so it is told again and again.
    let mut receiver = Server::start(Command::new("mckey").args(args));
    let start = Instant::now();
    while receiver.is_running() {
        assert!(start.elapsed() < PATIENCE, "it has not heard enough");
        let buf = end.buf(&[4; LEN]);
        end.pair.send.send(to, buf, 0).expect("send");
        // What is sent to the group comes here, too.
        assert_eq!(end.payload(), [4; LEN]);
        thread::sleep(Duration::from_millis(100));
    }
    let (status, lines) = receiver.finish();
    assert_eq!(status, Some(0), "{lines:?}");
    drop(membership);
    end.close();
}
