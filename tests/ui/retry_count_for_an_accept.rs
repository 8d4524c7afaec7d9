// error[E0308]: `retry_count` makes parameters for connect, and accept takes none.
use rdmacm::{ConnParam, ConnRequest, RetryCount};

fn answer(request: ConnRequest) {
    drop(request.accept_with(&ConnParam::new().retry_count(RetryCount::default())));
}

fn main() {
    let _ = answer;
}
