// error[E0515]: private data lives in the request's own event.
fn data<'a>(request: rdmacm::ConnRequest) -> &'a [u8] {
    request.private_data()
}

fn main() {
    let _ = data;
}
