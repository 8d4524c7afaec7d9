// The number is copied before.
fn answer(request: rdmacm::ConnRequest) -> u8 {
    let depth = request.offer().initiator_depth();
    drop(request.accept());
    depth
}

fn main() {
    let _ = answer;
}
