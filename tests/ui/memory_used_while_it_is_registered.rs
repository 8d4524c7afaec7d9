// error[E0382]: the pool owns the memory that it is made of.
use rdmacm::{ProtectionDomain, Registration};

fn register(pd: &ProtectionDomain, mut bytes: Vec<u8>) {
    let pool = pd.pool_of(bytes, 8, Registration::new());
    bytes.push(1);
    drop(pool);
}

fn main() {
    let _ = register;
}
