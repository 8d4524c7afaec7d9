// It gives it back.
use rdmacm::{ProtectionDomain, Registration, Result};

fn register(pd: &ProtectionDomain, bytes: Vec<u8>) -> Result<()> {
    let pool = pd.pool_of(bytes, 8, Registration::new())?;
    let mut bytes = pool.into_owner::<Vec<u8>>()?;
    bytes.push(1);
    Ok(())
}

fn main() {
    let _ = register;
}
