// error[E0277]: lent memory is posted inside a scope only, which waits for it.
use rdmacm::{Lent, QueuePair, Work};

fn post(pair: &mut QueuePair, lent: Lent<'_>) {
    let _ = pair.send.post(Work::send(), lent, 1);
}

fn main() {
    let _ = post;
}
