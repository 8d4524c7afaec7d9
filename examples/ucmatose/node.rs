//! One connection: its id, and what its messages need.

use std::time::Duration;

use rdmacm::{
    CmId, Completion, CompletionQueue, Context, Error, Pool, ProtectionDomain, QueuePair,
    QueuePairInit,
};

use crate::Args;
use crate::tool::Outcome;

/// How long the end of a queue pair may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection, from its id to its end. The order is the order of dropping.
pub(crate) struct Node {
    pub(crate) traffic: Option<Traffic>,
    pub(crate) id: CmId,
    pub(crate) connected: bool,
}

/// What messages need. The order is the order of dropping.
pub(crate) struct Traffic {
    qp: QueuePair,
    cq: CompletionQueue,
    pool: Pool,
    count: u32,
    pub(crate) sent: u32,
    pub(crate) received: u32,
}

impl Node {
    pub(crate) fn new(id: CmId, traffic: Option<Traffic>) -> Self {
        Self {
            traffic,
            id,
            connected: false,
        }
    }
}

impl Traffic {
    /// Queues and buffers for all messages, and a receive posted for each that comes.
    pub(crate) fn new(
        args: &Args,
        context: &Context,
        create_qp: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair, Error>,
    ) -> Result<Self, Error> {
        let count = args.count();
        let depth = count.max(1);
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(2 * depth)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(depth)
            .max_recv_wr(depth);
        let mut qp = create_qp(&pd, &init)?;
        let pool = pd.pool(2 * depth as usize, args.size.max(1) as usize)?;
        for buf in (0..count).map_while(|_| pool.take()) {
            qp.recv.post(buf, 0)?;
        }
        Ok(Self {
            qp,
            cq,
            pool,
            count,
            sent: 0,
            received: 0,
        })
    }

    /// Sends all messages.
    pub(crate) fn send(&mut self) -> Outcome {
        for _ in 0..self.count {
            let buf = self.pool.take().ok_or("the pool has a buffer for each")?;
            self.qp.send.send(buf, 0)?;
        }
        Ok(())
    }

    /// Counts what has completed; false when there was nothing.
    pub(crate) fn poll(&mut self) -> Result<bool, Error> {
        let mut any = false;
        while let Some(completion) = self.cq.poll()? {
            any = true;
            match completion {
                Completion::Sent(sent) => {
                    sent.check()?;
                    self.sent += 1;
                }
                Completion::Received(received) => {
                    received.check()?;
                    self.received += 1;
                }
                _ => {}
            }
        }
        Ok(any)
    }

    /// Ends the queue pair in order.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.qp.close(&mut self.cq, PATIENCE)
    }
}
