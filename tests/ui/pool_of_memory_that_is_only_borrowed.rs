// error[E0521]: a pool may outlive what it borrows.
use rdmacm::{ProtectionDomain, Registration};

fn register(pd: &ProtectionDomain, bytes: &mut [u8]) {
    drop(pd.pool_of(bytes, 8, Registration::new()));
}

fn main() {
    let _ = register;
}
