#![expect(
    unsafe_code,
    reason = "keeps a request whose pointers lead into itself"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_sge};

/// One work request that is posted again and again: its constant fields are written once, and a post changes the others.
///
/// # Invariants
///
/// `raw` is a [`Request`] and, behind it, `pieces` elements, in one allocation that this value owns; with no elements there is
/// none, and `raw` is dangling. It is used by raw pointers only, since the request points to its elements.
pub(super) struct Prepared<W> {
    raw: NonNull<Request<W>>,
    pieces: u32,
    _owned: PhantomData<W>,
}

/// What a [`Prepared`] points to: all zeros at first, but for what [`Listed::set_list`] writes.
#[repr(C)]
struct Request<W> {
    wr: W,
    /// Where the provider names the request that it refuses; null between posts.
    bad: *mut W,
}

// SAFETY: the owner's, as a `Box` would be.
unsafe impl<W> Send for Prepared<W> {}
// SAFETY: through `&Prepared` nothing is done.
unsafe impl<W> Sync for Prepared<W> {}

/// A C structure with a list of elements, for which all zeros is a value.
pub(super) trait Listed {
    fn set_list(&mut self, list: *mut ibv_sge);
}

impl Listed for ibv_send_wr {
    fn set_list(&mut self, list: *mut ibv_sge) {
        self.sg_list = list;
        self.num_sge = 1;
    }
}

impl Listed for ibv_recv_wr {
    fn set_list(&mut self, list: *mut ibv_sge) {
        self.sg_list = list;
        self.num_sge = 1;
    }
}

impl<W> Prepared<W> {
    const LIST: usize = size_of::<Request<W>>();

    /// None yet: to be replaced before it is used.
    pub(super) const fn none() -> Self {
        // INVARIANT: without elements.
        Self {
            raw: NonNull::dangling(),
            pieces: 0,
            _owned: PhantomData,
        }
    }

    /// A request with room for `pieces` elements, and at least one.
    pub(super) fn new(pieces: u32) -> Self
    where
        W: Listed,
    {
        let pieces = pieces.max(1);
        let layout = Self::layout(pieces);
        // SAFETY: the layout is not empty.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(raw) = NonNull::new(raw.cast()) else {
            handle_alloc_error(layout)
        };
        // INVARIANT: just allocated; zeros are a value of all of it.
        let mut this = Self {
            raw,
            pieces,
            _owned: PhantomData,
        };
        let list = this.list();
        // SAFETY: owned, and nobody else refers to it.
        unsafe { &mut *this.wr() }.set_list(list);
        this
    }

    fn layout(pieces: u32) -> Layout {
        const { assert!(align_of::<Request<W>>() == align_of::<ibv_sge>()) };
        let size = Self::LIST + pieces as usize * size_of::<ibv_sge>();
        match Layout::from_size_align(size, align_of::<Request<W>>()) {
            Ok(layout) => layout,
            Err(_) => unreachable!("at most MAX_PIECES elements"),
        }
    }

    /// The request, for one post.
    #[inline]
    pub(super) fn wr(&mut self) -> *mut W {
        // The first field.
        self.raw.as_ptr().cast()
    }

    /// Where the provider names a request that it refuses.
    #[inline]
    pub(super) fn bad(&mut self) -> *mut *mut W {
        // SAFETY: inside the allocation; nothing is read.
        unsafe { &raw mut (*self.raw.as_ptr()).bad }
    }

    /// Whether the provider has named this request; forgets the name.
    #[cold]
    pub(super) fn take_name(&mut self) -> bool {
        // SAFETY: the request is this value's own, and the post is over.
        let bad = unsafe { self.bad().replace(ptr::null_mut()) };
        ptr::eq(bad, self.wr())
    }

    /// The elements of the request, for one post.
    #[inline]
    pub(super) fn list(&mut self) -> *mut ibv_sge {
        // SAFETY: the elements lie behind the request, in the same allocation.
        unsafe { self.raw.as_ptr().add(1) }.cast()
    }
}

impl<W> fmt::Debug for Prepared<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

impl<W> Drop for Prepared<W> {
    fn drop(&mut self) {
        if self.pieces == 0 {
            return;
        }
        // SAFETY: allocated with this layout (the invariant), and given back once. The request is plain data.
        unsafe { dealloc(self.raw.as_ptr().cast(), Self::layout(self.pieces)) };
    }
}
