// It is copied, or taken back.
use rdmacm::Exposed;

fn first(memory: &Exposed) -> u8 {
    let mut byte = [0];
    memory.read_at(0, &mut byte);
    byte[0]
}

fn taken_back(memory: Exposed) -> rdmacm::Result<u8> {
    Ok(memory.revoke()?[0])
}

fn main() {
    let _ = (first, taken_back);
}
