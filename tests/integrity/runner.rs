//! An end at work: it sends the messages of one script, and checks those of the other as they arrive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use rdmacm::{Buf, Fetch, Inline, Op, Pool, RemoteMemory, Work, WrList};

use super::end::{Done, End, PLACES, Progress, RECEIVES, SENDS, small};
use super::script::{Group, LONGEST, MOST_PIECES, Message, Pattern, Script, Way};
use crate::common::PATIENCE;
use crate::common::load::Random;

/// The messages of one direction, and what is in them.
pub(crate) struct Direction {
    pub(crate) script: Script,
    pub(crate) pattern: Arc<Pattern>,
}

/// An end at work.
pub(crate) struct Runner {
    end: End,
    here: Arc<Progress>,
    there: Arc<Progress>,
    /// Where the peer has places, and what it lets read.
    places: RemoteMemory,
    source: RemoteMemory,

    out: Direction,
    /// What is to be posted next.
    group: Group,
    list: WrList,
    under_way: VecDeque<Message>,
    /// How many of what was posted complete a receive, and are in a place.
    told: u64,
    written: u64,

    coming: Direction,
    expected: VecDeque<Message>,
    posted: u64,
    received: u64,
    checked: u64,
    scratch: Vec<u8>,
}

/// Tells the peer when this end's thread panics.
struct Witness(Arc<Progress>);

impl Drop for Witness {
    fn drop(&mut self) {
        let failed = thread::panicking();
        self.0.failed.store(failed, Ordering::Relaxed);
    }
}

impl Runner {
    /// The end has its receives posted afterwards. `here` and `there` are what this end and its peer have done.
    pub(crate) fn new(
        end: End,
        [here, there]: [&Arc<Progress>; 2],
        [places, source]: [RemoteMemory; 2],
        [out, coming]: [Direction; 2],
    ) -> Self {
        let mut runner = Self {
            end,
            here: Arc::clone(here),
            there: Arc::clone(there),
            places,
            source,
            out,
            group: Group::new(),
            list: WrList::with_capacity(SENDS as usize),
            under_way: VecDeque::new(),
            told: 0,
            written: 0,
            coming,
            expected: VecDeque::new(),
            posted: 0,
            received: 0,
            checked: 0,
            scratch: vec![0; LONGEST],
        };
        for _ in 0..RECEIVES {
            runner.post_receive();
        }
        runner
    }

    /// The end, and what it has sent.
    pub(crate) fn into_parts(self) -> (End, Script) {
        (self.end, self.out.script)
    }

    /// Posts a receive, some in two pieces.
    fn post_receive(&mut self) {
        let recv = &mut self.end.qp.recv;
        let take = |pool: &Pool| pool.take().expect("as many as receives");
        if self.posted % 4 == 3 {
            let halves = [take(&self.end.halves), take(&self.end.halves)];
            recv.post(halves, self.posted).expect("a receive");
        } else {
            recv.post(take(&self.end.wholes), self.posted)
                .expect("a receive");
        }
        self.posted += 1;
        self.here.receives.store(self.posted, Ordering::Release);
    }

    /// A buffer with the `len` bytes at `offset` of a message, or for a read with other bytes.
    fn buffer(&self, message: &Message, offset: usize, len: usize) -> Buf {
        let mut buf = self.end.pool.take().expect("there are enough");
        buf.set_len(len);
        if message.way == Way::Read {
            buf.fill(0x5a);
        } else {
            let content = self.out.pattern.of(message);
            buf.copy_from_slice(&content[offset..offset + len]);
        }
        buf
    }

    /// Buffers that hold a message together, cut anywhere.
    fn buffers<const K: usize>(&self, message: &Message) -> [Buf; K] {
        let mut random = Random::new(message.number);
        let mut offset = 0;
        std::array::from_fn(|place| {
            let left = message.len - offset;
            let len = match place + 1 == K {
                true => left,
                false => usize::try_from(random.below(left as u64 + 1)).expect("below left"),
            };
            offset += len;
            self.buffer(message, offset - len, len)
        })
    }

    /// The next place of the peer's, as long as `message`.
    fn place(&mut self, message: &Message) -> RemoteMemory {
        let offset = self.written % PLACES as u64 * LONGEST as u64;
        self.written += 1;
        part(self.places, offset, message)
    }

    fn work(&mut self, message: &Message) -> Work {
        let work = match message.way {
            Way::Send => Work::send(),
            Way::SendImm => Work::send_with_imm(message.imm()),
            Way::Write => Work::write(self.place(message)),
            Way::WriteImm => Work::write_with_imm(self.place(message), message.imm()),
            Way::Read => panic!("a read is no such request"),
        };
        if message.signaled {
            work
        } else {
            work.unsignaled()
        }
    }

    fn fetch(&self, message: &Message) -> Fetch {
        let start = Pattern::start(message) as u64;
        let fetch = Fetch::read(part(self.source, start, message));
        if message.signaled {
            fetch
        } else {
            fetch.unsignaled()
        }
    }

    fn post_pieces<const K: usize>(&mut self, message: &Message) {
        let bufs = self.buffers::<K>(message);
        let posted = if message.way == Way::Read {
            let fetch = self.fetch(message);
            self.end.qp.send.fetch(fetch, bufs, message.number)
        } else {
            let work = self.work(message);
            self.end.qp.send.post(work, bufs, message.number)
        };
        posted.expect("posted");
    }

    /// Posts one message by itself.
    fn post_one(&mut self, message: &Message) {
        match message.pieces {
            0 => {
                let work = self.work(message);
                let data = Inline(self.out.pattern.of(message));
                let posted = self.end.qp.send.post(work, data, message.number);
                posted.expect("posted");
            }
            1 => self.post_pieces::<1>(message),
            2 => self.post_pieces::<2>(message),
            _ => self.post_pieces::<MOST_PIECES>(message),
        }
    }

    /// Posts several with one doorbell.
    fn post_batch(&mut self, group: &[Message]) {
        let works: Vec<_> = group
            .iter()
            .map(|message| match message.way {
                Way::Read => (None, Some(self.buffer(message, 0, message.len))),
                _ => {
                    let buf = (message.pieces == 1).then(|| self.buffer(message, 0, message.len));
                    (Some(self.work(message)), buf)
                }
            })
            .collect();
        let fetches: Vec<_> = group.iter().map(|message| self.fetch(message)).collect();
        let pattern = Arc::clone(&self.out.pattern);
        let mut batch = self.end.qp.send.batch(&mut self.list);
        for ((message, fetch), (work, buf)) in group.iter().zip(fetches).zip(works) {
            match (work, buf) {
                (Some(work), Some(buf)) => batch.post(work, buf, message.number).expect("added"),
                (Some(work), None) => batch
                    .post(work, Inline(pattern.of(message)), message.number)
                    .expect("added"),
                (None, Some(buf)) => batch.fetch(fetch, buf, message.number).expect("added"),
                (None, None) => unreachable!("a read has a buffer"),
            }
        }
        batch.submit().expect("submitted");
    }

    /// Posts the next group if there is room for it here and there; false if not.
    fn post(&mut self) -> bool {
        if self.group.is_empty() {
            self.group = self.out.script.next_group();
        }
        let group = &self.group;
        let count = |wanted: fn(Way) -> bool| {
            group.iter().filter(|message| wanted(message.way)).count() as u64
        };
        let (tell, write) = (count(Way::tells), count(Way::is_write));
        let pieces: usize = group.iter().map(|message| message.pieces).sum();
        let room = self.told + tell <= self.there.receives.load(Ordering::Acquire)
            && self.written + write <= self.there.writes.load(Ordering::Acquire) + PLACES as u64
            && self.under_way.len() + group.len() <= SENDS as usize
            && self.end.pool.available() >= pieces;
        if group.is_empty() || !room {
            return false;
        }
        let group = std::mem::take(&mut self.group);
        match &group[..] {
            [message] => self.post_one(message),
            several => self.post_batch(several),
        }
        self.told += tell;
        self.under_way.extend(group);
        true
    }

    /// A request of this end has completed.
    fn sent(&mut self, done: &Done) {
        let message = self.under_way.pop_front().expect("was posted");
        assert_eq!(done.user, message.number, "out of order: {message:?}");
        assert_eq!(done.bufs.len(), message.pieces, "{message:?}");
        let op = match message.way {
            Way::Send | Way::SendImm => Op::Send,
            Way::Write | Way::WriteImm => Op::Write,
            Way::Read => Op::Read,
        };
        assert_eq!(done.op, op, "{message:?}");
        // What was sent has not changed either.
        if message.pieces > 0 {
            done.check(&self.out.pattern, &message);
        }
    }

    /// The next message that comes.
    fn next_expected(&mut self) -> Message {
        if self.expected.is_empty() {
            self.expected.extend(self.coming.script.next_group());
        }
        self.expected.pop_front().expect("no message is to come")
    }

    fn check_place(&mut self, message: &Message) {
        let offset = usize::try_from(self.checked).expect("64 bits") % PLACES * LONGEST;
        let found = &mut self.scratch[..message.len];
        self.end.places.read_at(offset, found);
        self.coming.pattern.check(message, 0, found);
        self.checked += 1;
    }

    /// A receive has completed: what it is, and what was written before it, has arrived.
    fn arrived(&mut self, done: Done) {
        assert_eq!(done.user, self.received, "receives are in order");
        self.received += 1;
        let message = loop {
            let message = self.next_expected();
            match message.way {
                Way::Read => {}
                Way::Write => self.check_place(&message),
                _ => break message,
            }
        };
        let imm = (message.way != Way::Send).then(|| message.imm());
        assert_eq!(done.imm, imm, "{message:?}");
        if message.way == Way::WriteImm {
            self.check_place(&message);
            let arrived: usize = done.bufs.iter().map(|buf| buf.len()).sum();
            assert_eq!(arrived, 0, "the bytes went elsewhere: {message:?}");
        } else {
            done.check(&self.coming.pattern, &message);
        }
        drop(done);
        self.here.writes.store(self.checked, Ordering::Release);
        self.post_receive();
    }

    /// Sends and receives everything.
    pub(crate) fn run(&mut self) {
        let _witness = Witness(Arc::clone(&self.here));
        let mut busy = Instant::now();
        loop {
            let mut idle = true;
            while self.post() {
                idle = false;
            }
            while let Some(done) = self.end.cq.poll().expect("polling").map(Done::of) {
                idle = false;
                if done.op == Op::Receive {
                    self.arrived(done);
                } else {
                    self.sent(&done);
                }
            }
            if self.is_over() {
                return;
            }
            if idle {
                assert!(busy.elapsed() < PATIENCE, "stuck: {}", self.state());
                let failed = self.there.failed.load(Ordering::Relaxed);
                assert!(!failed, "the peer has failed");
                thread::yield_now();
            } else {
                busy = Instant::now();
            }
        }
    }

    fn is_over(&self) -> bool {
        let posted = self.out.script.is_over() && self.group.is_empty();
        let arrived = self.coming.script.is_over() && self.expected.is_empty();
        posted && self.under_way.is_empty() && arrived
    }

    fn state(&self) -> String {
        format!(
            "{} under way, {:?} next; {} told, {} written; {} of {} receives, {} places checked",
            self.under_way.len(),
            self.group.first(),
            self.told,
            self.written,
            self.received,
            self.posted,
            self.checked
        )
    }
}

fn part(memory: RemoteMemory, offset: u64, message: &Message) -> RemoteMemory {
    let offset = u32::try_from(offset).expect("small");
    let part = memory.part(offset, small(message.len));
    part.expect("inside")
}
