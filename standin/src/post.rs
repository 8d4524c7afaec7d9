//! Posting, through the device's table.

use std::ffi::c_int;

use crate::arg;
use crate::c::{IBV_SEND_INLINE, ibv_qp, ibv_qp_state, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq};
use crate::call::{self, Errno};
use crate::qp::{Receive, Send};
use crate::world::world;

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

/// `ibv_post_send`.
pub(crate) extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let args = [qp.addr(), wr.addr(), bad_wr.addr()];
    call::verbs("ibv_post_send", &args, || {
        let mut world = world();
        let mut next = wr;
        while !next.is_null() {
            let request = arg::read("the request", next.cast_const());
            let found = world.qp_mut(qp.addr());
            let problem = match found.state() {
                ibv_qp_state::IBV_QPS_RTS
                | ibv_qp_state::IBV_QPS_SQD
                | ibv_qp_state::IBV_QPS_SQE
                | ibv_qp_state::IBV_QPS_ERR => (found.sends.len()
                    >= found.init.cap.max_send_wr as usize)
                    .then_some(libc::ENOMEM),
                _ => Some(libc::EINVAL),
            };
            if let Some(errno) = problem {
                arg::write("the request refused", bad_wr, next);
                return Err(errno);
            }
            let pieces = pieces(request.sg_list, request.num_sge);
            let inline = (request.send_flags & IBV_SEND_INLINE != 0).then(|| inline(&pieces));
            found.sends.push_back(Send {
                wr: request,
                pieces,
                inline,
            });
            next = request.next;
        }
        world.work(qp.addr());
        Ok(())
    })
}

/// Reads a list of receives, `room` of which may be posted.
fn receives(
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    room: usize,
) -> (Vec<Receive>, Result<(), Errno>) {
    let mut list = Vec::new();
    let mut next = wr;
    while !next.is_null() {
        if list.len() == room {
            arg::write("the request refused", bad_wr, next);
            return (list, Err(libc::ENOMEM));
        }
        let request = arg::read("the request", next.cast_const());
        list.push(Receive {
            wr_id: request.wr_id,
            pieces: pieces(request.sg_list, request.num_sge),
        });
        next = request.next;
    }
    (list, Ok(()))
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
        let found = world.qp_mut(qp.addr());
        if found.state() == ibv_qp_state::IBV_QPS_RESET || found.srq.is_some() {
            arg::write("the request refused", bad_wr, wr);
            return Err(libc::EINVAL);
        }
        let room = (found.init.cap.max_recv_wr as usize).saturating_sub(found.receives.len());
        let (list, result) = receives(wr, bad_wr, room);
        found.receives.extend(list);
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
        let found = world.srq_mut(srq.addr());
        let room = (found.attr.max_wr as usize).saturating_sub(found.queue.len());
        let (list, result) = receives(wr, bad_wr, room);
        found.queue.extend(list);
        let waiting: Vec<usize> = world
            .qps
            .iter()
            .filter(|(_, qp)| qp.srq == Some(srq.addr()))
            .map(|(address, _)| address)
            .collect();
        for qp in waiting {
            world.received_more(qp);
        }
        result
    })
}
