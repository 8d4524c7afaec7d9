//! Decompression of what kernels and modules are packed with.

use std::io::{self, Read};

/// A compression format, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// Zstandard.
    Zstd,
}

impl Format {
    /// Recognizes a format.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        const MAGIC: [(&[u8], Format); 3] = [
            (b"\x1f\x8b\x08", Format::Gzip),
            (b"\xfd7zXZ\0", Format::Xz),
            (b"\x28\xb5\x2f\xfd", Format::Zstd),
        ];
        MAGIC
            .into_iter()
            .find(|(magic, _)| bytes.starts_with(magic))
            .map(|(_, format)| format)
    }

    /// Unpacks one stream; what follows it is left alone.
    pub(crate) fn unpack(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut unpacked = Vec::with_capacity(bytes.len().saturating_mul(4));
        match self {
            Self::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut unpacked)?,
            Self::Xz => lzma_rust2::XzReader::new(bytes, false).read_to_end(&mut unpacked)?,
            Self::Zstd => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(bytes);
                decoder
                    .map_err(io::Error::other)?
                    .read_to_end(&mut unpacked)?
            }
        };
        Ok(unpacked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xcbH\xcd\xc9\xc9W(I-.Q0\xb4\xb0\xe4\x02\0\xee\x91rR\x0f\0\0\0";
    const XZ: &[u8] = b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4F\x02\0!\x01\x16\0\0\0t/\xe5\xa3\x01\0\x0ehello test 189\n\0\0\xc3@Ob\xcd\xba\xc9#\0\x01'\x0f\xdf\x1a\xfcj\x1f\xb6\xf3}\x01\0\0\0\0\x04YZ";
    const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x04\x58\x79\0\0hello test 189\n\x3a\x26\x8b\x4f";

    #[test]
    fn every_format_is_recognized_and_unpacked() {
        for packed in [GZIP, XZ, ZSTD] {
            assert_eq!(
                Format::of(packed).unwrap().unpack(packed).unwrap(),
                b"hello test 189\n"
            );
        }
    }

    #[test]
    fn what_follows_a_stream_is_left_alone() {
        for packed in [XZ, ZSTD] {
            let longer = [packed, b"\x12\x34\x56\x00"].concat();
            assert_eq!(
                Format::of(packed).unwrap().unpack(&longer).unwrap(),
                b"hello test 189\n"
            );
        }
    }

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        assert_eq!(
            [GZIP, XZ, ZSTD].map(Format::of),
            [Some(Format::Gzip), Some(Format::Xz), Some(Format::Zstd)]
        );
        assert_eq!(Format::of(b"\x7fELF"), None);
        assert_eq!(Format::of(b""), None);
    }

    #[test]
    fn damage_is_an_error() {
        assert!(Format::Gzip.unpack(&GZIP[..20]).is_err());
        assert!(Format::Xz.unpack(b"\xfd7zXZ\0not really").is_err());
        assert!(Format::Zstd.unpack(b"\x28\xb5\x2f\xfdnot really").is_err());
    }
}
