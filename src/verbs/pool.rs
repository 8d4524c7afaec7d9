#![expect(unsafe_code, reason = "owns registered memory that a device writes to")]

use std::alloc::Layout;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::{ibv_mr, ibv_sge};

use super::pd::ProtectionDomain;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs, pointer_of};

/// Registered memory (`ibv_mr`), cut into equal buffers.
///
/// [`take`](Self::take) hands one out, and a dropped [`Buf`] comes back by itself. The memory stays registered while the
/// pool, or a buffer of it, is alive. Cloning shares it.
#[doc(alias = "ibv_mr")]
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// `base` is `layout` bytes of zeroed memory from the global allocator, registered as `mr` in `pd`; piece `i` describes the
/// `size` bytes at `i * size`; an index is in `free` exactly when no `Buf` or slot owns its piece.
struct Inner {
    mr: NonNull<ibv_mr>,
    base: NonNull<u8>,
    layout: Layout,
    size: usize,
    /// `count` pieces from a leaked `Box<[Piece]>`, taken back in `drop`.
    pieces: NonNull<Piece>,
    count: usize,
    free: Mutex<Vec<u32>>,
    pd: ProtectionDomain,
}

/// One buffer of a pool, as the device needs it.
pub(super) struct Piece {
    /// What a send reads: the address, the current length, the key.
    filled: ibv_sge,
    /// What a receive may write: the address, the capacity, the key.
    whole: ibv_sge,
    /// The pool, as `Arc::into_raw` gave it, while a `Buf` owns the piece; else null.
    pool: *const Inner,
    index: u32,
}

// SAFETY: the raw pointers are only followed by whoever owns a piece (a `Buf`), or, for `mr` and `base`, by `drop`, which
// has the only reference. The list of free pieces is behind a mutex.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`: through `&Inner` only the mutex, numbers that never change and addresses are read.
unsafe impl Sync for Inner {}

impl ProtectionDomain {
    /// Registers memory for `count` buffers of `size` bytes each, for sends and receives.
    ///
    /// Calls `ibv_reg_mr` ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)) once, with local write access
    /// and no remote access. The memory is zeroed. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](crate::ErrorKind::TooLarge) when `count` times `size` is above the device's `max_mr_size` or `size`
    /// does not fit a work request; [`InvalidInput`](crate::ErrorKind::InvalidInput) when either is 0; `ENOMEM` above the
    /// limit of locked memory.
    #[doc(alias = "ibv_reg_mr")]
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        Pool::new(self, count, size)
    }
}

impl Pool {
    fn new(pd: &ProtectionDomain, count: usize, size: usize) -> Result<Self> {
        const OP: &str = "ibv_reg_mr";
        if count == 0 || size == 0 {
            return Err(Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "a pool needs at least one buffer of at least one byte",
            ));
        }
        let length = u32::try_from(size).ok().filter(|&length| length <= 1 << 31);
        let (Some(length), Ok(pieces)) = (length, u32::try_from(count)) else {
            return Err(Error::too_large(
                OP,
                "size or count of buffers",
                size.max(count) as u64,
                1 << 31,
                "a message is at most 2 GiB",
            ));
        };
        let total = u64::from(length) * u64::from(pieces);
        let limit = pd.context().limits().max_mr_size();
        let layout = usize::try_from(total)
            .ok()
            .and_then(|total| Layout::from_size_align(total, 4096).ok())
            .filter(|_| total <= limit)
            .ok_or_else(|| {
                Error::too_large(
                    OP,
                    "length of the pool in bytes",
                    total,
                    limit,
                    "make several pools",
                )
            })?;

        // SAFETY: `alloc_zeroed` wants a layout of at least one byte: both factors were checked above.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            return Err(Error::os(OP, libc::ENOMEM));
        };
        // SAFETY: `ibv_reg_mr` wants a domain, which `pd` is, and `length` bytes that stay mapped until `ibv_dereg_mr`:
        // `Inner` frees them only after that has succeeded.
        let mr = unsafe {
            rdma_sys::ibv_reg_mr(
                pd.as_raw(),
                base.as_ptr().cast(),
                layout.size(),
                // CAST: a low bit.
                rdma_sys::IBV_ACCESS_LOCAL_WRITE as i32,
            )
        };
        let mr = match pointer_of(mr) {
            Ok(mr) => mr,
            Err(errno) => {
                // SAFETY: `base` came from `alloc_zeroed` with this layout, and the registration that would use it failed.
                unsafe { std::alloc::dealloc(base.as_ptr(), layout) };
                return Err(Error::os(OP, errno));
            }
        };
        // SAFETY: `mr` is the region just registered; its `lkey` is set and never changes.
        let lkey = unsafe { (*mr.as_ptr()).lkey };
        let start = base.as_ptr().expose_provenance() as u64;
        let free = (0..pieces).rev().collect();
        let pieces = (0..pieces)
            .map(|index| {
                let whole = ibv_sge {
                    addr: start + u64::from(index) * u64::from(length),
                    length,
                    lkey,
                };
                Piece {
                    filled: whole,
                    whole,
                    pool: ptr::null(),
                    index,
                }
            })
            .collect::<Box<[_]>>();
        // INVARIANT: memory, region and pieces were made together above, and no piece is owned yet.
        Ok(Self {
            inner: Arc::new(Inner {
                mr,
                base,
                layout,
                size,
                free: Mutex::new(free),
                pieces: NonNull::from(Box::leak(pieces)).cast(),
                count,
                pd: pd.clone(),
            }),
        })
    }

    /// Takes a free buffer, as long as its capacity; `None` when all are in use.
    ///
    /// What it holds is what its last user left.
    #[must_use]
    pub fn take(&self) -> Option<Buf> {
        let index = self.inner.lock_free().pop()?;
        // SAFETY: the free list holds only indices of pieces (the invariant).
        let mut piece = unsafe { self.inner.pieces.add(index as usize) };
        // SAFETY: the index was free, so nobody else owns the piece: this reference is the only one.
        let described = unsafe { piece.as_mut() };
        described.pool = Arc::into_raw(Arc::clone(&self.inner));
        described.filled.length = described.whole.length;
        // INVARIANT: the piece came off the free list and has its pool.
        Some(Buf { piece })
    }

    /// How many bytes a buffer holds.
    #[must_use]
    pub fn buffer_size(&self) -> usize {
        self.inner.size
    }

    /// How many buffers are free now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.inner.lock_free().len()
    }

    /// The domain that the memory is registered in.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffers", &self.inner.count)
            .field("buffer_size", &self.inner.size)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn lock_free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `ibv_dereg_mr` wants a region that no work request uses: each buffer that is posted sits in a ring and
        // keeps a share of this pool, so none is.
        let returned = unsafe { rdma_sys::ibv_dereg_mr(self.mr.as_ptr()) };
        if errno_of_verbs(returned).is_err() {
            // The device may still reach the memory: it is leaked, and so is the domain that it is registered in.
            std::mem::forget(self.pd.clone());
            return;
        }
        let pieces = NonNull::slice_from_raw_parts(self.pieces, self.count);
        // SAFETY: this is the box that `new` leaked, taken back once, and no `Buf` refers to a piece: it would keep this
        // pool alive.
        drop(unsafe { Box::from_raw(pieces.as_ptr()) });
        // SAFETY: `base` came from the global allocator with this layout, the device has let go of it, and no `Buf` is left.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// A buffer of registered memory, owned by the program: plain bytes.
///
/// One word wide. Posting it moves it into the request; the completion brings it back. Dropped, it returns to its [`Pool`].
///
/// # Invariants
///
/// `piece` is owned by this value alone, and its `pool` is a share of the pool that the piece is of.
pub struct Buf {
    piece: NonNull<Piece>,
}

// SAFETY: a `Buf` owns its piece and the bytes behind it, as a `Box<[u8]>` does.
unsafe impl Send for Buf {}
// SAFETY: through `&Buf` bytes and numbers are only read.
unsafe impl Sync for Buf {}

impl Buf {
    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.whole().length as usize
    }

    /// Sets how many bytes are in use: what a send sends.
    ///
    /// # Panics
    ///
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        let length = u32::try_from(len)
            .ok()
            .filter(|&length| length <= self.whole().length);
        let length = length.unwrap_or_else(|| {
            panic!(
                "length {len} of a buffer with a capacity of {}",
                self.capacity()
            )
        });
        // SAFETY: the piece is this value's own (the invariant).
        unsafe { (*self.piece.as_ptr()).filled.length = length };
    }

    /// Copies `data` in and makes that the buffer's content.
    ///
    /// # Panics
    ///
    /// When `data` is longer than the capacity.
    pub fn fill_from(&mut self, data: &[u8]) {
        self.set_len(data.len());
        self.copy_from_slice(data);
    }

    /// Whether the buffer is one of `pool`'s.
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        // SAFETY: the piece is this value's own (the invariant).
        let own = unsafe { self.piece.as_ref() }.pool;
        ptr::eq(own, Arc::as_ptr(&pool.inner))
    }

    /// What a send reads.
    pub(super) fn filled(&self) -> ibv_sge {
        // SAFETY: the piece is this value's own (the invariant).
        unsafe { self.piece.as_ref() }.filled
    }

    /// What a receive may write.
    pub(super) fn whole(&self) -> ibv_sge {
        // SAFETY: the piece is this value's own (the invariant).
        unsafe { self.piece.as_ref() }.whole
    }

    /// Gives up the buffer for a pointer, which owns it from now on.
    pub(super) fn into_piece(self) -> NonNull<Piece> {
        ManuallyDrop::new(self).piece
    }

    /// Takes back what [`into_piece`](Self::into_piece) gave.
    ///
    /// # Safety
    ///
    /// `piece` came from `into_piece`, is taken back once, and no device uses its bytes.
    pub(super) unsafe fn from_piece(piece: NonNull<Piece>) -> Self {
        // INVARIANT: the caller hands over what `into_piece` gave up.
        Self { piece }
    }

    fn address(&self) -> *mut u8 {
        // CAST: the address of memory of this process fits its pointers.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an address of this process"
        )]
        let address = self.whole().addr as usize;
        ptr::with_exposed_provenance_mut(address)
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let len = self.filled().length as usize;
        // SAFETY: the first `len` bytes are part of the piece's range, initialised (zeroed at allocation), and owned by this
        // value: no device uses them, since posting moves the `Buf` away. The pool keeps them allocated.
        unsafe { slice::from_raw_parts(self.address(), len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.filled().length as usize;
        // SAFETY: as for `deref`, and `&mut self` makes the access the only one.
        unsafe { slice::from_raw_parts_mut(self.address(), len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: the piece is this value's own (the invariant), and it is not used after this.
        let Piece { pool, index, .. } = *unsafe { self.piece.as_ref() };
        // SAFETY: `pool` came from `Arc::into_raw` when the piece was taken, and that share is given back once, here.
        let pool = unsafe { Arc::from_raw(pool) };
        pool.lock_free().push(index);
    }
}
