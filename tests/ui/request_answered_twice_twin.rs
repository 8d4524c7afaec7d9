// One answer or the other.
fn answer(request: rdmacm::ConnRequest, yes: bool) {
    if yes {
        drop(request.accept());
    } else {
        drop(request.reject(b"no"));
    }
}

fn main() {
    let _ = answer;
}
