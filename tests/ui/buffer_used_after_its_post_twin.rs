// It is written before.
use rdmacm::{Buf, SendQueue};

fn post(queue: &mut SendQueue, mut buf: Buf) {
    buf[0] = 1;
    drop(queue.send(buf, 0));
}

fn main() {
    let _ = post;
}
