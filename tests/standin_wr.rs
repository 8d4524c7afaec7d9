//! Batches that are posted by calls, `ibv_wr_start` to `ibv_wr_complete`: what arrives, when it is used, and what a failure means.
mod standin;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdma_sys::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED, ibv_wr_opcode,
};
use rdmacm::{
    Access, Buf, ErrorKind, Fetch, Inline, Partly, QueuePair, QueuePairInit, RemoteEnd,
    RemoteMemory, RtsParam, Transport, Work, WrList,
};
use standin::Standin;
use standin::calls::{Skill, Way};
use standin::link::{End, Fabric, SIZE, bare, drain, init, sent};
use standin::provider::{BadWr, Hold, Side, at};

const CALLS: Skill = Skill {
    has: true,
    refuses: 0,
    lacks: 0,
};
const WINDOWS: u32 = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
const ATOMICS: u32 = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// What the provider is told: opcode, flags, immediate value or key, and of a plain piece where and how much.
type Told = (u32, u32, u32, (u64, u32), (u64, u64), (u64, u64));

/// Submits a batch of `count` writes.
fn submit(end: &mut End, list: &mut WrList, count: u64) -> Result<(), Partly> {
    let work = end.work();
    let bufs: Vec<Buf> = (0..count).map(|_| end.buf(1)).collect();
    let mut batch = end.qp.send.batch(list);
    for (user, buf) in (0..).zip(bufs) {
        batch.post(work, buf, user).unwrap();
    }
    batch.submit()
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn every_operation_says_the_same_in_both_ways() {
    let to = RemoteMemory::new(0x7000_0000_0008, 0x77, 4096);
    let plain = [
        Work::send(),
        Work::send().unsignaled(),
        Work::send().solicited(),
        Work::send().fenced().solicited().unsignaled(),
        Work::send_with_imm(0x0102_0304),
        Work::send_with_imm(5).solicited(),
        Work::send_with_invalidate(0x0a0b_0c0d),
        Work::write(to),
        Work::write(to).fenced().unsignaled(),
        Work::write_with_imm(to, 0xfffe_fdfc),
        Work::write_with_imm(to, 6).solicited(),
    ];
    let inline = [
        Work::send(),
        Work::send_with_imm(7),
        Work::send_with_invalidate(8),
        Work::write(to),
        Work::write_with_imm(to, 9).unsignaled(),
    ];
    let fetched = [
        Fetch::read(to),
        Fetch::read(to).fenced().unsignaled(),
        Fetch::fetch_add(to, u64::MAX),
        Fetch::compare_swap(to, 0x1111_2222_3333_4444, 0x5555_6666_7777_8888),
        Fetch::compare_swap(to, 1, 2).unsignaled().fenced(),
    ];
    let mut both: Vec<Vec<Told>> = Vec::new();
    for way in [Way::List, Way::Calls] {
        let standin = Standin::posting(way);
        let mut end = End::deep(32);
        let mut list = WrList::with_capacity(32);
        standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
        let pool = end.pool.clone();
        let (mut wheres, mut told): (Vec<(u64, u64)>, Vec<Told>) = Default::default();
        let mut take = |len: usize| {
            let mut buf = pool.take().unwrap();
            buf.set_len(len);
            wheres.push((buf.as_ptr().addr() as u64, len as u64));
            buf
        };
        let mut batch = end.qp.send.batch(&mut list);
        for (user, work) in (0..).zip(plain) {
            let buf = take(if user == 1 { 0 } else { SIZE - 1 });
            batch.post(work, buf, user).unwrap();
        }
        for (user, fetch) in (20..).zip(fetched) {
            batch.fetch(fetch, take(8), user).unwrap();
        }
        let bytes = [3_u8; 32];
        for (place, work) in inline.into_iter().enumerate() {
            let length = [32, 1, 0, 17, 8][place];
            batch.post(work, Inline(&bytes[..length]), 30).unwrap();
        }
        batch.submit().unwrap();
        assert_eq!(standin.lists_by_calls(), usize::from(way == Way::Calls));
        assert_eq!(
            standin.calls_of("ibv_post_send").len(),
            usize::from(way == Way::List)
        );
        let requests = standin.requests(end.raw());
        let posted: Vec<u64> = standin.held(end.raw(), Side::Send);
        let ids: Vec<u64> = requests.iter().map(|request| request.wr_id).collect();
        assert_eq!(ids, posted);
        let (lkey, pieces) = (requests[0].lkey, wheres.len());
        assert_eq!(requests.len(), pieces + inline.len());
        for (place, request) in requests.into_iter().enumerate() {
            if let Some(place) = wheres.get(place) {
                assert_eq!((request.addr, request.length), *place);
                assert_eq!((request.lkey, request.first_byte), (lkey, 0));
            } else {
                let of = u32::from(request.length > 0);
                assert_eq!(request.first_byte, if of == 1 { 3 } else { u32::MAX });
            }
            told.push((
                request.opcode,
                request.flags,
                request.extra,
                (request.remote_addr, request.rkey),
                (request.compare_add, request.swap),
                (0, request.length),
            ));
        }
        both.push(told);
        drop(pool);
        end.end(&standin);
    }
    assert_eq!(both[0], both[1]);
    // Both may be wrong.
    let (opcode, flags, extra, remote, values, length) = both[1][14];
    assert_eq!(opcode, ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP.0);
    assert_eq!((flags, extra, length), (IBV_SEND_SIGNALED, 0, (0, 8)));
    assert_eq!(remote, (0x7000_0000_0008, 0x77));
    assert_eq!(values, (0x1111_2222_3333_4444, 0x5555_6666_7777_8888));
    let fenced = IBV_SEND_FENCE | IBV_SEND_SOLICITED;
    assert_eq!(
        (both[1][3].1, both[1][4].2),
        (fenced, 0x0102_0304_u32.to_be())
    );
    let last = both[1].last().unwrap();
    assert_eq!((last.1, last.5), (IBV_SEND_INLINE, (0, 8)));
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn after_a_failed_complete_all_counts_as_posted() {
    // As the manual has it, as rxe does when its doorbell fails, and what nobody does.
    for taken in [0, 4, 2] {
        let standin = Standin::posting(Way::Calls);
        let mut end = End::deep(8);
        let mut list = WrList::with_capacity(4);
        let free = end.pool.available();
        standin.refuse(end.raw(), Side::Send, libc::EINVAL, BadWr::At(1), taken);
        let partly = submit(&mut end, &mut list, 4).unwrap_err();
        assert_eq!(partly.error().op(), "ibv_wr_complete");
        assert_eq!(partly.error().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(partly.posted(), 4);
        assert!(partly.into_bufs().is_empty());
        let wanted: Vec<_> = (0..u64::from(taken)).map(sent).collect();
        assert_eq!(drain(&mut end.cq), wanted);
        assert_eq!(end.pool.available(), free - 4 + taken as usize);
        // What the device has not taken keeps its slots until the pair's end, which gives all buffers back.
        let more = end.fill(10);
        assert_eq!(more, 4 + u64::from(taken));
        assert_eq!(
            drain(&mut end.cq),
            (10..10 + more).map(sent).collect::<Vec<_>>()
        );
        end.end(&standin);
    }
}

/// A pair on an id, one that is moved by the program, and one by hand of each kind.
fn pairs(fabric: &Fabric, init: &QueuePairInit) -> Vec<(&'static str, QueuePair)> {
    let (qp, peer) = fabric.one_way(init);
    fabric.keep(peer);
    let mut made = vec![("on an id", qp)];
    for (name, transport) in [
        ("reliable", Transport::Reliable),
        ("unreliable", Transport::Unreliable),
    ] {
        let qp = fabric.pd.create_qp(init, transport).unwrap();
        let qp = qp.to_init(1, Access::WRITE).unwrap();
        let own = qp.endpoint(0, 3).unwrap();
        let qp = qp.to_rtr(&RemoteEnd::new(&own, 0)).unwrap();
        made.push((name, qp.to_rts(&RtsParam::new(3)).unwrap()));
    }
    made
}

/// Whether a batch of this pair goes by calls. Its requests stay with the device.
fn goes_by_calls(standin: &Standin, fabric: &Fabric, qp: &mut QueuePair) -> bool {
    let raw = at(qp.as_raw());
    standin.hold_requests(raw, Side::Send, Hold::UntilReleased);
    let (mut list, pool) = (WrList::with_capacity(2), fabric.pd.pool(2, 8).unwrap());
    standin.record();
    let mut batch = qp.send.batch(&mut list);
    for user in 0..2 {
        batch
            .post(Work::send(), pool.take().unwrap(), user)
            .unwrap();
    }
    batch.submit().unwrap();
    assert_eq!(standin.held(raw, Side::Send).len(), 2);
    let by_list = standin.calls_of("ibv_post_send").len();
    assert_eq!(by_list + standin.lists_by_calls(), 1);
    by_list == 0
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn calls_are_used_where_a_provider_can_do_with_them_what_is_posted() {
    let every = [true; 3];
    let cases: [(&str, Skill, [bool; 3]); 9] = [
        ("all", CALLS, every),
        ("none", Skill::default(), [false; 3]),
        ("no windows", refusing(WINDOWS), every),
        (
            "one call for windows",
            refusing(IBV_QP_EX_WITH_LOCAL_INV),
            every,
        ),
        (
            "no reads",
            refusing(IBV_QP_EX_WITH_RDMA_READ),
            [false, false, true],
        ),
        ("no writes", refusing(IBV_QP_EX_WITH_RDMA_WRITE), [false; 3]),
        ("grants and lacks windows", lacking(WINDOWS), every),
        (
            "grants and lacks a send",
            lacking(IBV_QP_EX_WITH_SEND_WITH_INV),
            [false; 3],
        ),
        (
            "grants and lacks atomics",
            lacking(ATOMICS),
            [false, false, true],
        ),
    ];
    for (case, skill, wanted) in cases {
        let standin = Standin::start();
        standin.skill(skill);
        let fabric = Fabric::new();
        let cq = fabric.cq(100);
        let mut found = Vec::new();
        for (_, mut qp) in pairs(&fabric, &init(&cq, 4)) {
            found.push(goes_by_calls(&standin, &fabric, &mut qp));
        }
        assert_eq!(found, wanted, "{case}");
    }
}

fn refusing(refuses: u32) -> Skill {
    Skill { refuses, ..CALLS }
}

fn lacking(lacks: u32) -> Skill {
    Skill { lacks, ..CALLS }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn without_calls_the_classic_way_is_the_one_that_counts() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let cq = fabric.cq(100);
    let init = init(&cq, 4);
    let tried = |name: &str| standin.calls_of(name).len();
    // Once with windows, once without.
    standin.record();
    let granted = fabric.unconnected(&init).unwrap().query().unwrap();
    assert_eq!(
        (tried("rdma_create_qp_ex"), tried("rdma_create_qp")),
        (2, 1)
    );
    standin.record();
    drop(fabric.pd.create_qp(&init, Transport::Reliable).unwrap());
    assert_eq!((tried("ibv_create_qp_ex"), tried("ibv_create_qp")), (2, 1));
    // With calls, once; what is granted is the same.
    standin.skill(CALLS);
    standin.record();
    let by_calls = fabric.unconnected(&init).unwrap().query().unwrap();
    assert_eq!(
        (tried("rdma_create_qp_ex"), tried("rdma_create_qp")),
        (1, 0)
    );
    assert_eq!(format!("{by_calls:?}"), format!("{granted:?}"));
    // What a provider lacks is asked for once, for each kind of connection.
    standin.skill(refusing(WINDOWS));
    for (transport, tries) in [
        (Transport::Reliable, 2),
        (Transport::Reliable, 1),
        (Transport::Unreliable, 2),
        (Transport::Unreliable, 1),
        (Transport::Reliable, 1),
    ] {
        standin.record();
        drop(fabric.pd.create_qp(&init, transport).unwrap());
        let made = (tried("ibv_create_qp_ex"), tried("ibv_create_qp"));
        assert_eq!(made, (tries, 0), "{transport:?}");
    }
    standin.skill(CALLS);
    // An error of another kind is not asked for again, and that of the classic way is reported.
    for errno in [libc::ENOMEM, libc::EINVAL, libc::ENOSYS] {
        standin.record();
        standin.fail("rdma_create_qp_ex", -1, errno);
        drop(fabric.unconnected(&init).unwrap());
        assert_eq!(
            (tried("rdma_create_qp_ex"), tried("rdma_create_qp")),
            (1, 1)
        );
    }
    standin.fail("ibv_create_qp_ex", 0, libc::EINVAL);
    standin.fail("ibv_create_qp", 0, libc::ENOMEM);
    let error = fabric.pd.create_qp(&init, Transport::Reliable).unwrap_err();
    assert_eq!(error.op(), "ibv_create_qp");
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    drop((init, cq, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_device_without_atomics_is_asked_for_none_and_gets_none() {
    for way in [Way::List, Way::Calls] {
        let standin = Standin::posting(way);
        standin.atomics(0);
        standin.skill(Skill {
            has: way == Way::Calls,
            refuses: ATOMICS,
            lacks: ATOMICS,
        });
        let mut end = End::deep(4);
        let mut list = WrList::with_capacity(4);
        let remote = end.target.remote();
        let (one, other, third) = (end.buf(1), end.buf(2), end.buf(3));
        let mut batch = end.qp.send.batch(&mut list);
        batch.fetch(Fetch::read(remote), one, 1).unwrap();
        let refused = batch
            .fetch(Fetch::fetch_add(remote, 1), other, 2)
            .unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
        let text = "ibv_post_send: this device has no atomic operations";
        assert_eq!(refused.error().to_string(), text);
        assert_eq!(refused.into_buf().unwrap()[..], [2; SIZE]);
        batch.submit().unwrap();
        assert_eq!(standin.lists_by_calls(), usize::from(way == Way::Calls));
        let refused = end
            .qp
            .send
            .compare_swap(third, remote, 1, 2, 3)
            .unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
        drop(refused);
        assert_eq!(drain(&mut end.cq), [sent(1)]);
        end.end(&standin);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_panic_while_a_batch_is_built_has_begun_nothing() {
    let standin = Standin::posting(Way::Calls);
    let mut end = End::deep(4);
    let mut list = WrList::with_capacity(4);
    let (work, pool) = (end.work(), end.pool.clone());
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut batch = end.qp.send.batch(&mut list);
        batch.post(work, pool.take().unwrap(), 1).unwrap();
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    assert_eq!(standin.lists_by_calls(), 0);
    end.post(2).unwrap();
    submit(&mut end, &mut list, 3).unwrap();
    assert_eq!(drain(&mut end.cq), [2, 0, 1, 2].map(sent));
    drop(pool);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn single_posts_go_between_batches() {
    let standin = Standin::posting(Way::Calls);
    let mut end = End::deep(8);
    let mut list = WrList::with_capacity(4);
    for lap in 0..20 {
        submit(&mut end, &mut list, 2).unwrap();
        end.post(10 + lap).unwrap();
        let work = end.work();
        let mut batch = end.qp.send.batch(&mut list);
        batch.post(work.unsignaled(), Inline(b"a"), 3).unwrap();
        batch.post(work, Inline(b"b"), 4).unwrap();
        batch.submit().unwrap();
        let wanted = [sent(0), sent(1), sent(10 + lap), bare(3), bare(4)];
        assert_eq!(drain(&mut end.cq), wanted);
    }
    assert_eq!(standin.lists_by_calls(), 40);
    assert_eq!(standin.calls_of("ibv_post_send").len(), 20);
    end.end(&standin);
}
