//! Queue pairs by hand, with raw calls: for tests of the stand-in's data provider.
#![expect(unsafe_code, reason = "calls the C functions without the crate's care")]

use std::ptr;

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_SEND_SIGNALED, ibv_comp_channel, ibv_context,
    ibv_cq, ibv_mr, ibv_mtu, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc, ibv_wr_opcode,
    rdma_cm_id, rdma_event_channel,
};

use super::raw;

/// How much memory every end has.
pub(crate) const SIZE: usize = 4096;
/// How many requests fit on each side, and twice as many completions.
pub(crate) const DEPTH: u32 = 32;
pub(crate) const PIECES: u32 = 4;
pub(crate) const INLINE: u32 = 64;
pub(crate) const QKEY: u32 = 0x1111_1111;

/// An open device, through an id.
pub(crate) struct Opened {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
    pub(crate) context: *mut ibv_context,
}

impl Opened {
    pub(crate) fn first() -> Self {
        Self::through(raw::resolved())
    }

    fn through((channel, id): (*mut rdma_event_channel, *mut rdma_cm_id)) -> Self {
        Self {
            channel,
            id,
            context: raw::verbs(id),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        raw::destroy(self.id);
        // SAFETY: its only id is gone.
        unsafe { rdma_sys::rdma_destroy_event_channel(self.channel) };
    }
}

/// A queue pair with a queue, a domain and memory of its own. Dropped, it must be possible to end all of it.
pub(crate) struct End {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) mr: *mut ibv_mr,
    kind: ibv_qp_type,
}

impl End {
    pub(crate) fn new(device: &Opened, kind: ibv_qp_type) -> Self {
        Self::with_srq(device, kind, |_| ptr::null_mut())
    }

    /// One whose queue tells a channel.
    pub(crate) fn with_channel(
        device: &Opened,
        kind: ibv_qp_type,
        channel: *mut ibv_comp_channel,
    ) -> Self {
        Self::made(device, kind, channel, |_| ptr::null_mut())
    }

    pub(crate) fn with_srq(
        device: &Opened,
        kind: ibv_qp_type,
        srq: impl FnOnce(*mut ibv_pd) -> *mut ibv_srq,
    ) -> Self {
        Self::made(device, kind, ptr::null_mut(), srq)
    }

    fn made(
        device: &Opened,
        kind: ibv_qp_type,
        channel: *mut ibv_comp_channel,
        srq: impl FnOnce(*mut ibv_pd) -> *mut ibv_srq,
    ) -> Self {
        // SAFETY: an open device.
        let pd = unsafe { rdma_sys::ibv_alloc_pd(device.context) };
        let room = i32::try_from(2 * DEPTH).unwrap();
        // SAFETY: an open device, and no channel or one of it.
        let cq =
            unsafe { rdma_sys::ibv_create_cq(device.context, room, ptr::null_mut(), channel, 0) };
        let mut end = Self {
            pd,
            cq,
            qp: ptr::null_mut(),
            mr: ptr::null_mut(),
            kind,
        };
        let mut init = end.init();
        init.srq = srq(pd);
        // SAFETY: a domain and queues of one device.
        end.qp = unsafe { rdma_sys::ibv_create_qp(pd, &raw mut init) };
        assert!(!end.qp.is_null());
        let memory = Box::leak(vec![0_u8; SIZE].into_boxed_slice());
        end.mr = end.register(memory.as_mut_ptr(), SIZE);
        end
    }

    /// What its queue pair is made with.
    pub(crate) fn init(&self) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            cap: ibv_qp_cap {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: PIECES,
                max_recv_sge: PIECES,
                max_inline_data: INLINE,
            },
            qp_type: self.kind,
            ..ibv_qp_init_attr::default()
        }
    }

    fn register(&self, start: *mut u8, length: usize) -> *mut ibv_mr {
        let access = IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC
            | IBV_ACCESS_MW_BIND;
        // SAFETY: memory that is never freed.
        let mr = unsafe {
            rdma_sys::ibv_reg_mr_iova2(
                self.pd,
                start.cast(),
                length,
                start.expose_provenance() as u64,
                access,
            )
        };
        assert!(!mr.is_null());
        mr
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: a living queue pair.
        unsafe { (*self.qp).qp_num }
    }

    pub(crate) fn key(&self) -> u32 {
        // SAFETY: a living region.
        unsafe { (*self.mr).lkey }
    }

    /// The start of its memory.
    pub(crate) fn start(&self) -> *mut u8 {
        // SAFETY: a living region.
        unsafe { (*self.mr).addr.cast() }
    }

    pub(crate) fn address(&self, place: usize) -> u64 {
        self.start().wrapping_add(place).expose_provenance() as u64
    }

    /// A copy of a part of its memory.
    pub(crate) fn read(&self, place: usize, length: usize) -> Vec<u8> {
        (place..place + length)
            // SAFETY: inside its memory, which the stand-in may write to meanwhile.
            .map(|place| unsafe { self.start().wrapping_add(place).read_volatile() })
            .collect()
    }

    pub(crate) fn write(&self, place: usize, data: &[u8]) {
        for (offset, byte) in data.iter().enumerate() {
            // SAFETY: inside its memory.
            unsafe {
                self.start()
                    .wrapping_add(place + offset)
                    .write_volatile(*byte)
            };
        }
    }

    pub(crate) fn piece(&self, place: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.address(place),
            length,
            lkey: self.key(),
        }
    }

    pub(crate) fn modify(&self, attr: &ibv_qp_attr, mask: u32) -> i32 {
        let mut attr = *attr;
        let mask = i32::try_from(mask).unwrap();
        // SAFETY: a queue pair that lives, or whose misuse is the purpose.
        unsafe { rdma_sys::ibv_modify_qp(self.qp, &raw mut attr, mask) }
    }

    pub(crate) fn to_state(&self, state: ibv_qp_state) {
        let attr = ibv_qp_attr {
            qp_state: state,
            ..attr()
        };
        assert_eq!(self.modify(&attr, IBV_QP_STATE), 0);
    }

    pub(crate) fn to_init(&self) {
        let (attr, mask) = self.init_attr();
        assert_eq!(self.modify(&attr, mask), 0);
    }

    pub(crate) fn to_rtr(&self, number: u32) {
        let (attr, mask) = self.rtr_attr(number);
        assert_eq!(self.modify(&attr, mask), 0);
    }

    pub(crate) fn to_rts(&self) {
        let (attr, mask) = self.rts_attr();
        assert_eq!(self.modify(&attr, mask), 0);
    }

    /// What a change to INIT needs.
    pub(crate) fn init_attr(&self) -> (ibv_qp_attr, u32) {
        let attr = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_INIT,
            port_num: 1,
            qkey: QKEY,
            qp_access_flags: IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_ATOMIC,
            ..attr()
        };
        let last = if self.kind == ibv_qp_type::IBV_QPT_UD {
            IBV_QP_QKEY
        } else {
            IBV_QP_ACCESS_FLAGS
        };
        (attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last)
    }

    /// What a change to RTR needs.
    pub(crate) fn rtr_attr(&self, number: u32) -> (ibv_qp_attr, u32) {
        let mut attr = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_RTR,
            path_mtu: ibv_mtu::IBV_MTU_1024,
            dest_qp_num: number,
            max_dest_rd_atomic: 4,
            ..attr()
        };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        let unreliable =
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        let mask = match self.kind {
            ibv_qp_type::IBV_QPT_UD => IBV_QP_STATE,
            ibv_qp_type::IBV_QPT_UC => unreliable,
            _ => unreliable | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        };
        (attr, mask)
    }

    /// What a change to RTS needs.
    pub(crate) fn rts_attr(&self) -> (ibv_qp_attr, u32) {
        let attr = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_RTS,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            ..attr()
        };
        let mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        let reliable =
            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        match self.kind {
            ibv_qp_type::IBV_QPT_RC => (attr, mask | reliable),
            _ => (attr, mask),
        }
    }

    /// Posts sends as one list: what the call returned, and the place that `bad_wr` named. `None`: untouched.
    pub(crate) fn post(&self, requests: &mut [ibv_send_wr]) -> (i32, Option<*mut ibv_send_wr>) {
        let first = link(requests, |request, next| request.next = next);
        let untouched = ptr::without_provenance_mut(1);
        let mut bad = untouched;
        // SAFETY: a living queue pair, and requests that live during the call.
        let posted = unsafe { rdma_sys::ibv_post_send(self.qp, first, &raw mut bad) };
        (posted, (bad != untouched).then_some(bad))
    }

    /// The same for receives.
    pub(crate) fn post_recv(
        &self,
        requests: &mut [ibv_recv_wr],
    ) -> (i32, Option<*mut ibv_recv_wr>) {
        let first = link(requests, |request, next| request.next = next);
        let untouched = ptr::without_provenance_mut(1);
        let mut bad = untouched;
        // SAFETY: a living queue pair, and requests that live during the call.
        let posted = unsafe { rdma_sys::ibv_post_recv(self.qp, first, &raw mut bad) };
        (posted, (bad != untouched).then_some(bad))
    }

    /// Posts a signalled send of a part of its memory.
    pub(crate) fn send(&self, wr_id: u64, place: usize, length: u32) {
        let mut pieces = [self.piece(place, length)];
        let (posted, _) = self.post(&mut [send_wr(wr_id, &mut pieces)]);
        assert_eq!(posted, 0);
    }

    /// Posts a receive into a part of its memory.
    pub(crate) fn recv(&self, wr_id: u64, place: usize, length: u32) {
        let mut pieces = [self.piece(place, length)];
        let (posted, _) = self.post_recv(&mut [recv_wr(wr_id, &mut pieces)]);
        assert_eq!(posted, 0);
    }

    pub(crate) fn poll(&self) -> Option<ibv_wc> {
        let mut wc = ibv_wc::default();
        // SAFETY: a living queue, and room for one completion.
        match unsafe { rdma_sys::ibv_poll_cq(self.cq, 1, &raw mut wc) } {
            0 => None,
            1 => Some(wc),
            other => panic!("polled {other}"),
        }
    }

    /// Number and status of everything that is complete.
    pub(crate) fn drain(&self) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| self.poll())
            .map(|wc| (wc.wr_id, wc.status.0))
            .collect()
    }

    pub(crate) fn destroy_qp(&mut self) -> i32 {
        // SAFETY: a living queue pair.
        let destroyed = unsafe { rdma_sys::ibv_destroy_qp(self.qp) };
        if destroyed == 0 {
            self.qp = ptr::null_mut();
        }
        destroyed
    }

    /// Ends its memory's registration while something else lives on.
    pub(crate) fn dereg(&mut self) -> i32 {
        // SAFETY: a living region.
        let ended = unsafe { rdma_sys::ibv_dereg_mr(self.mr) };
        if ended == 0 {
            self.mr = ptr::null_mut();
        }
        ended
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if !self.qp.is_null() {
            assert_eq!(self.destroy_qp(), 0);
        }
        if !self.mr.is_null() {
            assert_eq!(self.dereg(), 0);
        }
        // SAFETY: nothing completes there any more.
        assert_eq!(unsafe { rdma_sys::ibv_destroy_cq(self.cq) }, 0);
        // SAFETY: nothing is in it any more.
        assert_eq!(unsafe { rdma_sys::ibv_dealloc_pd(self.pd) }, 0);
    }
}

/// Makes a list of requests, and gives its first.
fn link<T>(requests: &mut [T], set: impl Fn(&mut T, *mut T)) -> *mut T {
    let first = requests.as_mut_ptr();
    let length = requests.len();
    for (place, request) in requests.iter_mut().enumerate() {
        let next = if place + 1 < length {
            first.wrapping_add(place + 1)
        } else {
            ptr::null_mut()
        };
        set(request, next);
    }
    first
}

/// A signalled send of these pieces, which must live until it is posted.
pub(crate) fn send_wr(wr_id: u64, pieces: &mut [ibv_sge]) -> ibv_send_wr {
    ibv_send_wr {
        wr_id,
        sg_list: pieces.as_mut_ptr(),
        num_sge: i32::try_from(pieces.len()).unwrap(),
        opcode: ibv_wr_opcode::IBV_WR_SEND,
        send_flags: IBV_SEND_SIGNALED,
        ..ibv_send_wr::default()
    }
}

/// A receive into these pieces, which must live until it is posted.
pub(crate) fn recv_wr(wr_id: u64, pieces: &mut [ibv_sge]) -> ibv_recv_wr {
    ibv_recv_wr {
        wr_id,
        sg_list: pieces.as_mut_ptr(),
        num_sge: i32::try_from(pieces.len()).unwrap(),
        ..ibv_recv_wr::default()
    }
}

/// Attributes without a value.
pub(crate) fn attr() -> ibv_qp_attr {
    ibv_qp_attr::default()
}

/// Moves two queue pairs to RTS, each to the other.
pub(crate) fn connect(one: &End, other: &End) {
    for (end, to) in [(one, other), (other, one)] {
        end.to_init();
        end.to_rtr(to.number());
    }
    one.to_rts();
    other.to_rts();
}

/// Two ends that are connected.
pub(crate) fn pair(device: &Opened, kind: ibv_qp_type) -> (End, End) {
    let ends = (End::new(device, kind), End::new(device, kind));
    connect(&ends.0, &ends.1);
    ends
}
