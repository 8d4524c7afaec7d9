// Refused, the buffers come back.
use rdmacm::{Buf, SendQueue, Work};

fn send(queue: &mut SendQueue, head: Buf, body: Buf) {
    if let Err(refused) = queue.post(Work::send(), [head, body], 1) {
        if let Some([head, _body]) = refused.into_buf() {
            println!("{}", head.len());
        }
    }
}

fn main() {
    let _ = send;
}
