// error[E0382]: a buffer belongs to the request of several that it went into.
use rdmacm::{Buf, SendQueue, Work};

fn send(queue: &mut SendQueue, head: Buf, body: Buf) {
    let _ = queue.post(Work::send(), [head, body], 1);
    println!("{}", head.len());
}

fn main() {
    let _ = send;
}
