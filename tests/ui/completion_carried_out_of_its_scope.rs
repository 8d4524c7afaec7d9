// error[E0521]: a completion borrows the scope that it came from, and ends with it.
use std::time::Duration;

use rdmacm::{CompletionQueue, QueuePair};

fn carry(pair: &mut QueuePair, queue: &mut CompletionQueue) {
    let mut kept = None;
    let _ = pair.scope(queue, Duration::ZERO, |scope| kept = scope.poll().ok());
    drop(kept);
}

fn main() {
    let _ = carry;
}
