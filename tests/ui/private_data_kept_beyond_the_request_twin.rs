// A copy may be kept.
fn data(request: rdmacm::ConnRequest) -> Vec<u8> {
    request.private_data().to_vec()
}

fn main() {
    let _ = data;
}
