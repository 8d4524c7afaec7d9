// error[E0061]: every datagram names a peer.
use rdmacm::{DatagramSendQueue, DatagramWork, Inline};

fn send(queue: &mut DatagramSendQueue) {
    drop(queue.post(DatagramWork::send(), Inline(b"hello"), 0));
}

fn main() {
    let _ = send;
}
