//! Steering what becomes of posted requests: see `standin/src/provider.rs`.

use std::ffi::c_void;
use std::time::Duration;

use rdma_sys::{ibv_cq, ibv_event_type, ibv_wc, ibv_wc_status};

use super::abi::{Posts, Refusal};
use super::{Standin, symbol};

/// Everybody, also who is made later. Elsewhere: the raw pointer of a queue pair or shared receive queue, by `at`.
pub(crate) const ALL: usize = 0;

/// Where requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Recv,
    Both,
}

impl Side {
    fn mask(self) -> u32 {
        match self {
            Self::Send => 1,
            Self::Recv => 2,
            Self::Both => 3,
        }
    }

    fn one(self) -> u32 {
        match self {
            Self::Send => 0,
            Self::Recv => 1,
            Self::Both => panic!("one side only"),
        }
    }
}

/// How requests are held that are posted from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Not at all.
    No,
    UntilReleased,
    For(Duration),
}

/// What happens to the `bad_wr` of a refused post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadWr {
    Untouched,
    /// It names the request at this place of the list.
    At(u32),
    Null,
    /// It names none of the list.
    Stray,
}

/// What the error state leaves where it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unflushed {
    pub(crate) sends: bool,
    pub(crate) receives: bool,
    /// Those that are posted in the error state only.
    pub(crate) late_sends: bool,
    pub(crate) late_receives: bool,
}

/// A queue as a target.
pub(crate) fn at<T>(queue: *mut T) -> usize {
    queue.addr()
}

impl Standin {
    /// Holds what is posted from now on.
    pub(crate) fn hold_requests(&self, target: usize, side: Side, hold: Hold) {
        let microseconds = match hold {
            Hold::No => 0,
            Hold::UntilReleased => -1,
            Hold::For(time) => i64::try_from(time.as_micros()).unwrap().max(1),
        };
        call!(standin_hold(target, side.mask(), microseconds): fn(usize, u32, i64));
    }

    /// The numbers of the requests posted and not complete, in their order, and whether each is held.
    pub(crate) fn posted(&self, target: usize, side: Side) -> Vec<(u64, bool)> {
        let mut posted = Vec::new();
        loop {
            let mut wr_id = 0;
            let found = call!(standin_posted(target, side.one(), posted.len(), &raw mut wr_id):
                fn(usize, u32, usize, *mut u64) -> i32);
            if found == 0 {
                return posted;
            }
            posted.push((wr_id, found == 2));
        }
    }

    /// The numbers of the requests that are held.
    pub(crate) fn held(&self, target: usize, side: Side) -> Vec<u64> {
        let posted = self.posted(target, side);
        let held = posted.into_iter().filter(|(_, held)| *held);
        held.map(|(wr_id, _)| wr_id).collect()
    }

    /// Lets held requests go on, in this order.
    ///
    /// # Panics
    ///
    /// When one of them is not held.
    pub(crate) fn release(&self, target: usize, side: Side, wr_ids: &[u64]) {
        for wr_id in wr_ids {
            let found = call!(standin_release(target, side.one(), *wr_id):
                fn(usize, u32, u64) -> i32);
            assert_eq!(found, 1, "no request {wr_id:#x} is held");
        }
    }

    /// Lets everything go on that is held.
    pub(crate) fn release_all(&self, target: usize, side: Side) {
        call!(standin_release_all(target, side.mask()): fn(usize, u32));
    }

    /// Ends a request of a queue pair as if it had been carried out with this status.
    ///
    /// # Panics
    ///
    /// When it is not there.
    pub(crate) fn complete(
        &self,
        qp: usize,
        side: Side,
        wr_id: u64,
        status: ibv_wc_status,
        byte_len: u32,
    ) {
        let found = call!(standin_complete(qp, side.one(), wr_id, status.0, byte_len):
            fn(usize, u32, u64, u32, u32) -> i32);
        assert_eq!(found, 1, "no request {wr_id:#x} is posted");
    }

    /// Puts what was last reported to a queue there again.
    ///
    /// # Panics
    ///
    /// When nothing was reported yet.
    pub(crate) fn repeat(&self, cq: *mut ibv_cq, times: u32) {
        let found = call!(standin_repeat(cq.addr(), times): fn(usize, u32) -> i32);
        assert_eq!(found, 1, "nothing was reported yet");
    }

    /// Puts a completion into a queue that nobody has asked for.
    pub(crate) fn invent(&self, cq: *mut ibv_cq, wc: &ibv_wc) {
        call!(standin_invent(cq.addr(), std::ptr::from_ref(wc).cast()):
            fn(usize, *const c_void));
    }

    /// Refuses the next post: it returns `errno` as it is, and the device takes the first `taken` requests all the same.
    pub(crate) fn refuse(&self, target: usize, side: Side, errno: i32, bad_wr: BadWr, taken: u32) {
        let (names, place) = match bad_wr {
            BadWr::Untouched => (0, 0),
            BadWr::At(place) => (1, place),
            BadWr::Null => (2, 0),
            BadWr::Stray => (3, 0),
        };
        let refusal = Refusal {
            errno,
            names,
            place,
            taken,
        };
        call!(standin_refuse(target, side.one(), &raw const refusal):
            fn(usize, u32, *const Refusal));
    }

    /// Refuses the next post from its `place`-th request on, as it should be.
    pub(crate) fn refuse_by_name(&self, target: usize, side: Side, place: u32, errno: i32) {
        self.refuse(target, side, errno, BadWr::At(place), place);
    }

    /// Refuses the next post and takes everything, as rxe does in INIT.
    pub(crate) fn refuse_silently(&self, target: usize, side: Side, errno: i32) {
        self.refuse(target, side, errno, BadWr::Untouched, u32::MAX);
    }

    /// What the error state does not flush.
    pub(crate) fn unflushed(&self, target: usize, what: Unflushed) {
        let bits = [
            what.sends,
            what.receives,
            what.late_sends,
            what.late_receives,
        ];
        let mut mask = 0_u32;
        for (place, bit) in bits.into_iter().enumerate() {
            mask |= u32::from(bit) << place;
        }
        call!(standin_unflushed(target, mask): fn(usize, u32));
    }

    /// Flushes what is left of a pair in the error state.
    pub(crate) fn flush(&self, qp: usize) {
        call!(standin_flush(qp): fn(usize));
    }

    /// Whether the completions of a destroyed pair go with it, as on mlx5, or stay, as on rxe.
    pub(crate) fn removes_completions(&self, target: usize, removes: bool) {
        call!(standin_removes_completions(target, removes.into()): fn(usize, i32));
    }

    /// Lets the first `times` attempts to destroy a pair fail.
    pub(crate) fn fail_destroy(&self, target: usize, times: u32, errno: i32) {
        call!(standin_fail_destroy(target, times, errno): fn(usize, u32, i32));
    }

    /// Writes a changing pattern to every posted receive until it is complete.
    pub(crate) fn scribble(&self, target: usize, on: bool) {
        call!(standin_scribble(target, on.into()): fn(usize, i32));
    }

    /// Something happens to a port of a device, or the device itself.
    pub(crate) fn device_event(&self, device: usize, what: ibv_event_type, port: usize) {
        call!(standin_async_event(device, what.0, port): fn(usize, u32, usize));
    }

    /// Something happens to an object of the kind that the event is for.
    pub(crate) fn object_event<T>(&self, what: ibv_event_type, object: *mut T) {
        call!(standin_async_event(0, what.0, object.addr()): fn(usize, u32, usize));
    }

    /// How many calls have posted how many requests: each call rang the doorbell once.
    pub(crate) fn posts(&self, target: usize, side: Side) -> Posts {
        let mut posts = Posts::default();
        call!(standin_posts(target, side.one(), &raw mut posts): fn(usize, u32, *mut Posts));
        posts
    }
}
