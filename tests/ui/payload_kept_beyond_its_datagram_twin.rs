// It is looked at before.
use rdmacm::Datagram;

fn length(datagram: Datagram<'_>) -> usize {
    let length = datagram.payload().len();
    drop(datagram.into_buf());
    length
}

fn main() {
    let _ = length;
}
