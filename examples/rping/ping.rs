//! What is in the memory that a client has the server read.

/// The letters that fill a ping.
const LETTERS: std::ops::RangeInclusive<u8> = b'A'..=b'z';

/// The content of a ping: its number as text, letters up to `size`, of which the first is another in each ping, and a zero.
pub(crate) fn content(number: u32, size: usize) -> Vec<u8> {
    let mut bytes = format!("rdma-ping-{number}: ").into_bytes();
    let letters = LETTERS.cycle().skip(number as usize % LETTERS.len());
    bytes.extend(letters.take(size.saturating_sub(bytes.len())));
    bytes.truncate(size - 1);
    bytes.push(0);
    bytes
}

/// The bytes of a text with its zero: what of a ping goes back.
pub(crate) fn text_len(bytes: &[u8]) -> usize {
    let zero = bytes.iter().position(|&byte| byte == 0);
    zero.map_or(bytes.len(), |zero| zero + 1)
}

/// The text of a ping.
pub(crate) fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}
