// error[E0521]: the thread may run on after the request was answered.
use rdmacm::ConnRequest;

fn look(request: &ConnRequest) {
    let offer = request.offer();
    std::thread::spawn(move || println!("{:?}", offer.private_data()));
}

fn main() {
    let _ = look;
}
