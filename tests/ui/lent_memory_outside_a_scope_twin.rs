// Inside it may be.
use std::time::Duration;

use rdmacm::{CompletionQueue, Lent, QueuePair, Work};

fn post(pair: &mut QueuePair, queue: &mut CompletionQueue, lent: Lent<'_>) {
    let _ = pair.scope(queue, Duration::ZERO, |scope| {
        let _ = scope.post(Work::send(), lent, 1);
    });
}

fn main() {
    let _ = post;
}
