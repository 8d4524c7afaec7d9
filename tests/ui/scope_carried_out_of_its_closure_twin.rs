// What the closure has learnt of it may be carried out.
use std::time::Duration;

use rdmacm::{CompletionQueue, QueuePair};

fn carry(pair: &mut QueuePair, queue: &mut CompletionQueue) {
    let mut kept = None;
    let _ = pair.scope(queue, Duration::ZERO, |scope| kept = scope.wait(None).ok());
    drop(kept);
}

fn main() {
    let _ = carry;
}
