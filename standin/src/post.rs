//! Posting, through the device's table.

use std::ffi::c_int;

use crate::abi::Refusal;
use crate::arg;
use crate::c::{
    IBV_SEND_INLINE, ibv_qp, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
    ibv_wr_opcode,
};
use crate::call::{self, Errno};
use crate::calls;
use crate::doom::doom;
use crate::orders::{Hold, RECV, SEND, Target};
use crate::qp::{Qp, Receive, Send};
use crate::world::{World, world};
use crate::wr;

/// A list longer than this is a ring.
const LONGEST: usize = 1 << 20;

/// The requests of a list, each with where it is.
fn listed<T: Copy>(wr: *mut T, next: impl Fn(&T) -> *mut T) -> Vec<(*mut T, T)> {
    let mut list = Vec::new();
    let mut at = wr;
    while !at.is_null() {
        if list.len() == LONGEST {
            doom!("the list of requests has no end");
        }
        let request = arg::read("the request", at.cast_const());
        list.push((at, request));
        at = next(&request);
    }
    list
}

/// The pieces of a request.
fn pieces(list: *mut ibv_sge, count: c_int) -> Vec<ibv_sge> {
    let count = usize::try_from(count).unwrap_or(0);
    (0..count)
        .map(|place| {
            arg::read(
                "the pieces of a request",
                list.wrapping_add(place).cast_const(),
            )
        })
        .collect()
}

fn inline(pieces: &[ibv_sge]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|sge| arg::take(sge.addr, sge.length))
        .collect()
}

/// How many requests of a list are taken, and what the call gives: what a test has planned, or what `check` says of each.
fn take<T: Copy>(
    list: &[(*mut T, T)],
    bad_wr: *mut *mut T,
    refusal: Option<Refusal>,
    check: impl Fn(usize, &T) -> Option<Errno>,
) -> (usize, Result<(), Errno>) {
    let named = |place: usize| list.get(place).map_or(std::ptr::null_mut(), |bad| bad.0);
    if let Some(refusal) = refusal {
        let stray = std::ptr::without_provenance_mut(0x5757_5750);
        let bad = match refusal.names {
            0 => None,
            1 => Some(named(refusal.place as usize)),
            2 => Some(std::ptr::null_mut()),
            _ => Some(stray),
        };
        if let Some(bad) = bad {
            arg::write("the request refused", bad_wr, bad);
        }
        return (list.len().min(refusal.taken as usize), Err(refusal.errno));
    }
    for (place, (_, request)) in list.iter().enumerate() {
        if let Some(errno) = check(place, request) {
            arg::write("the request refused", bad_wr, named(place));
            return (place, Err(errno));
        }
    }
    (list.len(), Ok(()))
}

/// Why a send cannot be posted behind `ahead` others of its list.
///
/// `inline` is how many bytes are copied at once, if they are.
pub(crate) fn check_send(
    qp: &Qp,
    ahead: usize,
    wr: &ibv_send_wr,
    pieces: &[ibv_sge],
    inline: Option<usize>,
) -> Option<Errno> {
    match qp.state() {
        ibv_qp_state::IBV_QPS_RTS
        | ibv_qp_state::IBV_QPS_SQD
        | ibv_qp_state::IBV_QPS_SQE
        | ibv_qp_state::IBV_QPS_ERR => {}
        _ => return Some(libc::EINVAL),
    }
    let cap = &qp.init.cap;
    if qp.used[SEND] as usize + ahead >= cap.max_send_wr as usize {
        return Some(libc::ENOMEM);
    }
    let count = u32::try_from(wr.num_sge).unwrap_or(u32::MAX);
    if count > cap.max_send_sge {
        return Some(libc::EINVAL);
    }
    if inline.is_some_and(|length| length > cap.max_inline_data as usize) {
        return Some(libc::EINVAL);
    }
    let is_atomic = matches!(
        wr.opcode,
        ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    if is_atomic {
        let (address, ..) = wr::atomic_of(wr);
        let answer = pieces.first().map_or(0, |sge| sge.length);
        if address % 8 != 0 || answer < 8 {
            return Some(libc::EINVAL);
        }
    }
    None
}

/// Why a receive cannot be posted behind `ahead` others, with room for `room` and for `most` pieces in each.
fn check_recv(ahead: usize, wr: &ibv_recv_wr, room: usize, most: u32) -> Option<Errno> {
    if ahead >= room {
        return Some(libc::ENOMEM);
    }
    let count = u32::try_from(wr.num_sge).unwrap_or(u32::MAX);
    (count > most).then_some(libc::EINVAL)
}

fn receive(wr: &ibv_recv_wr, hold: Hold) -> Receive {
    Receive {
        wr_id: wr.wr_id,
        pieces: pieces(wr.sg_list, wr.num_sge),
        hold,
    }
}

/// `ibv_post_send`.
pub(crate) extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let args = [qp.addr(), wr.addr(), bad_wr.addr()];
    call::verbs("ibv_post_send", &args, || {
        let mut world = world();
        world.tick();
        let list = listed(wr, |wr| wr.next);
        let refusal = world.refusal(Target::Qp(qp.addr()), SEND);
        if world.qp(qp.addr()).kind == ibv_qp_type::IBV_QPT_UD {
            for (_, request) in &list {
                // A provider follows the pointer while it posts.
                world.ah(wr::datagram_of(request).0.addr());
            }
        }
        let (taken, result) = take(&list, bad_wr, refusal, |ahead, wr| {
            let windows = (wr.opcode == ibv_wr_opcode::IBV_WR_BIND_MW)
                .then(|| world.check_bind_request(wr))
                .flatten();
            windows.or_else(|| check_listed(world.qp(qp.addr()), ahead, wr))
        });
        let found = world.qp_mut(qp.addr());
        found.posts[SEND].add(list.len());
        calls::expect_unlocked(found);
        for (_, request) in &list[..taken] {
            push_listed(found, *request);
        }
        world.work(qp.addr());
        result
    })
}

/// [`check_send`] for a request of a list.
fn check_listed(qp: &Qp, ahead: usize, wr: &ibv_send_wr) -> Option<Errno> {
    // A list that is too long is refused without being read.
    let most = c_int::try_from(qp.init.cap.max_send_sge).unwrap_or(c_int::MAX);
    let pieces = pieces(wr.sg_list, wr.num_sge.min(most));
    let length = pieces.iter().map(|sge| sge.length as usize).sum();
    let inline = (wr.send_flags & IBV_SEND_INLINE != 0).then_some(length);
    check_send(qp, ahead, wr, &pieces, inline)
}

fn push_listed(qp: &mut Qp, wr: ibv_send_wr) {
    let pieces = pieces(wr.sg_list, wr.num_sge);
    let inline = (wr.send_flags & IBV_SEND_INLINE != 0).then(|| inline(&pieces));
    push(qp, wr, pieces, inline);
}

pub(crate) fn push(qp: &mut Qp, wr: ibv_send_wr, pieces: Vec<ibv_sge>, inline: Option<Vec<u8>>) {
    let hold = qp.orders.hold(SEND);
    qp.used[SEND] += 1;
    qp.sends.push_back(Send {
        wr,
        pieces,
        inline,
        hold,
    });
}

/// Posts a request that the device makes itself.
pub(crate) fn one(world: &mut World, qp: usize, wr: ibv_send_wr) -> Result<(), Errno> {
    if let Some(errno) = check_listed(world.qp(qp), 0, &wr) {
        return Err(errno);
    }
    let found = world.qp_mut(qp);
    found.posts[SEND].add(1);
    push_listed(found, wr);
    world.work(qp);
    Ok(())
}

/// `ibv_post_recv`.
pub(crate) extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let args = [qp.addr(), wr.addr(), bad_wr.addr()];
    call::verbs("ibv_post_recv", &args, || {
        let mut world = world();
        world.tick();
        let list = listed(wr, |wr| wr.next);
        let refusal = world.refusal(Target::Qp(qp.addr()), RECV);
        let found = world.qp_mut(qp.addr());
        found.posts[RECV].add(list.len());
        let none = found.state() == ibv_qp_state::IBV_QPS_RESET || found.srq.is_some();
        let room = found.init.cap.max_recv_wr.saturating_sub(found.used[RECV]) as usize;
        let most = found.init.cap.max_recv_sge;
        let (taken, result) = take(&list, bad_wr, refusal, |ahead, wr| {
            if none {
                return Some(libc::EINVAL);
            }
            check_recv(ahead, wr, room, most)
        });
        for (_, request) in &list[..taken] {
            let hold = found.orders.hold(RECV);
            found.used[RECV] += 1;
            found.receives.push_back(receive(request, hold));
        }
        world.received_more(qp.addr());
        result
    })
}

/// `ibv_post_srq_recv`.
pub(crate) extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let args = [srq.addr(), wr.addr(), bad_wr.addr()];
    call::verbs("ibv_post_srq_recv", &args, || {
        let mut world = world();
        world.tick();
        let list = listed(wr, |wr| wr.next);
        let refusal = world.refusal(Target::Srq(srq.addr()), RECV);
        let found = world.srq_mut(srq.addr());
        found.posts.add(list.len());
        let room = found.attr.max_wr.saturating_sub(found.used) as usize;
        let most = found.attr.max_sge;
        let (taken, result) = take(&list, bad_wr, refusal, |ahead, wr| {
            check_recv(ahead, wr, room, most)
        });
        for (_, request) in &list[..taken] {
            let hold = found.orders.hold(RECV);
            found.used += 1;
            found.queue.push_back(receive(request, hold));
        }
        let target = Target::Srq(srq.addr());
        world.go_on(target);
        result
    })
}
