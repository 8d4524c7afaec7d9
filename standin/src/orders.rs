//! What a test asks of the data provider, for a queue pair, a shared receive queue or everything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::{Posts, Refusal, SIDES};
use crate::arg;
use crate::c::{IBV_ACCESS_LOCAL_WRITE, ibv_qp_state, ibv_sge, ibv_wc_opcode, ibv_wc_status};
use crate::call::Errno;
use crate::doom::doom;
use crate::qp::{Receive, Send};
use crate::world::{World, world};

/// Where a request was posted: an index into what is kept per side.
pub(crate) const SEND: usize = 0;
pub(crate) const RECV: usize = 1;

/// Which requests the error state leaves where they are, instead of flushing them: bits of a mask.
const KEEPS: [u32; 2] = [1, 2];
/// The same for those that are posted in the error state only.
const KEEPS_LATE: [u32; 2] = [4, 8];

/// Until when a request does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It goes its way.
    No,
    UntilReleased,
    Until(Instant),
}

/// How the requests are held that are posted from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holding {
    Released,
    For(Duration),
}

/// What is asked of one queue pair or shared receive queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    pub(crate) hold: [Option<Holding>; SIDES],
    /// What the error state does not flush.
    pub(crate) unflushed: u32,
    /// Whether the completions of a destroyed pair are taken out of its queues.
    pub(crate) removes: bool,
    /// How often destroying fails, and with what.
    pub(crate) fails: (u32, Errno),
    /// Whether posted receives are written to until they complete.
    pub(crate) scribbles: bool,
}

impl Orders {
    /// How a request is held that is posted now.
    pub(crate) fn hold(&self, side: usize) -> Hold {
        match self.hold[side] {
            None => Hold::No,
            Some(Holding::Released) => Hold::UntilReleased,
            Some(Holding::For(time)) => Hold::Until(Instant::now() + time),
        }
    }

    /// Whether requests of a side are flushed; `late`: those that are posted in the error state.
    pub(crate) fn flushes(&self, side: usize, late: bool) -> bool {
        let kept = KEEPS[side] | if late { KEEPS_LATE[side] } else { 0 };
        self.unflushed & kept == 0
    }

    /// Takes one of the failures that are left.
    pub(crate) fn failure(&mut self) -> Option<Errno> {
        let (left, errno) = &mut self.fails;
        *left = left.checked_sub(1)?;
        Some(*errno)
    }

    fn needs_clock(&self) -> bool {
        let timed = |hold: &Option<Holding>| matches!(hold, Some(Holding::For(_)));
        self.scribbles || self.hold.iter().any(timed)
    }
}

/// Whom an order is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Everybody, also who is made later.
    All,
    Qp(usize),
    Srq(usize),
}

/// A request as far as holding goes.
trait Request {
    fn id(&self) -> u64;
    fn hold(&mut self) -> &mut Hold;
}

impl Request for Send {
    fn id(&self) -> u64 {
        self.wr.wr_id
    }

    fn hold(&mut self) -> &mut Hold {
        &mut self.hold
    }
}

impl Request for Receive {
    fn id(&self) -> u64 {
        self.wr_id
    }

    fn hold(&mut self) -> &mut Hold {
        &mut self.hold
    }
}

fn requests<'a, T: Request + 'a>(
    queue: impl Iterator<Item = &'a mut T> + 'a,
) -> Box<dyn Iterator<Item = (u64, &'a mut Hold)> + 'a> {
    Box::new(queue.map(|request| (request.id(), request.hold())))
}

impl World {
    /// Whom a test means: 0 for everybody, the address of a queue, or the number of a pair.
    pub(crate) fn target(&self, named: usize) -> Target {
        let number = u32::try_from(named)
            .ok()
            .and_then(|number| self.numbers.get(&number));
        match number {
            _ if named == 0 => Target::All,
            Some(qp) => Target::Qp(*qp),
            None if self.srqs.find(named).is_some() => Target::Srq(named),
            None => {
                self.qp(named);
                Target::Qp(named)
            }
        }
    }

    /// Changes what is asked of `target`.
    pub(crate) fn order(&mut self, target: Target, mut change: impl FnMut(&mut Orders)) {
        if target == Target::All {
            change(&mut self.orders);
        }
        for qp in self.pairs_of(target) {
            change(&mut self.qp_mut(qp).orders);
        }
        for srq in self.shared_of(target) {
            change(&mut self.srq_mut(srq).orders);
        }
        let orders = self.qps.iter().map(|(_, qp)| &qp.orders);
        let shared = self.srqs.iter().map(|(_, srq)| &srq.orders);
        let mut all = orders.chain(shared).chain([&self.orders]);
        if all.any(Orders::needs_clock) {
            self.ticking = true;
            start_clock();
        }
    }

    fn pairs_of(&self, target: Target) -> Vec<usize> {
        match target {
            Target::All => self.qps.iter().map(|(address, _)| address).collect(),
            Target::Qp(qp) => vec![qp],
            Target::Srq(_) => Vec::new(),
        }
    }

    fn shared_of(&self, target: Target) -> Vec<usize> {
        match target {
            Target::All => self.srqs.iter().map(|(address, _)| address).collect(),
            Target::Srq(srq) => vec![srq],
            Target::Qp(_) => Vec::new(),
        }
    }

    /// Forgets every order. What is held stays so.
    pub(crate) fn forget_orders(&mut self) {
        self.order(Target::All, |orders| *orders = Orders::default());
        self.refusals.clear();
        self.ticking = false;
    }

    /// Plans that a post is refused.
    pub(crate) fn refuse(&mut self, target: Target, side: usize, refusal: Refusal) {
        self.refusals.push((target, side, refusal));
    }

    /// Takes the refusal that is planned for this post.
    pub(crate) fn refusal(&mut self, target: Target, side: usize) -> Option<Refusal> {
        let meant = |plan: &(Target, usize, Refusal)| {
            plan.1 == side && [target, Target::All].contains(&plan.0)
        };
        let place = self.refusals.iter().position(meant)?;
        Some(self.refusals.remove(place).2)
    }

    /// Every request that is posted there, with what holds it.
    fn posted(
        &mut self,
        target: Target,
        side: usize,
    ) -> Box<dyn Iterator<Item = (u64, &mut Hold)> + '_> {
        let shared = match target {
            Target::All => doom!("a test must say which queue it means"),
            Target::Qp(qp) if side == RECV => self.qp(qp).srq,
            Target::Qp(_) => None,
            Target::Srq(srq) => Some(srq),
        };
        match (shared, target) {
            (Some(srq), _) => requests(self.srq_mut(srq).queue.iter_mut()),
            (None, Target::Qp(qp)) if side == SEND => requests(self.qp_mut(qp).sends.iter_mut()),
            (None, Target::Qp(qp)) => requests(self.qp_mut(qp).receives.iter_mut()),
            (None, _) => Box::new(std::iter::empty()),
        }
    }

    /// Number and state of the request at `place`.
    pub(crate) fn posted_at(
        &mut self,
        target: Target,
        side: usize,
        place: usize,
    ) -> Option<(u64, Hold)> {
        let (id, hold) = self.posted(target, side).nth(place)?;
        Some((id, *hold))
    }

    /// Lets the first held request with this number go on; false when there is none.
    pub(crate) fn release(&mut self, target: Target, side: usize, wr_id: u64) -> bool {
        let held = |(id, hold): &(u64, &mut Hold)| *id == wr_id && !matches!(**hold, Hold::No);
        let Some((_, hold)) = self.posted(target, side).find(held) else {
            return false;
        };
        *hold = Hold::No;
        self.go_on(target);
        true
    }

    /// Lets everything go on that is held there.
    pub(crate) fn release_all(&mut self, target: Target, sides: [bool; SIDES]) {
        self.let_go(target, sides, |_| true);
    }

    fn let_go(&mut self, target: Target, sides: [bool; SIDES], which: impl Fn(&Hold) -> bool) {
        let mut moved = Vec::new();
        for (side, wanted) in sides.into_iter().enumerate() {
            let pairs = self.pairs_of(target).into_iter().map(Target::Qp);
            let shared = self.shared_of(target).into_iter().map(Target::Srq);
            for one in pairs.chain(shared) {
                if !wanted {
                    continue;
                }
                let held = |hold: &Hold| *hold != Hold::No && which(hold);
                for (_, hold) in self.posted(one, side).filter(|(_, hold)| held(hold)) {
                    *hold = Hold::No;
                    if moved.last() != Some(&one) {
                        moved.push(one);
                    }
                }
            }
        }
        for one in moved {
            self.go_on(one);
        }
    }

    pub(crate) fn go_on(&mut self, target: Target) {
        for qp in self.pairs_of(target) {
            match self.qp(qp).srq {
                Some(srq) => self.go_on(Target::Srq(srq)),
                None => self.received_more(qp),
            }
            self.work(qp);
        }
        for srq in self.shared_of(target) {
            let users: Vec<usize> = self
                .qps
                .iter()
                .filter(|(_, qp)| qp.srq == Some(srq))
                .map(|(address, _)| address)
                .collect();
            for qp in users {
                self.received_more(qp);
            }
        }
    }

    /// Ends the first request with this number as a test wants, without carrying it out; false when there is none.
    pub(crate) fn complete_as(
        &mut self,
        qp: usize,
        side: usize,
        wr_id: u64,
        status: ibv_wc_status,
        byte_len: u32,
    ) -> bool {
        let good = status == ibv_wc_status::IBV_WC_SUCCESS;
        if side == SEND {
            let found = self.qp_mut(qp);
            let place = found.sends.iter().position(|send| send.wr.wr_id == wr_id);
            let Some(send) = place.and_then(|place| found.sends.remove(place)) else {
                return false;
            };
            self.finish(qp, &send, status, byte_len);
            return true;
        }
        let queue = self.receives_of(qp);
        let place = queue.iter().position(|receive| receive.wr_id == wr_id);
        if place.and_then(|place| queue.remove(place)).is_none() {
            return false;
        }
        if let Some(srq) = self.qp(qp).srq {
            self.took_shared(srq);
        }
        let mut entry = self.entry(qp, wr_id, status);
        if good {
            entry.opcode = ibv_wc_opcode::IBV_WC_RECV;
            entry.byte_len = byte_len;
            entry.src_qp = self.qp(qp).remote;
        }
        self.report_receive(qp, entry, true);
        if !good && status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
            self.set_state(qp, ibv_qp_state::IBV_QPS_ERR);
        }
        true
    }

    /// How often something was posted there, and how much.
    pub(crate) fn posts(&self, target: Target, side: usize) -> Posts {
        let pairs = self.pairs_of(target);
        let shared = self.shared_of(target);
        let pairs = pairs.iter().map(|qp| self.qp(*qp).posts[side]);
        let shared = shared.iter().map(|srq| self.srq(*srq).posts);
        let mut sum = Posts::default();
        for posts in pairs.chain(shared) {
            sum.calls += posts.calls;
            sum.requests += posts.requests;
            sum.last = posts.last;
        }
        sum
    }

    /// Does what is due while time goes by: at every call into the provider, and now and then in between.
    pub(crate) fn tick(&mut self) {
        if !self.ticking {
            return;
        }
        self.scribble();
        let now = Instant::now();
        self.let_go(
            Target::All,
            [true; SIDES],
            |hold| matches!(hold, Hold::Until(due) if *due <= now),
        );
    }

    /// Writes to every piece of the receives that are posted where a test wants that.
    fn scribble(&mut self) {
        let own = self
            .qps
            .iter()
            .filter(|(_, qp)| qp.orders.scribbles)
            .flat_map(|(_, qp)| qp.receives.iter().map(|receive| (qp.pd, receive)));
        let shared = self
            .srqs
            .iter()
            .filter(|(_, srq)| srq.orders.scribbles)
            .flat_map(|(_, srq)| srq.queue.iter().map(|receive| (srq.pd, receive)));
        for (pd, receive) in own.chain(shared) {
            self.scribble_on(pd, &receive.pieces);
        }
        self.scribbled = self.scribbled.wrapping_add(1);
    }

    fn scribble_on(&self, pd: usize, pieces: &[ibv_sge]) {
        let places = self.reach_all(pieces, pd, IBV_ACCESS_LOCAL_WRITE);
        for (address, length) in places.into_iter().flatten() {
            let mut next = self.scribbled;
            let pattern: Vec<u8> = (0..length)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            arg::put(address, &pattern);
        }
    }
}

impl Posts {
    /// Counts a post of `length` requests.
    pub(crate) fn add(&mut self, length: usize) {
        self.calls += 1;
        self.requests += length as u64;
        self.last = length as u64;
    }
}

/// Starts the thread that lets time go by, unless it runs. The caller has the world locked.
fn start_clock() {
    const TICK: Duration = Duration::from_micros(200);
    static RUNS: AtomicBool = AtomicBool::new(false);
    if RUNS.swap(true, Ordering::SeqCst) {
        return;
    }
    let clock = || {
        loop {
            thread::sleep(TICK);
            let mut world = world();
            if !world.ticking {
                RUNS.store(false, Ordering::SeqCst);
                return;
            }
            world.tick();
        }
    };
    if thread::Builder::new()
        .name("standin".into())
        .spawn(clock)
        .is_err()
    {
        doom!("cannot start a thread");
    }
}
