// After the scope it is.
use std::time::Duration;

use rdmacm::{CompletionQueue, ProtectionDomain, QueuePair};

fn receive(pair: &mut QueuePair, queue: &mut CompletionQueue, pd: &ProtectionDomain) -> u8 {
    let mut memory = [0; 64];
    let Ok(lent) = pd.lend_mut(&mut memory) else {
        return 0;
    };
    let _ = pair.scope(queue, Duration::ZERO, |scope| {
        let _ = scope.receive(lent, 1);
    });
    memory[0]
}

fn main() {
    let _ = receive;
}
