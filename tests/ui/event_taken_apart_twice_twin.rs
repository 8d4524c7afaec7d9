// Each event holds its own request.
use rdmacm::{Event, EventKind};

fn answer(first: Event, second: Event) {
    if let EventKind::ConnectRequest(request) = first.kind {
        drop(request.accept());
    }
    if let EventKind::ConnectRequest(request) = second.kind {
        drop(request.reject(b"the second"));
    }
}

fn main() {
    let _ = answer;
}
