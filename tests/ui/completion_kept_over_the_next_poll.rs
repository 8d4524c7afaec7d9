// error[E0499]: a completion borrows the queue that it came from.
use rdmacm::CompletionQueue;

fn poll(queue: &mut CompletionQueue) -> Result<(), rdmacm::Error> {
    let first = queue.poll()?;
    let second = queue.poll()?;
    drop((first, second));
    Ok(())
}

fn main() {
    let _ = poll;
}
