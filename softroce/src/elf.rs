//! As much of the ELF format (64-bit, little-endian) as kernels, modules and one program need.

/// Views of the parts of an ELF file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
}

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PT_LOAD: u32 = 1;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// One entry of the program header table.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl<'a> Elf<'a> {
    /// Recognizes a 64-bit little-endian ELF file.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        (bytes.get(..6)? == b"\x7fELF\x02\x01").then_some(Self { bytes })
    }

    /// Returns a section's content.
    pub(crate) fn section(&self, name: &str) -> Option<&'a [u8]> {
        let (table, entry) = (
            u64_at(self.bytes, 0x28)?,
            u64::from(u16_at(self.bytes, 0x3a)?),
        );
        let (count, names) = (
            u64::from(u16_at(self.bytes, 0x3c)?),
            u64::from(u16_at(self.bytes, 0x3e)?),
        );
        let header = |index: u64| -> Option<&'a [u8]> {
            slice(
                self.bytes,
                table.checked_add(index.checked_mul(entry)?)?,
                0x40,
            )
        };
        let content =
            |header: &[u8]| slice(self.bytes, u64_at(header, 0x18)?, u64_at(header, 0x20)?);
        let names = content(header(names)?)?;
        (0..count).filter_map(header).find_map(|header| {
            let start = usize::try_from(u32_at(header, 0)?).ok()?;
            (text(names.get(start..)?)? == name).then(|| content(header))?
        })
    }

    /// Tells whether a kernel can be entered directly by a hypervisor (it has the note `XEN_ELFNOTE_PHYS32_ENTRY`).
    pub(crate) fn has_pvh_entry(&self) -> bool {
        const PHYS32_ENTRY: u32 = 18;
        self.segments()
            .filter(|segment| segment.kind == PT_NOTE)
            .any(|segment| {
                let mut notes = slice(self.bytes, segment.offset, segment.size).unwrap_or_default();
                while let Some((name, kind, rest)) = next_note(notes) {
                    if name == b"Xen\0" && kind == PHYS32_ENTRY {
                        return true;
                    }
                    notes = rest;
                }
                false
            })
    }

    /// Returns the dynamic loader that a program asks for; none if it is static.
    pub(crate) fn interpreter(&self) -> Option<&'a str> {
        let segment = self.segments().find(|segment| segment.kind == PT_INTERP)?;
        text(slice(self.bytes, segment.offset, segment.size)?)
    }

    /// Returns the names of the libraries that a program or library needs.
    pub(crate) fn needed(&self) -> Vec<&'a str> {
        let Some(dynamic) = self.segments().find(|segment| segment.kind == PT_DYNAMIC) else {
            return Vec::new();
        };
        let entries = slice(self.bytes, dynamic.offset, dynamic.size).unwrap_or_default();
        let entries = || {
            entries
                .chunks_exact(16)
                .filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)))
        };
        let names = entries()
            .find(|(tag, _)| *tag == DT_STRTAB)
            .and_then(|(_, address)| self.file_offset(address));
        let name = |offset: u64| {
            text(
                self.bytes
                    .get(usize::try_from(names?.checked_add(offset)?).ok()?..)?,
            )
        };
        entries()
            .filter(|(tag, _)| *tag == DT_NEEDED)
            .filter_map(|(_, offset)| name(offset))
            .collect()
    }

    fn file_offset(&self, address: u64) -> Option<u64> {
        let load = self.segments().find(|segment| {
            segment.kind == PT_LOAD
                && address >= segment.address
                && address - segment.address < segment.size
        })?;
        load.offset.checked_add(address - load.address)
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        let bytes = self.bytes;
        let table = u64_at(bytes, 0x20).unwrap_or(0);
        let (entry, count) = (
            u64::from(u16_at(bytes, 0x36).unwrap_or(0)),
            u64::from(u16_at(bytes, 0x38).unwrap_or(0)),
        );
        (0..count).filter_map(move |index| {
            let header = slice(bytes, table.checked_add(index * entry)?, 0x38)?;
            Some(Segment {
                kind: u32_at(header, 0)?,
                offset: u64_at(header, 8)?,
                address: u64_at(header, 16)?,
                size: u64_at(header, 32)?,
            })
        })
    }
}

fn next_note(notes: &[u8]) -> Option<(&[u8], u32, &[u8])> {
    let (name, content) = (u64::from(u32_at(notes, 0)?), u64::from(u32_at(notes, 4)?));
    let after = 12 + name.next_multiple_of(4) + content.next_multiple_of(4);
    Some((
        slice(notes, 12, name)?,
        u32_at(notes, 8)?,
        notes.get(usize::try_from(after).ok()?..)?,
    ))
}

fn slice(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(size)?).ok()?)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_le_bytes(*bytes))
}

/// Reads a little-endian number.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_names_its_loader_and_libraries() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        if let Some(interpreter) = elf.interpreter() {
            assert!(std::path::Path::new(interpreter).exists(), "{interpreter}");
            assert!(
                elf.needed().iter().any(|name| name.starts_with("libc.")),
                "{:?}",
                elf.needed()
            );
        }
        assert!(elf.section(".text").is_some_and(|text| !text.is_empty()));
        assert_eq!(elf.section(".no-such-section"), None);
        assert!(!elf.has_pvh_entry());
    }

    #[test]
    fn a_note_says_that_a_kernel_has_a_direct_entry() {
        let mut file = vec![0; 0x40 + 0x38];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x20] = 0x40;
        file[0x36] = 0x38;
        file[0x38] = 1;
        file[0x40] = 4;
        file[0x48] = 0x78;
        let note = |kind: u8| {
            [
                4, 0, 0, 0, 4, 0, 0, 0, kind, 0, 0, 0, b'X', b'e', b'n', 0, 1, 2, 3, 4,
            ]
        };
        file.extend(note(6));
        file.extend(note(18));
        file[0x60] = 20;
        assert!(
            !Elf::parse(&file).unwrap().has_pvh_entry(),
            "only the first note is in the segment"
        );
        file[0x60] = 40;
        assert!(Elf::parse(&file).unwrap().has_pvh_entry());
    }

    #[test]
    fn damaged_files_give_nothing() {
        assert!(Elf::parse(b"\x7fELF\x01\x01").is_none());
        let cut = Elf::parse(b"\x7fELF\x02\x01").unwrap();
        assert_eq!(cut.section(".modinfo"), None);
        assert_eq!(cut.interpreter(), None);
        assert!(cut.needed().is_empty());
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in [0x20, 0x3f, 0x41, 0x200] {
            assert!(
                Elf::parse(&bytes[..length])
                    .unwrap()
                    .section(".text")
                    .is_none()
            );
        }
    }
}
