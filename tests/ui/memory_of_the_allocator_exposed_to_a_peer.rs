// error[E0308]: bytes of the Rust allocator must not change under the program.
use rdmacm::{Access, ProtectionDomain, Registration};

fn expose(pd: &ProtectionDomain, bytes: Vec<u8>) {
    drop(pd.expose_memory(bytes, Access::WRITE, Registration::new()));
}

fn main() {
    let _ = expose;
}
