// `accept_from` lends the offer for as long as the call needs it.
use rdmacm::{ConnParam, ConnRequest};

fn answer(request: ConnRequest) {
    drop(request.accept_from(|offer| ConnParam::new().private_data(offer.private_data())));
}

fn main() {
    let _ = answer;
}
