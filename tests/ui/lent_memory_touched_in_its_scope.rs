// error[E0502]: what is lent for writing is nobody's to read until the scope has ended.
use std::time::Duration;

use rdmacm::{CompletionQueue, ProtectionDomain, QueuePair};

fn receive(pair: &mut QueuePair, queue: &mut CompletionQueue, pd: &ProtectionDomain) -> u8 {
    let mut memory = [0; 64];
    let Ok(lent) = pd.lend_mut(&mut memory) else {
        return 0;
    };
    let mut seen = 0;
    let _ = pair.scope(queue, Duration::ZERO, |scope| {
        let _ = scope.receive(lent, 1);
        seen = memory[0];
    });
    seen
}

fn main() {
    let _ = receive;
}
