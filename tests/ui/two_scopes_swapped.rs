// error[E0521]: exchanged, a scope would end without waiting for what was lent to it.
use std::mem::swap;
use std::time::Duration;

use rdmacm::{CompletionQueue, QueuePair};

fn exchange(pairs: &mut [QueuePair; 2], queues: &mut [CompletionQueue; 2]) {
    let ([one, other], [first, second]) = (pairs, queues);
    let _ = one.scope(first, Duration::ZERO, |outer| {
        let _ = other.scope(second, Duration::ZERO, |inner| swap(outer, inner));
    });
}

fn main() {
    let _ = exchange;
}
