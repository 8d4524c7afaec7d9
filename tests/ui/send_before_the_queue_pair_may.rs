// error[E0599]: a queue pair by hand has no sending half before its last step.
use rdmacm::{Buf, Error, RtrQp, RtsParam};

fn connect(mut qp: RtrQp, first: Buf) -> Result<(), Error> {
    drop(qp.send(first, 0));
    let _qp = qp.to_rts(&RtsParam::new(0))?;
    Ok(())
}

fn main() {
    let _ = connect;
}
