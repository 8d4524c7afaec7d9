#![expect(
    unsafe_code,
    reason = "owns the memory of the objects that are handed out"
)]

use std::alloc::Layout;
use std::collections::VecDeque;

use crate::doom::doom;
use crate::table::Map;

/// What destroyed objects are filled with: no pointer, no descriptor, and easy to see.
const PATTERN: u8 = 0xa7;
/// How many destroyed objects are kept.
const KEPT: usize = 20_000;

/// The C structure of an object that lives: handed out by its address, and this library's to write to.
///
/// # Invariants
///
/// `raw` came from `Box::into_raw` and was not given back.
#[derive(Debug)]
pub(crate) struct Obj<T> {
    raw: *mut T,
}

// SAFETY: the pointer is used under the world's lock only.
unsafe impl<T> Send for Obj<T> {}

impl<T> Obj<T> {
    pub(crate) fn new(value: T) -> Self {
        // INVARIANT: just made.
        Self {
            raw: Box::into_raw(Box::new(value)),
        }
    }

    pub(crate) fn raw(&self) -> *mut T {
        self.raw
    }

    pub(crate) fn address(&self) -> usize {
        self.raw.addr()
    }

    /// Looks at the structure.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: alive (the invariant); who shares it with the library does not write meanwhile, or the library itself
        // would have a race.
        look(unsafe { &*self.raw })
    }

    /// Writes to the structure.
    pub(crate) fn edit<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as for `look`.
        edit(unsafe { &mut *self.raw })
    }
}

/// Where destroyed objects lie, poisoned, until there are too many.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    graves: VecDeque<Grave>,
    kinds: Map<usize, &'static str>,
}

#[derive(Debug)]
struct Grave {
    address: usize,
    layout: Layout,
}

impl Graveyard {
    /// Poisons an object and keeps its memory, so that a later use is recognised.
    pub(crate) fn bury<T>(&mut self, kind: &'static str, object: Obj<T>) {
        let raw = object.raw.cast::<u8>();
        // SAFETY: alive until here (the invariant), and `object` is gone after this.
        unsafe { raw.write_bytes(PATTERN, size_of::<T>()) };
        let grave = Grave {
            address: raw.expose_provenance(),
            layout: Layout::new::<T>(),
        };
        self.kinds.insert(grave.address, kind);
        self.graves.push_back(grave);
        while self.graves.len() > KEPT {
            let Some(oldest) = self.graves.pop_front() else {
                break;
            };
            self.release(&oldest);
        }
    }

    fn release(&mut self, grave: &Grave) {
        self.check(grave);
        self.kinds.remove(&grave.address);
        // SAFETY: the memory came from a `Box` of this layout and is given back once.
        unsafe { std::alloc::dealloc(pointer(grave.address), grave.layout) };
    }

    fn check(&self, grave: &Grave) {
        // SAFETY: the memory is kept since it was poisoned.
        let bytes =
            unsafe { std::slice::from_raw_parts(pointer(grave.address), grave.layout.size()) };
        if let Some(place) = bytes.iter().position(|byte| *byte != PATTERN) {
            let kind = self.kind(grave.address).unwrap_or("object");
            doom!(
                "somebody wrote to a destroyed {kind} ({:#x}, byte {place})",
                grave.address
            );
        }
    }

    /// What a destroyed object at this address was.
    pub(crate) fn kind(&self, address: usize) -> Option<&'static str> {
        self.kinds.get(&address).copied()
    }

    /// Looks whether anybody has written to a destroyed object.
    pub(crate) fn check_all(&self) {
        for grave in &self.graves {
            self.check(grave);
        }
    }
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

/// A zeroed C structure.
pub(crate) fn zeroed<T: Zero>() -> T {
    // SAFETY: `Zero` is for types of which all zeros is a value.
    unsafe { std::mem::MaybeUninit::zeroed().assume_init() }
}

/// Plain C types: numbers, pointers that may be null, and structures of those.
///
/// # Safety
///
/// All zeros is a value of the type.
pub(crate) unsafe trait Zero {}

macro_rules! zero {
    ($($ty:ty),* $(,)?) => {$(
        // SAFETY: numbers, nullable pointers, and the C library's mutexes and conditions, which are plain data.
        unsafe impl Zero for $ty {}
    )*};
}

zero!(
    crate::c::rdma_cm_id,
    crate::c::rdma_cm_event,
    crate::c::rdma_addrinfo,
    crate::c::ibv_context,
    crate::c::verbs_context,
    crate::c::ibv_device,
    crate::c::ibv_device_attr,
    crate::c::ibv_qp_ex,
    crate::c::ibv_send_wr,
    crate::c::ibv_qp_attr,
    crate::c::ibv_cq,
    crate::c::ibv_srq,
    crate::c::ibv_wc,
    crate::c::ibv_ah_attr,
    crate::c::ibv_sa_path_rec,
    libc::sockaddr_storage,
);
