// Not what is borrowed for ever.
use rdmacm::{ProtectionDomain, Registration};

fn register(pd: &ProtectionDomain, bytes: &'static mut [u8]) {
    drop(pd.pool_of(bytes, 8, Registration::new()));
}

fn main() {
    let _ = register;
}
