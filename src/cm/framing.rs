//! Private data with its length, for transports that pad it.

/// Puts the length of `data` before it, so that [`unframe`] gives back exactly what was sent.
///
/// Over InfiniBand and RoCE private data arrives padded with zeros to the length of its field, and a program cannot tell them
/// from its own. One byte of the field goes to the length. `None` for more than 255 bytes, which fit no message.
///
/// # Examples
///
/// ```
/// let sent = rdmacm::frame(b"hello").unwrap();
/// let mut arrived = sent.clone();
/// arrived.resize(56, 0);
/// assert_eq!(rdmacm::unframe(&arrived), Some(&b"hello"[..]));
/// ```
#[must_use]
pub fn frame(data: &[u8]) -> Option<Vec<u8>> {
    let length = u8::try_from(data.len()).ok()?;
    let mut framed = Vec::with_capacity(data.len() + 1);
    framed.push(length);
    framed.extend_from_slice(data);
    Some(framed)
}

/// What was given to [`frame`] at the other end; `None` when `arrived` is shorter than it says, or empty.
#[must_use]
pub fn unframe(arrived: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = arrived.split_first()?;
    rest.get(..usize::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_kept_and_padding_is_not() {
        for data in [&b""[..], b"\0\0", b"ends in zero\0", &[7; 255]] {
            let mut arrived = frame(data).unwrap();
            arrived.resize(300, 0);
            assert_eq!(unframe(&arrived), Some(data));
        }
    }

    #[test]
    fn what_was_not_framed_is_found_out() {
        assert_eq!(frame(&[0; 256]), None);
        assert_eq!(unframe(b""), None);
        assert_eq!(unframe(b"\x05abcd"), None);
    }
}
