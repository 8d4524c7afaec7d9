use super::options::Options;
use crate::error::Result;
use crate::verbs::{CompletionQueue, Context, Pool, ProtectionDomain, QueuePair, QueuePairInit};

/// The parts of a connection that is not made yet, with its receives posted.
pub(super) struct Prepared {
    pub(super) qp: QueuePair,
    pub(super) cq: CompletionQueue,
    pub(super) pool: Pool,
    pub(super) posted: u32,
}

impl Prepared {
    /// Makes domain, completion queue, queue pair and memory on `context`, and posts the receives.
    pub(super) fn new(
        context: &Context,
        options: &Options,
        create_qp: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair>,
    ) -> Result<Self> {
        let depth = options.queue_depth;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_with_channel(depth.saturating_mul(2))?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(depth)
            .max_recv_wr(depth);
        let mut qp = create_qp(&pd, &init)?;
        // One set is posted, one may be with the program or in the inbox, and one is kept for sends: `Traffic::replenish`.
        let pool = pd.pool(depth as usize * 3, options.message_size)?;
        for buf in (0..depth).map_while(|_| pool.take()) {
            qp.recv.post(buf, 0)?;
        }
        Ok(Self {
            qp,
            cq,
            pool,
            posted: depth,
        })
    }
}
