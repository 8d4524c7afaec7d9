// A scoped thread may look, and the request itself may move.
use rdmacm::ConnRequest;

fn look(request: ConnRequest) {
    let offer = request.offer();
    std::thread::scope(|scope| {
        scope.spawn(move || println!("{:?}", offer.private_data()));
    });
    std::thread::spawn(move || drop(request.reject(b"from another thread")));
}

fn main() {
    let _ = look;
}
