// error[E0382]: a post moves the buffer into the request.
use rdmacm::{Buf, SendQueue};

fn post(queue: &mut SendQueue, mut buf: Buf) {
    drop(queue.send(buf, 0));
    buf[0] = 1;
}

fn main() {
    let _ = post;
}
