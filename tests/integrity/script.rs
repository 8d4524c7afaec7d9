//! What both ends of the data test know beforehand: which messages come, and what is in them. Nothing but a seed is agreed on.

use std::collections::BTreeMap;

use crate::common::load::Random;

/// The longest message.
pub(crate) const LONGEST: usize = 64 << 10;
/// Bytes that are sent inline at most.
pub(crate) const INLINE: usize = 64;
/// In how many buffers a message may be.
pub(crate) const MOST_PIECES: usize = 3;
/// Requests in a batch at most.
pub(crate) const BATCH: u64 = 16;
/// Plain writes in a row at most: the next message tells of them.
pub(crate) const UNTOLD: u32 = 8;

/// How a message moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Into a receive.
    Send,
    /// Into a receive, with the message's number as immediate data.
    SendImm,
    /// Into the peer's memory; a later message tells that it is there.
    Write,
    /// Into the peer's memory, with the message's number as immediate data.
    WriteImm,
    /// Out of the peer's memory.
    Read,
}

impl Way {
    /// Whether it completes a receive of the peer's.
    pub(crate) fn tells(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }

    /// Whether it goes to a place in the peer's memory.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) number: u64,
    pub(crate) way: Way,
    pub(crate) len: usize,
    /// In how many buffers it is on the side that posts it: 0 for inline.
    pub(crate) pieces: usize,
    pub(crate) signaled: bool,
}

impl Message {
    /// The immediate value of those that have one.
    pub(crate) fn imm(&self) -> u32 {
        let mixed = Random::new(self.number).next();
        u32::try_from(mixed >> 32).expect("32 bits")
    }
}

/// Messages that are posted with one doorbell. Several are a batch, and each is in one buffer then, or inline.
pub(crate) type Group = Vec<Message>;

/// The messages of one direction, in their order.
pub(crate) struct Script {
    random: Random,
    next: u64,
    end: u64,
    untold: u32,
    bytes: u64,
    /// How many there were of each kind.
    kinds: BTreeMap<String, u64>,
}

impl Script {
    pub(crate) fn new(seed: u64, end: u64) -> Self {
        Self {
            random: Random::new(seed),
            next: 0,
            end,
            untold: 0,
            bytes: 0,
            kinds: BTreeMap::new(),
        }
    }

    /// The next group; an empty one at the end.
    pub(crate) fn next_group(&mut self) -> Group {
        let count = match self.random.below(4) {
            0 => 1 + self.random.below(BATCH),
            _ => 1,
        };
        let left = self.end - self.next;
        (0..count.min(left))
            .map(|_| self.message(count == 1))
            .collect()
    }

    /// Whether there is no further group.
    pub(crate) fn is_over(&self) -> bool {
        self.next == self.end
    }

    /// How many bytes there were in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many messages there were of each kind.
    pub(crate) fn kinds(&self) -> &BTreeMap<String, u64> {
        &self.kinds
    }

    fn message(&mut self, alone: bool) -> Message {
        let number = self.next;
        self.next += 1;
        let is_last = self.next == self.end;
        let mut way = match self.random.below(8) {
            0 | 1 => Way::Send,
            2 => Way::SendImm,
            3 | 4 => Way::Write,
            5 => Way::WriteImm,
            _ => Way::Read,
        };
        if is_last {
            way = Way::SendImm;
        } else if way == Way::Write && self.untold == UNTOLD {
            way = Way::WriteImm;
        }
        match way {
            Way::Write => self.untold += 1,
            Way::Read => {}
            _ => self.untold = 0,
        }
        let len = self.len();
        let pieces = if alone && self.random.below(3) < 2 {
            2 + self.index(MOST_PIECES - 1)
        } else if way != Way::Read && len <= INLINE && self.random.below(2) == 0 {
            0
        } else {
            1
        };
        // The last one brings back all that are not signalled.
        let signaled = is_last || self.random.below(4) == 0;
        self.bytes += len as u64;
        let mut kind = |kind: &str| *self.kinds.entry(kind.to_owned()).or_default() += 1;
        kind(&format!("{way:?}"));
        match pieces {
            0 => kind("inline"),
            1 => {}
            _ => kind("in pieces"),
        }
        if !signaled {
            kind("unsignaled");
        }
        if !alone {
            kind("in batches");
        }
        Message {
            number,
            way,
            len,
            pieces,
            signaled,
        }
    }

    /// From 0 to [`LONGEST`]: each power of two as often as any other, and now and then the longest.
    fn len(&mut self) -> usize {
        if self.random.below(256) == 0 {
            return LONGEST;
        }
        let low = 1 << self.random.below(16);
        low - 1 + self.index(low)
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).expect("below a usize")
    }
}

/// What is in the messages of one direction: a stretch of random bytes, from a place that the message's number gives.
///
/// Two messages, and two places in one message, have the same bytes by chance only.
pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(!seed);
        let bytes = (0..2 * LONGEST / 8).flat_map(|_| random.next().to_ne_bytes());
        Self {
            bytes: bytes.collect(),
        }
    }

    /// All of them, for who reads.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where in all bytes a message starts.
    pub(crate) fn start(message: &Message) -> usize {
        let mixed = Random::new(message.number).next();
        usize::try_from(mixed % (LONGEST as u64)).expect("below the longest")
    }

    /// The content of a message.
    pub(crate) fn of(&self, message: &Message) -> &[u8] {
        let start = Self::start(message);
        &self.bytes[start..start + message.len]
    }

    /// Fails, and says where, unless `found` is `message` from `offset` on.
    pub(crate) fn check(&self, message: &Message, offset: usize, found: &[u8]) {
        let wanted = &self.of(message)[offset..offset + found.len()];
        // One comparison of memory: these tests are built without optimisation.
        if wanted != found {
            let place = (0..found.len()).find(|&place| wanted[place] != found[place]);
            let place = place.map(|place| place + offset);
            panic!("{message:?} differs from byte {place:?} on");
        }
    }
}
