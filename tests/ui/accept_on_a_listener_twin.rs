// The request comes as an event.
use rdmacm::{EventChannel, EventKind};

fn answer(channel: &EventChannel) -> Result<(), rdmacm::Error> {
    if let Some(event) = channel.try_event()? {
        if let EventKind::ConnectRequest(request) = event.kind {
            request.accept()?;
        }
    }
    Ok(())
}

fn main() {
    let _ = answer;
}
