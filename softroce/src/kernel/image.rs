//! The kernel's image: the uncompressed program inside a `vmlinuz`.
//!
//! A kernel that can be entered directly (PVH) needs no decompression in the guest, which under emulation costs more than the rest of its start.

use crate::{
    elf::{Elf, u32_at},
    unpack::Format,
};

/// Returns the uncompressed kernel in a bzImage, or the image itself if it is one, when it can be entered
/// directly. `None` means: boot the image as it is.
pub(crate) fn direct(image: &[u8]) -> Option<Vec<u8>> {
    if Elf::parse(image).is_some_and(|elf| elf.has_pvh_entry()) {
        return Some(image.to_vec());
    }
    let payload = payload(image)?;
    let kernel = Format::of(payload)?.unpack(payload).ok()?;
    Elf::parse(&kernel)?.has_pvh_entry().then_some(kernel)
}

/// Tells whether a file is a kernel that QEMU can boot on this architecture.
pub(crate) fn is_kernel(image: &[u8]) -> bool {
    Elf::parse(image).is_some_and(|elf| elf.has_pvh_entry()) || is_bzimage(image)
}

/// The Linux boot protocol's header (`Documentation/arch/x86/boot.rst`): its magic is at 0x202.
fn is_bzimage(image: &[u8]) -> bool {
    image.get(0x202..0x206) == Some(b"HdrS")
}

/// The compressed kernel inside a bzImage, as the boot protocol (2.08) describes it.
fn payload(image: &[u8]) -> Option<&[u8]> {
    if !is_bzimage(image) || u16::from_le_bytes(*image.get(0x206..)?.first_chunk()?) < 0x208 {
        return None;
    }
    let sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + usize::try_from(u32_at(image, 0x248)?).ok()?;
    let length = usize::try_from(u32_at(image, 0x24c)?).ok()?;
    image.get(start..start.checked_add(length)?)
}

/// The version that a bzImage states, such as `6.1.0-50-amd64`.
pub(crate) fn version(image: &[u8]) -> Option<String> {
    if !is_bzimage(image) {
        return None;
    }
    let at = usize::from(u16::from_le_bytes(*image.get(0x20e..)?.first_chunk()?)) + 0x200;
    let text = image.get(at..)?.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(text)
        .ok()?
        .split_whitespace()
        .next()
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&[0x0f, 2]);
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&4u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image[0x300..0x314].copy_from_slice(b"6.1.0-50-amd64 (x) #");
        image.extend_from_slice(b"pad!");
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn the_payload_and_the_version_are_found() {
        let image = bzimage(b"compressed");
        assert_eq!(payload(&image), Some(b"compressed".as_slice()));
        assert_eq!(version(&image).as_deref(), Some("6.1.0-50-amd64"));
        assert!(is_kernel(&image));
    }

    #[test]
    fn what_cannot_be_entered_directly_is_left_alone() {
        assert_eq!(direct(&bzimage(b"compressed")), None);
        assert_eq!(direct(b"not a kernel"), None);
        assert!(!is_kernel(b"not a kernel"));
        assert_eq!(payload(&bzimage(b"compressed")[..0x408]), None);
        assert_eq!(version(b""), None);
    }
}
