#![expect(unsafe_code, reason = "maps memory")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::owner::MemoryOwner;
use crate::error::{Error, ErrorKind, Result, no_huge_pages};

const OP: &str = "mmap";

/// The size of a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePage {
    /// 2 MiB.
    Mib2,
    /// 1 GiB.
    Gib1,
}

impl HugePage {
    /// How many bytes a page has.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Mib2 => 2 << 20,
            Self::Gib1 => 1 << 30,
        }
    }

    fn flag(self) -> MapFlags {
        match self {
            Self::Mib2 => MapFlags::HUGE_2MB,
            Self::Gib1 => MapFlags::HUGE_1GB,
        }
    }
}

/// Pages mapped into the process (`mmap`): bytes that the program owns, as in a `Box<[u8]>`.
///
/// The memory for [`expose_memory`](super::ProtectionDomain::expose_memory), and one of the owners for
/// [`pool_of`](super::ProtectionDomain::pool_of). Huge pages spare the device most of its address look-ups.
///
/// # Invariants
///
/// `base` is a mapping of `mapped` bytes, readable and writable, that this value alone uses and unmaps; `len` is at most
/// `mapped`.
#[doc(alias = "mmap")]
pub struct MappedMemory {
    base: NonNull<u8>,
    len: usize,
    mapped: usize,
}

// SAFETY: the mapping is the value's own, as the bytes of a `Box<[u8]>` are.
unsafe impl Send for MappedMemory {}
// SAFETY: through `&MappedMemory` bytes are only read.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Maps `len` bytes, zeroed.
    ///
    /// Calls `mmap` ([man 2](https://man7.org/linux/man-pages/man2/mmap.2.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for no bytes; `ENOMEM` when there is no room.
    pub fn new(len: usize) -> Result<Self> {
        let base = anonymous(len, MapFlags::empty())
            .map_err(|errno| Error::os(OP, errno.raw_os_error()))?;
        Self::from_mapping(base, len, len)
    }

    /// Maps `len` bytes, zeroed, in huge pages: as many as they need. Those must have been reserved (`vm.nr_hugepages`).
    ///
    /// Calls `mmap` with `MAP_HUGETLB`. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for no bytes; `ENOMEM` when too few pages of this size are free, with their
    /// number and how to reserve more.
    #[doc(alias = "MAP_HUGETLB")]
    pub fn huge(len: usize, page: HugePage) -> Result<Self> {
        let mapped = len.checked_next_multiple_of(page.size()).ok_or_else(|| {
            Error::too_large(
                OP,
                "length of the memory in bytes",
                len as u64,
                isize::MAX as u64,
                "map less",
            )
        })?;
        let base = anonymous(mapped, MapFlags::HUGETLB | page.flag()).map_err(|errno| {
            no_huge_pages(OP, errno.raw_os_error(), mapped / page.size(), page.size())
        })?;
        Self::from_mapping(base, len, mapped)
    }

    /// Maps `len` bytes of a file from `offset` on, shared: what is written gets into the file.
    ///
    /// For memory that is a file: of a `memfd`, a persistent-memory device, a huge-page file system. `offset` must be a multiple
    /// of the page size. Calls `mmap` with `MAP_SHARED`. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for no bytes or a wrong offset; `EACCES` for a file that is not open for
    /// reading and writing; `ENODEV` for one that cannot be mapped.
    ///
    /// # Safety
    ///
    /// Until the value is dropped, and every device has let go of it,
    ///
    /// - the file has all of these bytes: it is not made shorter, else an access ends the process;
    /// - nobody else writes them, or reads them while this program or a device writes: no other mapping, descriptor or
    ///   process. (For memory that is exposed only, and never a slice, others may.)
    #[doc(alias = "MAP_SHARED")]
    pub unsafe fn from_file(file: impl AsFd, offset: u64, len: usize) -> Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: `mmap` wants an address that nothing depends on: null leaves the choice to the kernel.
        let base = unsafe { mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, file, offset) };
        let base = base.map_err(|errno| Error::os_as(OP, errno.raw_os_error(), kind_of(errno)))?;
        Self::from_mapping(base.cast(), len, len)
    }

    fn from_mapping(base: *mut u8, len: usize, mapped: usize) -> Result<Self> {
        // The kernel does not map page 0 unless it is asked to.
        let base = NonNull::new(base).ok_or_else(|| Error::os(OP, libc::ENOMEM))?;
        // INVARIANT: just mapped, and known to nobody else.
        Ok(Self { base, len, mapped })
    }
}

/// ENODEV is about the file here.
fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NODEV => ErrorKind::Unsupported,
        errno => ErrorKind::of_errno(errno.raw_os_error()),
    }
}

fn anonymous(len: usize, flags: MapFlags) -> Result<*mut u8, Errno> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: `mmap_anonymous` wants an address that nothing depends on: null leaves the choice to the kernel.
    let base = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE | flags) };
    base.map(|base| base.cast())
}

// SAFETY: the mapping is this value's alone (the invariant) and stays until it is dropped; its bytes are zeroes from the start
// or a file's, so initialised.
unsafe impl MemoryOwner for MappedMemory {
    fn memory(&mut self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.base, self.len)
    }
}

impl Deref for MappedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are mapped, initialised, and this value's own (the invariant).
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for MappedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes the access the only one.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for MappedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedMemory")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and it is not used after this. If it fails, it is leaked.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_is_plain_bytes() {
        let mut memory = MappedMemory::new(5000).unwrap();
        assert_eq!(memory.len(), 5000);
        assert!(memory.iter().all(|&byte| byte == 0));
        memory[4999] = 7;
        assert_eq!(memory[4999], 7);
        let error = MappedMemory::new(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn huge_pages_that_are_not_there_are_explained() {
        // No machine has so many.
        let error = MappedMemory::huge(1 << 45, HugePage::Mib2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert_eq!(error.op(), "mmap");
        let text = error.to_string();
        assert!(text.contains("huge pages of 2048 KiB: 16777216"), "{text}");
        let error = MappedMemory::huge(usize::MAX, HugePage::Gib1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    }

    #[test]
    fn a_file_is_mapped_for_writing() {
        use std::io::{Read, Seek};

        let path = std::env::temp_dir().join(format!("rdmacm-mapped-{}", std::process::id()));
        let mut file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: the file has no name and is this test's alone; it keeps its length.
        let mut memory = unsafe { MappedMemory::from_file(&file, 0, 4096) }.unwrap();
        memory[..4].copy_from_slice(b"here");
        drop(memory);
        let mut text = [0; 4];
        file.rewind().unwrap();
        file.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"here");
        // SAFETY: the mapping fails: the offset is within a page.
        let error = unsafe { MappedMemory::from_file(&file, 5, 4096) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
