#![expect(unsafe_code, reason = "declares and implements an unsafe trait")]

use std::ptr::NonNull;

/// A value that owns memory which can be registered: [`ProtectionDomain::pool_of`](super::ProtectionDomain::pool_of).
///
/// It is implemented for `Vec<u8>` (the bytes in use), `Box<[u8]>`, `&'static mut [u8]` and
/// [`MappedMemory`](super::MappedMemory). The value is moved to a place of its own, [`memory`](Self::memory) is called there
/// once, and then nothing is done with the value until the memory is deregistered: after that it is handed back, or dropped.
///
/// # Safety
///
/// From the return of `memory` until the value is next used in any way (called, moved or dropped), the bytes that it gave must
///
/// - stay allocated where they are, initialised, and open to reads and writes through any pointer with their address;
/// - be neither read nor written by anybody else: not by another owner, thread or process.
pub unsafe trait MemoryOwner: Send + 'static {
    /// The bytes to register. Called once.
    fn memory(&mut self) -> NonNull<[u8]>;
}

// SAFETY: a vector owns its bytes alone, and they stay where they are until the vector is used; those below its length are
// initialised.
unsafe impl MemoryOwner for Vec<u8> {
    fn memory(&mut self) -> NonNull<[u8]> {
        NonNull::from(self.as_mut_slice())
    }
}

// SAFETY: a box owns its bytes alone, initialised, and they stay where they are until the box is used.
unsafe impl MemoryOwner for Box<[u8]> {
    fn memory(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut **self)
    }
}

// SAFETY: the bytes are borrowed for ever by this reference alone, so only its holder uses them.
unsafe impl MemoryOwner for &'static mut [u8] {
    fn memory(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut **self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_gives_what_it_holds() {
        let mut vec = Vec::with_capacity(100);
        vec.extend([1, 2, 3]);
        let address = vec.as_ptr();
        assert_eq!(vec.memory().len(), 3);
        assert_eq!(vec.memory().as_ptr().cast::<u8>().cast_const(), address);
        let mut boxed: Box<[u8]> = Box::new([0; 7]);
        assert_eq!(boxed.memory().len(), 7);
        let mut forever: &'static mut [u8] = Box::leak(vec![0; 5].into_boxed_slice());
        assert_eq!(forever.memory().len(), 5);
    }
}
