// error[E0608]: there are no references to bytes that a peer may change.
use rdmacm::Exposed;

fn first(memory: &Exposed) -> &u8 {
    &memory[0]
}

fn main() {
    let _ = first;
}
