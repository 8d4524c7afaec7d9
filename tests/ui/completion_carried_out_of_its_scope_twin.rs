// What it says may be.
use std::time::Duration;

use rdmacm::{CompletionQueue, QueuePair, Scoped};

fn carry(pair: &mut QueuePair, queue: &mut CompletionQueue) -> Option<u64> {
    let user = pair.scope(queue, Duration::ZERO, |scope| match scope.poll() {
        Ok(Some(Scoped::Lent(lent))) => Some(lent.user()),
        _ => None,
    });
    user.ok().flatten()
}

fn main() {
    let _ = carry;
}
