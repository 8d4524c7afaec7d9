// error[E0382]: an answer consumes the request.
fn answer(request: rdmacm::ConnRequest) {
    drop(request.accept());
    drop(request.reject(b"after all"));
}

fn main() {
    let _ = answer;
}
