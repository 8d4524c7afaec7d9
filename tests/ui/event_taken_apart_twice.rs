// error[E0382]: an event is acknowledged once, by the one value that holds it.
use rdmacm::{Event, EventKind};

fn answer(event: Event) {
    if let EventKind::ConnectRequest(request) = event.kind {
        drop(request.accept());
    }
    if let EventKind::ConnectRequest(request) = event.kind {
        drop(request.reject(b"again"));
    }
}

fn main() {
    let _ = answer;
}
