// The buffer may be kept.
use rdmacm::{Buf, Completion, CompletionQueue};

fn poll(queue: &mut CompletionQueue, kept: &mut Vec<Buf>) -> Result<(), rdmacm::Error> {
    while let Some(completion) = queue.poll()? {
        if let Completion::Received(received) = completion {
            kept.push(received.into_buf());
        }
    }
    Ok(())
}

fn main() {
    let _ = poll;
}
