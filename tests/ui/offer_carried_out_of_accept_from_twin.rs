// What is copied out of it may be carried out.
use rdmacm::{ConnParam, ConnRequest};

fn answer(request: ConnRequest, kept: &mut Vec<u8>) {
    drop(request.accept_from(|offer| {
        kept.extend_from_slice(offer.private_data());
        ConnParam::new()
    }));
}

fn main() {
    let _ = answer;
}
