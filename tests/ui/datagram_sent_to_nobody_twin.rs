// This one does.
use rdmacm::{DatagramSendQueue, DatagramWork, Inline, Peer};

fn send(queue: &mut DatagramSendQueue, to: Peer) {
    drop(queue.post(DatagramWork::send(to), Inline(b"hello"), 0));
}

fn main() {
    let _ = send;
}
