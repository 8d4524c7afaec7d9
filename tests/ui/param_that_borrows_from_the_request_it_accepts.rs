// error[E0505]: `accept_with` consumes the request that the parameters borrow from.
use rdmacm::{ConnParam, ConnRequest};

fn answer(request: ConnRequest) {
    let param = ConnParam::new().private_data(request.private_data());
    drop(request.accept_with(&param));
}

fn main() {
    let _ = answer;
}
