// error[E0521]: a scope ends with its closure.
use std::time::Duration;

use rdmacm::{CompletionQueue, QueuePair};

fn carry(pair: &mut QueuePair, queue: &mut CompletionQueue) {
    let mut kept = None;
    let _ = pair.scope(queue, Duration::ZERO, |scope| kept = Some(scope));
    drop(kept);
}

fn main() {
    let _ = carry;
}
