#![expect(unsafe_code, reason = "owns registered memory that a device writes to")]

use std::any::{Any, TypeId};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::ibv_sge;

use super::buf::{Buf, Piece};
use super::handed_back::HandedBack;
use super::mapped::MappedMemory;
use super::owner::MemoryOwner;
use super::pd::ProtectionDomain;
use super::region::{REG_MR, Region};
use super::registration::Registration;
use super::wire::MAX_MESSAGE;
use crate::error::{Error, ErrorKind, Result};

/// Registered memory (`ibv_mr`), cut into equal buffers.
///
/// [`take`](Self::take) hands one out, and a dropped [`Buf`] comes back by itself. The memory stays registered while the
/// pool, or a buffer of it, is alive. Cloning shares it.
#[doc(alias = "ibv_mr")]
#[doc(alias = "ibv_dereg_mr")]
#[doc(alias = "rdma_dereg_mr")]
#[derive(Clone)]
pub struct Pool {
    pub(super) inner: Arc<Inner>,
}

/// # Invariants
///
/// Piece `i` describes the `size` bytes at `i * size` of the region; an index is in `free` exactly when no `Buf` or slot owns
/// its piece.
pub(super) struct Inner {
    pieces: Pieces,
    free: Mutex<Vec<u32>>,
    size: usize,
    owner: TypeId,
    region: Region<dyn Any + Send>,
}

/// The descriptors of a pool's buffers: a leaked box, freed when this is dropped.
struct Pieces {
    start: NonNull<Piece>,
    count: usize,
}

// SAFETY: a descriptor is only touched by whoever owns its piece (a `Buf`), or by `drop`, when there is none.
unsafe impl Send for Pieces {}
// SAFETY: as for `Send`: through `&Pieces` addresses are computed.
unsafe impl Sync for Pieces {}

impl Pieces {
    fn new(pieces: Box<[Piece]>) -> Self {
        Self {
            count: pieces.len(),
            start: NonNull::from(Box::leak(pieces)).cast(),
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let pieces = NonNull::slice_from_raw_parts(self.start, self.count);
        // SAFETY: this is the box that `new` leaked, taken back once, and no `Buf` refers to a piece: it would keep the pool,
        // and so this, alive.
        drop(unsafe { Box::from_raw(pieces.as_ptr()) });
    }
}

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
    /// limit of locked memory, with the limit.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
    #[doc(alias = "rdma_reg_msgs")]
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        piece_length(size)?;
        // Asked before the memory is mapped, which may be more than there is room for.
        let total = count.saturating_mul(size);
        let limit = self.context().limits().max_mr_size();
        if total as u64 > limit {
            return Err(Error::too_large(
                REG_MR,
                "length of the memory in bytes",
                total as u64,
                limit,
                "make several pools",
            ));
        }
        piece_count(total, size)?;
        let memory = MappedMemory::new(total)?;
        Ok(Pool::new(self, memory, size, Registration::new())?)
    }

    /// Registers the memory of `owner`, cut into buffers of `size` bytes each, for sends and receives. Bytes at the end that
    /// make no whole buffer are left alone.
    ///
    /// The buffers hold what the memory holds. [`Pool::into_owner`] gives the owner back. Calls `ibv_reg_mr`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)) once, with local write access and no remote access.
    /// Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`pool`](Self::pool), and [`Unsupported`](crate::ErrorKind::Unsupported) for a `registration` that the device
    /// cannot make. The owner comes back beside the error.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
    #[doc(alias = "rdma_reg_msgs")]
    pub fn pool_of<O: MemoryOwner>(
        &self,
        owner: O,
        size: usize,
        registration: Registration,
    ) -> Result<Pool, HandedBack<O>> {
        Pool::new(self, owner, size, registration)
    }
}

/// The length of a buffer, as a work request has it.
fn piece_length(size: usize) -> Result<u32> {
    let length = u32::try_from(size)
        .ok()
        .filter(|&length| length <= MAX_MESSAGE);
    match length {
        Some(0) => Err(no_pieces()),
        Some(length) => Ok(length),
        None => Err(Error::too_large(
            REG_MR,
            "size of a buffer in bytes",
            size as u64,
            MAX_MESSAGE.into(),
            "a message is at most 2 GiB",
        )),
    }
}

/// How many buffers of `size` bytes are in `len`.
fn piece_count(len: usize, size: usize) -> Result<u32> {
    match u32::try_from(len / size) {
        Ok(0) => Err(no_pieces()),
        Ok(count) => Ok(count),
        Err(_) => Err(Error::too_large(
            REG_MR,
            "count of buffers",
            (len / size) as u64,
            u32::MAX.into(),
            "make several pools",
        )),
    }
}

fn no_pieces() -> Error {
    Error::plain(
        REG_MR,
        ErrorKind::InvalidInput,
        "a pool needs memory for at least one buffer of at least one byte",
    )
}

impl Pool {
    fn new<O: MemoryOwner>(
        pd: &ProtectionDomain,
        owner: O,
        size: usize,
        registration: Registration,
    ) -> Result<Self, HandedBack<O>> {
        let checked = piece_length(size).and_then(|length| {
            let flags = registration.flags(pd)?;
            Ok((length, flags | rdma_sys::IBV_ACCESS_LOCAL_WRITE))
        });
        let (length, access) = match checked {
            Ok(checked) => checked,
            Err(error) => return Err(HandedBack::with(error, owner)),
        };
        let region = Region::register(pd, owner, access)?;
        let count = match piece_count(region.len(), size) {
            Ok(count) => count,
            Err(error) => {
                return Err(match region.end() {
                    Ok(owner) => HandedBack::with(error, *owner),
                    Err(_) => HandedBack::without(error),
                });
            }
        };
        let start = region.start().as_ptr().expose_provenance() as u64;
        let lkey = region.lkey();
        let pieces = (0..count)
            .map(|index| {
                let whole = ibv_sge {
                    addr: start + u64::from(index) * u64::from(length),
                    length,
                    lkey,
                };
                Piece::of_pool(whole, index)
            })
            .collect::<Box<[_]>>();
        // INVARIANT: memory, region and pieces were made together above, and no piece is owned yet.
        Ok(Self {
            inner: Arc::new(Inner {
                free: Mutex::new((0..count).rev().collect()),
                pieces: Pieces::new(pieces),
                size,
                owner: TypeId::of::<O>(),
                region: region.erased(),
            }),
        })
    }

    /// Deregisters the memory and gives its owner back: what was given to [`pool_of`](ProtectionDomain::pool_of), or the
    /// [`MappedMemory`] of a pool that was made by [`pool`](ProtectionDomain::pool).
    ///
    /// Calls `ibv_dereg_mr`. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) while a buffer or a clone of the pool is somewhere, and
    /// [`InvalidInput`](ErrorKind::InvalidInput) for another type of owner: the pool comes back. Else what `ibv_dereg_mr`
    /// reports; the memory is leaked then, since the device may still use it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_owner<O: MemoryOwner>(self) -> Result<O, HandedBack<Self>> {
        const OP: &str = "ibv_dereg_mr";
        let other_type = || {
            let message = "the memory of the pool has an owner of another type";
            Error::plain(OP, ErrorKind::InvalidInput, message)
        };
        if self.inner.owner != TypeId::of::<O>() {
            return Err(HandedBack::with(other_type(), self));
        }
        let inner = Arc::try_unwrap(self.inner).map_err(|inner| {
            let error = Error::state(
                OP,
                "a pool with every buffer back and no clone",
                "a buffer or a clone is somewhere",
            );
            HandedBack::with(error, Self { inner })
        })?;
        let owner = inner.region.end().map_err(HandedBack::without)?;
        match owner.downcast() {
            Ok(owner) => Ok(*owner),
            Err(_) => Err(HandedBack::without(other_type())),
        }
    }

    /// Takes a free buffer, as long as its capacity; `None` when all are in use.
    ///
    /// What it holds is what its last user left.
    #[must_use]
    pub fn take(&self) -> Option<Buf> {
        let index = self.inner.lock_free().pop()?;
        // SAFETY: the free list holds only indices of pieces (the invariant).
        let mut piece = unsafe { self.inner.pieces.start.add(index as usize) };
        // SAFETY: the index was free, so nobody else owns the piece: this reference is the only one.
        let described = unsafe { piece.as_mut() };
        described.take(Arc::clone(&self.inner));
        // SAFETY: the piece came off the free list and has its pool; nobody else has it.
        Some(unsafe { Buf::from_piece(piece) })
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
        self.inner.region.protection_domain()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffers", &self.inner.pieces.count)
            .field("buffer_size", &self.inner.size)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Takes a piece back.
    pub(super) fn give_back(&self, index: u32) {
        self.lock_free().push(index);
    }

    fn lock_free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
