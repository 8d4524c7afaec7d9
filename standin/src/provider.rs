#![expect(
    unsafe_code,
    reason = "exports the symbols by which tests steer the data provider"
)]
//! How tests steer the data provider.
//!
//! `target` is the address of a queue pair or shared receive queue, the number of a queue pair, or 0 for everybody, also
//! those that are made later. `side` is 0 for sends and 1 for receives; `sides` a mask of 1 and 2. A pair with a shared
//! receive queue has that queue's requests as its receives.
//!
//! | what a test wants | function |
//! |---|---|
//! | requests stay with the device until they are let go, in any order, or for a while | `standin_hold`, `_posted`, `_release`, `_release_all` |
//! | a request ends with a status, without being carried out | `standin_complete` |
//! | a completion comes again, or was never asked for | `standin_repeat`, `standin_invent` |
//! | a post fails: by name, silently, with any number | `standin_refuse` |
//! | the error state flushes everything, a part, nothing, or later | `standin_unflushed`, `standin_flush` |
//! | completions of a destroyed pair stay, or go | `standin_removes_completions` |
//! | a pair cannot be destroyed | `standin_fail_destroy` |
//! | posted receives change all the time | `standin_scribble` |
//! | how many calls have posted how many requests | `standin_posts` |
//!
//! Sends are read when they are carried out and not when they are posted; inline ones are copied by the post.

use std::ffi::c_int;
use std::time::Duration;

use crate::abi::{Posts, Refusal, SIDES};
use crate::arg;
use crate::c::{ibv_wc, ibv_wc_status};
use crate::doom::doom;
use crate::orders::{Hold, Holding, Target};
use crate::world::world;

fn sides(mask: u32) -> [bool; SIDES] {
    [mask & 1 != 0, mask & 2 != 0]
}

fn one(side: u32) -> usize {
    match side {
        0 => crate::orders::SEND,
        1 => crate::orders::RECV,
        _ => doom!("{side} is no side"),
    }
}

control! {
    /// Holds what is posted from now on: for so many microseconds, or until it is released for a negative number. 0 ends
    /// that for what is to come. What is held keeps its slot, and is neither carried out nor reported. The error state
    /// flushes it like everything else.
    fn standin_hold(target: usize, mask: u32, microseconds: i64) {
        let hold = match u64::try_from(microseconds) {
            Ok(0) => None,
            Ok(microseconds) => Some(Holding::For(Duration::from_micros(microseconds))),
            Err(_) => Some(Holding::Released),
        };
        let mut world = world();
        let target = world.target(target);
        world.order(target, |orders| {
            for (place, wanted) in sides(mask).into_iter().enumerate() {
                if wanted {
                    orders.hold[place] = hold;
                }
            }
        });
    }

    /// Reads the number of the request at `place` among those posted and not complete: 2 when it is held, 1 when it waits
    /// for something else, 0 when there is none.
    fn standin_posted(target: usize, side: u32, place: usize, wr_id: *mut u64) -> c_int {
        let mut world = world();
        let target = world.target(target);
        match world.posted_at(target, one(side), place) {
            Some((id, hold)) => {
                arg::write("the number", wr_id, id);
                if hold == Hold::No { 1 } else { 2 }
            }
            None => 0,
        }
    }

    /// Lets the first held request with this number go its way: 1, or 0 when there is none.
    fn standin_release(target: usize, side: u32, wr_id: u64) -> c_int {
        let mut world = world();
        let target = world.target(target);
        world.release(target, one(side), wr_id).into()
    }

    /// Lets everything go its way that is held.
    fn standin_release_all(target: usize, mask: u32) {
        let mut world = world();
        let target = world.target(target);
        world.release_all(target, sides(mask));
    }

    /// Ends the first request with this number, held or not, as if it had been carried out: 1, or 0 when there is none. A
    /// bad status, other than that of a flush, takes the pair to the error state.
    fn standin_complete(target: usize, side: u32, wr_id: u64, status: u32, byte_len: u32) -> c_int {
        let mut world = world();
        match world.target(target) {
            Target::Qp(qp) => world.complete_as(qp, one(side), wr_id, ibv_wc_status(status), byte_len).into(),
            _ => doom!("a test must say which queue pair it means"),
        }
    }

    /// Puts what was last reported to a queue there `times` more: 1, or 0 when nothing was reported yet.
    fn standin_repeat(cq: usize, times: u32) -> c_int {
        world().repeat(cq, times).into()
    }

    /// Puts a completion into a queue that nobody has asked for. It takes no room there.
    fn standin_invent(cq: usize, wc: *const ibv_wc) {
        world().invent(cq, arg::read("the completion", wc));
    }

    /// Refuses the next post.
    fn standin_refuse(target: usize, side: u32, refusal: *const Refusal) {
        let refusal = arg::read("the refusal", refusal);
        let mut world = world();
        let target = world.target(target);
        world.refuse(target, one(side), refusal);
    }

    /// What the error state leaves where it is: 1 sends, 2 receives, 4 sends posted in the error state, 8 such receives.
    fn standin_unflushed(target: usize, mask: u32) {
        let mut world = world();
        let target = world.target(target);
        world.order(target, |orders| orders.unflushed = mask);
    }

    /// Flushes what is still there of a pair in the error state, whatever was asked before.
    fn standin_flush(target: usize) {
        let mut world = world();
        match world.target(target) {
            Target::Qp(qp) => world.flush_all(qp),
            _ => doom!("a test must say which queue pair it means"),
        }
    }

    /// Whether the completions of a destroyed pair are removed from its queues, as on mlx5, or stay, as on rxe.
    fn standin_removes_completions(target: usize, removes: c_int) {
        let mut world = world();
        let target = world.target(target);
        world.order(target, |orders| orders.removes = removes != 0);
    }

    /// Lets the first `times` attempts to destroy a pair fail with `errno`.
    fn standin_fail_destroy(target: usize, times: u32, errno: c_int) {
        let mut world = world();
        let target = world.target(target);
        world.order(target, |orders| orders.fails = (times, errno));
    }

    /// Writes a changing pattern to all pieces of every receive that is posted, or ends that. It is written at every call
    /// into the provider and by a thread in between, until the receive is complete or its queue destroyed.
    fn standin_scribble(target: usize, on: c_int) {
        let mut world = world();
        let target = world.target(target);
        world.order(target, |orders| orders.scribbles = on != 0);
    }

    /// How often something was posted, and how much; for everybody, the sum over those that live.
    fn standin_posts(target: usize, side: u32, posts: *mut Posts) {
        let world = world();
        let target = world.target(target);
        arg::write("the numbers", posts, world.posts(target, one(side)));
    }
}
