// error[E0597]: what is lent outlives the scope, not only its closure.
use std::time::Duration;

use rdmacm::{CompletionQueue, ProtectionDomain, QueuePair, Work};

fn post(pair: &mut QueuePair, queue: &mut CompletionQueue, pd: &ProtectionDomain) {
    let _ = pair.scope(queue, Duration::ZERO, |scope| {
        let text = String::from("too short");
        if let Ok(lent) = pd.lend(text.as_bytes()) {
            let _ = scope.post(Work::send(), lent, 1);
        }
    });
}

fn main() {
    let _ = post;
}
