// error[E0599]: who sends datagrams has no access to anybody's memory.
use rdmacm::{Buf, DatagramSendQueue, RemoteMemory};

fn write(queue: &mut DatagramSendQueue, buf: Buf, to: RemoteMemory) {
    drop(queue.write(buf, to, 0));
}

fn main() {
    let _ = write;
}
