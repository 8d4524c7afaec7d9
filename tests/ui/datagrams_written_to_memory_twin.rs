// A connected pair does.
use rdmacm::{Buf, RemoteMemory, SendQueue};

fn write(queue: &mut SendQueue, buf: Buf, to: RemoteMemory) {
    drop(queue.write(buf, to, 0));
}

fn main() {
    let _ = write;
}
