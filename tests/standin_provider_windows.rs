//! Memory windows of the stand-in, and what a peer may do: raw calls.
#![expect(unsafe_code, reason = "calls the C functions with raw requests")]

mod standin;

use std::ffi::c_int;
use std::ptr;

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED,
    IBV_QP_ACCESS_FLAGS, IBV_SEND_SIGNALED, IBV_WC_WITH_INV, ibv_mr, ibv_mw, ibv_mw_bind,
    ibv_mw_bind_info, ibv_mw_type, ibv_qp_attr, ibv_qp_type, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode,
};
use standin::Standin;
use standin::verbs::{End, Opened, SIZE, attr, pair, send_wr};

const GOOD: u32 = ibv_wc_status::IBV_WC_SUCCESS.0;
const REFUSED: u32 = ibv_wc_status::IBV_WC_REM_ACCESS_ERR.0;
const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;

fn window(end: &End, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: a living domain.
    let mw = unsafe { rdma_sys::ibv_alloc_mw(end.pd, kind) };
    assert!(!mw.is_null());
    mw
}

fn end_window(mw: *mut ibv_mw) {
    // SAFETY: a living window.
    assert_eq!(unsafe { rdma_sys::ibv_dealloc_mw(mw) }, 0);
}

fn key_of(mw: *mut ibv_mw) -> u32 {
    // SAFETY: a living window.
    unsafe { (*mw).rkey }
}

fn info(mr: *mut ibv_mr, start: u64, length: u64, access: u32) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr,
        addr: start,
        length,
        mw_access_flags: access,
    }
}

/// Binds a window of type 1: what the call gives.
fn bind(end: &End, mw: *mut ibv_mw, wr_id: u64, bind_info: ibv_mw_bind_info) -> c_int {
    let mut binding = ibv_mw_bind {
        wr_id,
        send_flags: IBV_SEND_SIGNALED,
        bind_info,
    };
    // SAFETY: a living queue pair and window, and a region that is null or lives.
    unsafe { rdma_sys::ibv_bind_mw(end.qp, mw, &raw mut binding) }
}

/// Binds a window of type 2 under a key.
fn bind_second(end: &End, mw: *mut ibv_mw, wr_id: u64, key: u32, what: ibv_mw_bind_info) -> c_int {
    let mut request = send_wr(wr_id, &mut []);
    request.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
    request.__bindgen_anon_2.bind_mw.mw = mw;
    request.__bindgen_anon_2.bind_mw.rkey = key;
    request.__bindgen_anon_2.bind_mw.bind_info = what;
    end.post(&mut [request]).0
}

/// Posts what takes a key back: of the own end, or of the peer with a message.
fn invalidate(end: &End, wr_id: u64, opcode: ibv_wr_opcode, key: u32) {
    let mut request = send_wr(wr_id, &mut []);
    request.opcode = opcode;
    request.__bindgen_anon_1.invalidate_rkey = key;
    assert_eq!(end.post(&mut [request]).0, 0);
}

/// The status of a write to the peer's memory.
fn write(end: &End, to: u64, key: u32, length: u32) -> u32 {
    let mut pieces = [end.piece(0, length)];
    let mut request = send_wr(99, &mut pieces);
    request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = to;
    request.wr.rdma.rkey = key;
    assert_eq!(end.post(&mut [request]).0, 0);
    end.poll().expect("a completion").status.0
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_window_of_type_1_shows_a_part_of_a_region_until_it_is_bound_anew() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, mut other) = pair(&device, RC);
    let mw = window(&other, ibv_mw_type::IBV_MW_TYPE_1);
    let unbound = key_of(mw);
    let start = other.address(64);
    let part = info(other.mr, start, 32, IBV_ACCESS_REMOTE_WRITE);
    assert_eq!(bind(&other, mw, 1, part), 0);
    let wc = other.poll().unwrap();
    assert_eq!((wc.wr_id, wc.opcode), (1, ibv_wc_opcode::IBV_WC_BIND_MW));
    let key = key_of(mw);
    assert_ne!(key, unbound);
    one.write(0, b"through the window");
    assert_eq!(write(&one, start, key, 18), GOOD);
    assert_eq!(other.read(64, 18), b"through the window");
    assert_eq!(other.dereg(), libc::EBUSY);
    // Bound to nothing, it shows nothing and holds nothing.
    assert_eq!(bind(&other, mw, 2, info(ptr::null_mut(), 0, 0, 0)), 0);
    assert_eq!(other.drain(), [(2, GOOD)]);
    assert_eq!(write(&one, start, key, 8), REFUSED);
    assert_eq!(other.read(64, 7), b"through");
    end_window(mw);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_window_refuses_what_it_does_not_show() {
    let standin = Standin::start();
    let device = Opened::first();
    // Before, behind, with another key, and reading where only writing is allowed.
    for case in 0..4 {
        let (one, other) = pair(&device, RC);
        let mw = window(&other, ibv_mw_type::IBV_MW_TYPE_1);
        let start = other.address(64);
        let part = info(other.mr, start, 32, IBV_ACCESS_REMOTE_WRITE);
        assert_eq!(bind(&other, mw, 1, part), 0);
        let key = key_of(mw);
        let status = match case {
            0 => write(&one, start - 1, key, 8),
            1 => write(&one, start + 25, key, 8),
            2 => write(&one, start, key ^ 1, 8),
            _ => {
                let mut pieces = [one.piece(0, 8)];
                let mut request = send_wr(1, &mut pieces);
                request.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
                request.wr.rdma.remote_addr = start;
                request.wr.rdma.rkey = key;
                assert_eq!(one.post(&mut [request]).0, 0);
                one.poll().unwrap().status.0
            }
        };
        assert_eq!(status, REFUSED, "case {case}");
        end_window(mw);
        drop((one, other));
    }
    drop(device);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_window_of_type_2_is_one_pairs_and_its_key_can_be_taken_back() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    let mw = window(&other, ibv_mw_type::IBV_MW_TYPE_2);
    let access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED;
    let part = info(other.mr, other.address(64), 32, access);
    // Not by the call that is for the other type.
    assert_eq!(bind(&other, mw, 1, part), libc::EINVAL);
    let key = key_of(mw) + 5;
    assert_eq!(bind_second(&other, mw, 2, key, part), 0);
    assert_eq!(other.drain(), [(2, GOOD)]);
    // Its addresses begin at zero.
    one.write(0, b"zero");
    assert_eq!(write(&one, 4, key, 4), GOOD);
    assert_eq!(other.read(68, 4), b"zero");
    // The owner takes the key back, then the peer.
    invalidate(&other, 3, ibv_wr_opcode::IBV_WR_LOCAL_INV, key);
    let wc = other.poll().unwrap();
    assert_eq!(wc.opcode, ibv_wc_opcode::IBV_WC_LOCAL_INV);
    let key = key + 1;
    assert_eq!(bind_second(&other, mw, 4, key, part), 0);
    assert_eq!(other.drain(), [(4, GOOD)]);
    other.recv(5, 0, 8);
    invalidate(&one, 6, ibv_wr_opcode::IBV_WR_SEND_WITH_INV, key);
    assert_eq!(one.drain(), [(6, GOOD)]);
    let wc = other.poll().unwrap();
    assert_eq!((wc.wr_id, wc.wc_flags), (5, IBV_WC_WITH_INV));
    // SAFETY: the flag says so.
    assert_eq!(unsafe { wc.__bindgen_anon_1.invalidated_rkey }, key);
    assert_eq!(write(&one, 0, key, 4), REFUSED);
    end_window(mw);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_binding_or_a_revocation_that_is_not_allowed_fails() {
    let standin = Standin::start();
    let device = Opened::first();
    let second = ibv_mw_type::IBV_MW_TYPE_2;
    let failed = ibv_wc_status::IBV_WC_MW_BIND_ERR.0;
    // Beyond the region; with access that is none of a window's; of length 0; bound already.
    for case in 0..4 {
        let (one, other) = pair(&device, RC);
        let mw = window(&other, second);
        let (start, length) = (other.address(0), SIZE as u64);
        let what = match case {
            0 => info(other.mr, start + 1, length, IBV_ACCESS_REMOTE_READ),
            1 => info(other.mr, start, length, IBV_ACCESS_LOCAL_WRITE),
            2 => info(other.mr, start, 0, IBV_ACCESS_REMOTE_READ),
            _ => info(other.mr, start, length, IBV_ACCESS_REMOTE_READ),
        };
        if case == 3 {
            assert_eq!(bind_second(&other, mw, 1, key_of(mw), what), 0);
            assert_eq!(other.drain(), [(1, GOOD)]);
        }
        assert_eq!(bind_second(&other, mw, 2, key_of(mw) + 1, what), 0);
        assert_eq!(other.drain(), [(2, failed)], "case {case}");
        end_window(mw);
        drop((one, other));
    }
    // A registration cannot be revoked, by nobody.
    let (one, other) = pair(&device, RC);
    other.recv(1, 0, 8);
    invalidate(&one, 2, ibv_wr_opcode::IBV_WR_SEND_WITH_INV, other.key());
    let bad = ibv_wc_status::IBV_WC_REM_INV_REQ_ERR.0;
    assert_eq!(other.drain(), [(1, bad)]);
    drop((one, other));
    let (one, other) = pair(&device, RC);
    invalidate(&one, 2, ibv_wr_opcode::IBV_WR_LOCAL_INV, one.key());
    let bad = ibv_wc_status::IBV_WC_LOC_QP_OP_ERR.0;
    assert_eq!(one.drain(), [(2, bad)]);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_peer_does_what_the_pair_allows() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    assert_eq!(write(&one, other.address(0), other.key(), 8), GOOD);
    let only_read = ibv_qp_attr {
        qp_access_flags: IBV_ACCESS_REMOTE_READ,
        ..attr()
    };
    assert_eq!(other.modify(&only_read, IBV_QP_ACCESS_FLAGS), 0);
    assert_eq!(write(&one, other.address(0), other.key(), 8), REFUSED);
    drop((one, other, device));
    standin.nothing_left();
}
