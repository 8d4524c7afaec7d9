// Connect does.
use rdmacm::{CmId, ConnParam, RetryCount};

fn connect(id: &CmId) {
    drop(id.connect(ConnParam::new().retry_count(RetryCount::default())));
}

fn main() {
    let _ = connect;
}
