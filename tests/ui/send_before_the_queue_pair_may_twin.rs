// It sends after the step.
use rdmacm::{Buf, Error, RtrQp, RtsParam};

fn connect(qp: RtrQp, first: Buf) -> Result<(), Error> {
    let mut qp = qp.to_rts(&RtsParam::new(0))?;
    drop(qp.send.send(first, 0));
    Ok(())
}

fn main() {
    let _ = connect;
}
