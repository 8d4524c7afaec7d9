// One in another is fine.
use std::time::Duration;

use rdmacm::{CompletionQueue, QueuePair};

fn exchange(pairs: &mut [QueuePair; 2], queues: &mut [CompletionQueue; 2]) {
    let ([one, other], [first, second]) = (pairs, queues);
    let _ = one.scope(first, Duration::ZERO, |outer| {
        let _ = other.scope(second, Duration::ZERO, |inner| {
            let _ = inner.poll();
            let _ = outer.poll();
        });
    });
}

fn main() {
    let _ = exchange;
}
