//! One end of the connection that carries the messages: what is made before the first one moves.

use std::sync::atomic::{AtomicBool, AtomicU64};

use rdmacm::{
    Access, Buf, Completion, CompletionQueue, Context, Exposed, Op, Pool, ProtectionDomain,
    QueuePair, QueuePairInit, Result, Status,
};

use super::script::{INLINE, LONGEST, MOST_PIECES, Message, Pattern};
use crate::common::PATIENCE;

/// Requests in the send queue of an end.
pub(crate) const SENDS: u32 = 64;
/// Receives that are posted.
pub(crate) const RECEIVES: u32 = 32;
/// Places in an end's memory for messages that are written.
pub(crate) const PLACES: usize = 32;
/// Buffers for what is sent. Half a send queue of requests in three buffers may wait for a signalled one, and a batch be next.
pub(crate) const BUFFERS: usize = SENDS as usize * 2;

/// One end. It sends the messages of one script and receives those of the other. The order is the order of dropping.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pool: Pool,
    /// For receives in one buffer.
    pub(crate) wholes: Pool,
    /// For receives in two.
    pub(crate) halves: Pool,
    /// Where the peer writes.
    pub(crate) places: Exposed,
    /// What the peer reads: the content of all its messages.
    pub(crate) source: Exposed,
}

impl End {
    pub(crate) fn new(
        context: &Context,
        source: &Pattern,
        create_qp: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair>,
    ) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(SENDS + RECEIVES)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(SENDS)
            .max_recv_wr(RECEIVES)
            .max_send_sge(small(MOST_PIECES))
            .max_recv_sge(2)
            .max_inline_data(small(INLINE));
        let qp = create_qp(&pd, &init)?;
        let mut exposed = pd.expose(source.bytes().len(), Access::READ)?;
        exposed.write_at(0, source.bytes());
        Ok(Self {
            qp,
            cq,
            pool: pd.pool(BUFFERS, LONGEST)?,
            wholes: pd.pool(RECEIVES as usize, LONGEST)?,
            halves: pd.pool(2 * RECEIVES as usize, LONGEST / 2)?,
            places: pd.expose(LONGEST * PLACES, Access::WRITE)?,
            source: exposed,
        })
    }

    /// Ends it, and checks that every buffer is back.
    pub(crate) fn close(mut self) {
        self.qp.close(&mut self.cq, PATIENCE).expect("close");
        let back = [self.pool, self.wholes, self.halves].map(|pool| pool.available());
        assert_eq!(back, [BUFFERS, RECEIVES as usize, 2 * RECEIVES as usize]);
        self.places.revoke().expect("revoke");
        self.source.revoke().expect("revoke");
    }
}

/// What an end has done that its peer may go on from.
#[derive(Default)]
pub(crate) struct Progress {
    /// Receives that were posted.
    pub(crate) receives: AtomicU64,
    /// Written messages that were checked: their places are free.
    pub(crate) writes: AtomicU64,
    /// Its thread has panicked: nothing more comes.
    pub(crate) failed: AtomicBool,
}

/// A completion, taken out of its queue.
pub(crate) struct Done {
    pub(crate) op: Op,
    pub(crate) user: u64,
    pub(crate) imm: Option<u32>,
    pub(crate) bufs: Vec<Buf>,
}

impl Done {
    pub(crate) fn of(completion: Completion<'_>) -> Self {
        assert_eq!(completion.status(), Status::SUCCESS, "{completion:?}");
        let (op, user, imm, bufs) = match completion {
            Completion::Sent(sent) => (sent.op(), sent.user(), None, vec![sent.into_buf()]),
            Completion::Bare(bare) => (bare.op(), bare.user(), None, Vec::new()),
            Completion::Received(received) => {
                let (op, user, imm) = (received.op(), received.user(), received.imm());
                (op, user, imm, vec![received.into_buf()])
            }
            Completion::Pieces(pieces) => {
                let (op, user, imm) = (pieces.op(), pieces.user(), pieces.imm());
                (op, user, imm, pieces.collect())
            }
            other => panic!("{other:?}"),
        };
        Self {
            op,
            user,
            imm,
            bufs,
        }
    }

    /// That the buffers, one after the other, are `message`.
    pub(crate) fn check(&self, pattern: &Pattern, message: &Message) {
        let mut offset = 0;
        for buf in &self.bufs {
            assert!(offset + buf.len() <= message.len, "{message:?} is longer");
            pattern.check(message, offset, buf);
            offset += buf.len();
        }
        assert_eq!(offset, message.len, "the length of {message:?}");
    }
}

pub(crate) fn small(number: usize) -> u32 {
    u32::try_from(number).expect("small")
}
