// error[E0506]: a batch borrows what it copies when it is submitted.
use rdmacm::{Inline, SendQueue, Work, WrList};

fn send(queue: &mut SendQueue, list: &mut WrList) -> u8 {
    let mut bytes = [1; 8];
    let mut batch = queue.batch(list);
    let _ = batch.post(Work::send(), Inline(&bytes), 1);
    bytes[0] = 2;
    let _ = batch.submit();
    bytes[0]
}

fn main() {
    let _ = send;
}
