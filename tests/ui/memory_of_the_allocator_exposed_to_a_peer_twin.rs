// Mapped pages may.
use rdmacm::{Access, MappedMemory, ProtectionDomain, Registration};

fn expose(pd: &ProtectionDomain, bytes: MappedMemory) {
    drop(pd.expose_memory(bytes, Access::WRITE, Registration::new()));
}

fn main() {
    let _ = expose;
}
