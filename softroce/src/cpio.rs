//! The archive that becomes the guest's first file system (cpio, format "newc").

/// Collects the entries of an archive.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

impl Archive {
    /// Adds a folder. Its parents must have been added.
    pub(crate) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, (0, 0), &[]);
    }

    /// Adds a file that may be executed.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, DEVICE, (major, minor), &[]);
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.pad(512);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        self.entries += 1;
        let links = 1;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            0,
            u32::try_from(content.len()).expect("files here are far below 4 GiB"),
            0,
            0,
            major,
            minor,
            u32::try_from(path.len() + 1).expect("paths here are short"),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend_from_slice(content);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_documented_layout() {
        let mut archive = Archive::default();
        archive.file("init", b"abc");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[6..22], b"00000001000081ed");
        assert_eq!(&bytes[54..62], b"00000003", "the size of the content");
        assert_eq!(
            &bytes[94..102],
            b"00000005",
            "the length of the name with its end"
        );
        assert_eq!(&bytes[110..116], b"init\0\0");
        assert_eq!(&bytes[116..120], b"abc\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len() % 512, 0);
    }

    #[test]
    fn devices_carry_their_numbers() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.device("dev/console", 5, 1);
        let bytes = archive.finish();
        let second = 110 + 6;
        assert_eq!(&bytes[second + 14..second + 22], b"00002180");
        assert_eq!(&bytes[second + 78..second + 94], b"0000000500000001");
    }
}
