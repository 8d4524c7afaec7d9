// It is made before the scope.
use std::time::Duration;

use rdmacm::{CompletionQueue, ProtectionDomain, QueuePair, Work};

fn post(pair: &mut QueuePair, queue: &mut CompletionQueue, pd: &ProtectionDomain) {
    let text = String::from("long enough");
    let _ = pair.scope(queue, Duration::ZERO, |scope| {
        if let Ok(lent) = pd.lend(text.as_bytes()) {
            let _ = scope.post(Work::send(), lent, 1);
        }
    });
    drop(text);
}

fn main() {
    let _ = post;
}
