//! Loans that several requests, or several scopes of a queue, have to do with: what a scope left unpolled is a completion without
//! memory to whoever polls next.

mod standin;

use std::time::Duration;

use rdma_sys::ibv_wc;
use rdmacm::{Fetch, Scope, Scoped, Status};
use standin::Standin;
use standin::link::{End, Seen, bare, drain, init};
use standin::provider::{Hold, Side, Unflushed, at};

const PATIENCE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(10);

/// Everything that is complete, none of it on lent memory.
fn drain_own(scope: &mut Scope<'_, '_>) -> Vec<Seen> {
    std::iter::from_fn(|| match scope.poll().unwrap()? {
        Scoped::Own(completion) => Some(Seen::of(&completion)),
        other => panic!("nothing is lent: {other:?}"),
    })
    .collect()
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_loan_that_ended_with_its_scope_is_none_to_the_next_scope() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let held = Hold::For(Duration::from_millis(5));
    standin.hold_requests(end.raw(), Side::Send, held);
    let (work, from) = (end.work(), end.target.remote());
    let pd = end.fabric.pd.clone();
    let (data, mut memory, mut again) = ([8_u8; 8], [0_u8; 8], [0_u8; 8]);
    let posted = end.qp.scope(&mut end.cq, PATIENCE, |scope| {
        scope.post(work, pd.lend(&data).unwrap(), 1).unwrap();
        let sink = pd.lend_mut(&mut memory).unwrap();
        scope.fetch(Fetch::read(from), sink, 2).unwrap();
        // One with a run before it, whose kind stands in its slot only.
        let buf = end.pool.take().unwrap();
        scope.post(work.unsignaled(), buf, 3).unwrap();
        let sink = pd.lend_mut(&mut again).unwrap();
        scope.fetch(Fetch::read(from), sink, 4).unwrap();
    });
    posted.unwrap();
    let seen = end.qp.scope(&mut end.cq, PATIENCE, drain_own).unwrap();
    let sent = Seen::Sent(3, Status::SUCCESS);
    assert_eq!(seen, [bare(1), bare(2), sent, bare(4)]);
    drop(pd);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_loan_that_ended_with_its_pair_is_none_to_a_scope_of_another() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let (mut other, peer) = end.fabric.one_way(&init(&end.cq, 1));
    standin.unflushed(
        end.raw(),
        Unflushed {
            sends: true,
            ..Unflushed::default()
        },
    );
    standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
    let (work, from) = (end.work(), end.target.remote());
    let pd = end.fabric.pd.clone();
    let (data, mut memory) = ([8_u8; 8], [0_u8; 8]);
    let mut ids = Vec::new();
    let raw = at(end.qp.as_raw());
    let posted = end.qp.scope(&mut end.cq, SHORT, |scope| {
        scope.post(work, pd.lend(&data).unwrap(), 1).unwrap();
        let sink = pd.lend_mut(&mut memory).unwrap();
        scope.fetch(Fetch::read(from), sink, 2).unwrap();
        ids = standin.held(raw, Side::Send);
    });
    posted.unwrap();
    // A provider that forgets nothing reports them all the same.
    for &wr_id in &ids {
        let wc = ibv_wc {
            wr_id,
            ..ibv_wc::default()
        };
        standin.invent(end.cq.handle().as_raw(), &wc);
    }
    let seen = other.scope(&mut end.cq, PATIENCE, drain_own).unwrap();
    let [first, second] = ids[..] else {
        panic!("two were posted: {ids:?}");
    };
    assert_eq!(seen, [Seen::Foreign(first), Seen::Foreign(second)]);
    assert_eq!(drain(&mut end.cq), []);
    drop((other, peer, pd));
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn one_registration_serves_several_requests_at_once() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
    let (raw, work, pd) = (end.raw(), end.work(), end.fabric.pd.clone());
    let data = *b"to everybody";
    standin.record();
    let ended = end.qp.scope(&mut end.cq, PATIENCE, |scope| {
        let lent = pd.lend(&data).unwrap();
        for user in 0..3 {
            scope.post(work, lent.clone(), user).unwrap();
        }
        drop(lent);
        // A part of it has the same registration, and a clone of the part is as long.
        let (_, part) = pd.lend(&data).unwrap().split_at(3);
        assert_eq!(part.clone()[..], *b"everybody");
        drop(part);
        assert_eq!(standin.calls_of("ibv_reg_mr_iova2").len(), 2);
        assert_eq!(standin.calls_of("ibv_dereg_mr").len(), 1);
        assert_eq!(standin.held(raw, Side::Send).len(), 3);
        standin.release_all(raw, Side::Send);
        for user in 0..3 {
            let Some(Scoped::Lent(sent)) = scope.poll().unwrap() else {
                panic!("not what was lent");
            };
            assert_eq!((sent.user(), sent.status()), (user, Status::SUCCESS));
            assert_eq!(standin.calls_of("ibv_dereg_mr").len(), 1);
        }
    });
    ended.unwrap();
    assert_eq!(standin.calls_of("ibv_dereg_mr").len(), 2);
    assert_eq!(end.target.load_u64(0).to_ne_bytes(), data[..8]);
    drop(pd);
    end.end(&standin);
}
