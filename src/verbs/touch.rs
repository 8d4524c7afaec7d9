//! Copies to and from memory that a device may touch meanwhile.
#![expect(unsafe_code, reason = "reads and writes by raw pointers")]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// From so many bytes on, one instruction copies faster than words do.
const BULK: usize = 2048;

/// Copies the bytes at `from` out, as they are now.
///
/// # Safety
///
/// `from` is mapped for as many bytes as `to` has, outside `to`. During the call threads of this process do no more than read
/// them; devices may write.
pub(super) unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    if to.len() >= BULK && bulk(from, to.as_mut_ptr(), to.len()) {
        return;
    }
    // What follows reads: the pointer is mutable for the atomic types alone.
    let from = from.cast_mut();
    let (head, rest) = to.split_at_mut(unaligned(from.addr(), to.len()));
    let middle = from.wrapping_add(head.len());
    for (place, byte) in head.iter_mut().enumerate() {
        // SAFETY: within the bytes that the caller vouches for.
        *byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(place)) }.load(Ordering::Relaxed);
    }
    let mut words = rest.chunks_exact_mut(8);
    let mut place = middle;
    for word in &mut words {
        // SAFETY: as above, and aligned to eight.
        let now = unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Relaxed);
        word.copy_from_slice(&now.to_ne_bytes());
        place = place.wrapping_add(8);
    }
    for (offset, byte) in words.into_remainder().iter_mut().enumerate() {
        // SAFETY: as above.
        *byte = unsafe { AtomicU8::from_ptr(place.wrapping_add(offset)) }.load(Ordering::Relaxed);
    }
}

/// Copies `from` to the bytes at `to`.
///
/// # Safety
///
/// `to` is mapped for as many bytes as `from` has, outside `from`. During the call no other thread of this process touches
/// them; devices may.
pub(super) unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    if from.len() >= BULK && bulk(from.as_ptr(), to, from.len()) {
        return;
    }
    let (head, rest) = from.split_at(unaligned(to.addr(), from.len()));
    for (place, &byte) in head.iter().enumerate() {
        // SAFETY: within the bytes that the caller vouches for.
        unsafe { AtomicU8::from_ptr(to.wrapping_add(place)) }.store(byte, Ordering::Relaxed);
    }
    let words = rest.chunks_exact(8);
    let tail = words.remainder();
    let mut place = to.wrapping_add(head.len());
    for word in words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        let word = u64::from_ne_bytes(bytes);
        // SAFETY: as above, and aligned to eight.
        unsafe { AtomicU64::from_ptr(place.cast()) }.store(word, Ordering::Relaxed);
        place = place.wrapping_add(8);
    }
    for (offset, &byte) in tail.iter().enumerate() {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(place.wrapping_add(offset)) }.store(byte, Ordering::Relaxed);
    }
}

/// How many bytes of `len` at `address` come before the next multiple of eight.
fn unaligned(address: usize, len: usize) -> usize {
    (address.wrapping_neg() % 8).min(len)
}

/// Copies by one instruction, which the compiler does not look into; says whether there is one.
///
/// Reads `len` bytes at `from` and writes those at `to`, which the callers vouch for.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn bulk(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: both ranges are valid for `len` bytes by the promise of the two callers, the functions above, and apart. The
    // instruction counts upwards, since the direction flag is clear in Rust code, and touches nothing else.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    true
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn bulk(_from: *const u8, _to: *mut u8, _len: usize) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_before_a_multiple_of_eight() {
        for (address, len, head) in [(0, 100, 0), (1, 100, 7), (7, 100, 1), (9, 3, 3), (8, 0, 0)] {
            assert_eq!(unaligned(address, len), head, "{len} at {address}");
        }
    }

    #[test]
    fn every_length_and_offset_is_copied_and_nothing_beside_it() {
        let lengths = (0..40).chain([BULK - 1, BULK, BULK + 5, 3 * BULK + 1]);
        for len in lengths {
            for offset in 0..9 {
                let data: Vec<u8> = (1..=250).cycle().take(len).collect();
                let mut memory = vec![0_u64; (len + 40) / 8 + 1];
                let start = memory.as_mut_ptr().cast::<u8>().wrapping_add(offset);
                // SAFETY: the vector has 32 bytes more than `len`, and is this test's alone.
                unsafe { copy_in(start, &data) };
                let mut back = vec![0; len + 1];
                // SAFETY: as above.
                unsafe { copy_out(start, &mut back) };
                assert_eq!(back.pop(), Some(0), "beyond {len} at {offset}");
                assert_eq!(back, data, "{len} at {offset}");
                let sum: u64 = memory
                    .iter()
                    .flat_map(|word| word.to_ne_bytes())
                    .map(u64::from)
                    .sum();
                let wanted: u64 = data.iter().copied().map(u64::from).sum();
                assert_eq!(sum, wanted, "beside {len} at {offset}");
            }
        }
    }
}
