// error[E0505]: the payload is in the buffer that is taken.
use rdmacm::Datagram;

fn length(datagram: Datagram<'_>) -> usize {
    let payload = datagram.payload();
    drop(datagram.into_buf());
    payload.len()
}

fn main() {
    let _ = length;
}
