#![expect(
    unsafe_code,
    reason = "keeps requests whose pointers lead to what is behind them"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_sge};

/// `N` work requests that are posted again and again: their constant fields are written once, and a post changes the others.
///
/// A queue has one of these, and makes it with the first request, since it may never have one.
///
/// # Invariants
///
/// `raw` is a [`Block`] and, behind it, room for all elements of the last request but the first, in one allocation that this value
/// owns. It is used by raw pointers only, since the requests point to their elements.
pub(super) struct Prepared<W, const N: usize> {
    raw: Option<NonNull<Block<W, N>>>,
    _owned: PhantomData<W>,
}

/// What a [`Prepared`] points to: all zeros at first, but for `pieces` and what [`Listed::set_list`] writes.
#[repr(C)]
struct Block<W, const N: usize> {
    /// Where the provider names the request that it refuses; null between posts.
    bad: *mut W,
    /// How many elements the last request has. The others have one.
    pieces: u32,
    requests: [Request<W>; N],
}

#[repr(C)]
struct Request<W> {
    wr: W,
    /// The first one. Those of the last request go on behind the block.
    element: ibv_sge,
}

/// Where one request is, for one post.
pub(super) struct Place<W> {
    pub(super) wr: *mut W,
    /// Where the provider names a request that it refuses.
    pub(super) bad: *mut *mut W,
    pub(super) list: *mut ibv_sge,
}

// SAFETY: the owner's, as a `Box` would be.
unsafe impl<W, const N: usize> Send for Prepared<W, N> {}
// SAFETY: through `&Prepared` nothing is done.
unsafe impl<W, const N: usize> Sync for Prepared<W, N> {}

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

impl<W, const N: usize> Prepared<W, N> {
    /// None yet.
    pub(super) const fn none() -> Self {
        Self {
            raw: None,
            _owned: PhantomData,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.raw.is_none()
    }

    /// Requests with room for one element each, and in the last one for `pieces`.
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
            raw: Some(raw),
            _owned: PhantomData,
        };
        let block: *mut Block<W, N> = raw.as_ptr();
        // SAFETY: owned, and nobody else refers to it.
        unsafe { (*block).pieces = pieces };
        for which in 0..N {
            // SAFETY: just made.
            let place = unsafe { this.place(which) };
            // SAFETY: owned, and nobody else refers to it.
            unsafe { &mut *place.wr }.set_list(place.list);
        }
        this
    }

    fn layout(pieces: u32) -> Layout {
        const { assert!(align_of::<Block<W, N>>() == align_of::<ibv_sge>()) };
        // With nothing between the last request and what is behind it.
        const { assert!(size_of::<Block<W, N>>() == 16 + N * size_of::<Request<W>>()) };
        let further = (pieces - 1) as usize;
        let size = size_of::<Block<W, N>>() + further * size_of::<ibv_sge>();
        match Layout::from_size_align(size, align_of::<Block<W, N>>()) {
            Ok(layout) => layout,
            Err(_) => unreachable!("at most MAX_PIECES elements"),
        }
    }

    /// Where a request is.
    ///
    /// # Safety
    ///
    /// The requests were [made](Self::new), and `which` is below `N`.
    #[inline(always)]
    pub(super) unsafe fn place(&mut self, which: usize) -> Place<W> {
        let block = self.raw.map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: inside the allocation, by the caller's promise; nothing is read.
        let bad = unsafe { &raw mut (*block).bad };
        // SAFETY: as above.
        let requests: *mut Request<W> = unsafe { &raw mut (*block).requests }.cast();
        // SAFETY: as above.
        let request = unsafe { requests.add(which) };
        // The elements of the last request go on behind it, so the pointer is one to the rest of the allocation.
        // SAFETY: as above.
        let list = unsafe { request.byte_add(size_of::<W>()) }.cast();
        let wr = request.cast();
        Place { wr, bad, list }
    }

    /// Whether the provider has named one of the requests; forgets the name.
    #[cold]
    pub(super) fn take_name(&mut self) -> bool {
        if self.is_none() {
            return false;
        }
        (0..N).any(|which| {
            // SAFETY: they were made.
            let place = unsafe { self.place(which) };
            // SAFETY: the name is this value's own, and the post is over.
            let is_this = unsafe { *place.bad } == place.wr;
            if is_this {
                // SAFETY: as above.
                unsafe { *place.bad = ptr::null_mut() };
            }
            is_this
        })
    }
}

impl<W, const N: usize> fmt::Debug for Prepared<W, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

impl<W, const N: usize> Drop for Prepared<W, N> {
    fn drop(&mut self) {
        let Some(raw) = self.raw else {
            return;
        };
        // SAFETY: owned, and written when it was made.
        let pieces = unsafe { (*raw.as_ptr()).pieces };
        // SAFETY: allocated with this layout (the invariant), and given back once. The requests are plain data.
        unsafe { dealloc(raw.as_ptr().cast(), Self::layout(pieces)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_its_own_elements_and_the_last_has_all() {
        let mut prepared = Prepared::<ibv_send_wr, 3>::new(5);
        for which in 0..3 {
            let pieces = if which == 2 { 5 } else { 1 };
            // SAFETY: just made, and three of them.
            let place = unsafe { prepared.place(which) };
            for piece in 0..pieces {
                // SAFETY: there is room for so many.
                let element = unsafe { place.list.add(piece) };
                // SAFETY: as above.
                unsafe { (*element).lkey = 7 };
            }
            // SAFETY: nobody else has it.
            let wr = unsafe { &mut *place.wr };
            assert_eq!((wr.sg_list, wr.num_sge), (place.list, 1));
            assert!(wr.next.is_null());
        }
        let mut own = None;
        for which in 0..3 {
            // SAFETY: as above.
            let place = unsafe { prepared.place(which) };
            // SAFETY: as above.
            assert!(unsafe { *place.bad }.is_null(), "an element lies over it");
            own = Some(place);
        }
        assert!(!prepared.take_name());
        let own = own.unwrap();
        // SAFETY: as above.
        unsafe { *own.bad = own.wr };
        assert!(prepared.take_name());
        assert!(!prepared.take_name());
    }

    #[test]
    fn what_another_names_is_none_of_these() {
        let mut prepared = Prepared::<ibv_recv_wr, 1>::new(1);
        let mut other = ibv_recv_wr::default();
        // SAFETY: just made.
        let place = unsafe { prepared.place(0) };
        // SAFETY: as above.
        unsafe { *place.bad = &raw mut other };
        assert!(!prepared.take_name());
    }
}
