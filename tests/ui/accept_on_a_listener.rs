// error[E0599]: only a request can be accepted, never the id that listens.
fn answer(listener: rdmacm::CmId) {
    drop(listener.accept());
}

fn main() {
    let _ = answer;
}
