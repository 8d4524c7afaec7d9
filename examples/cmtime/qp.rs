//! What the connections have beside their ids: queue pairs, which complete to two queues that many share.

use rdmacm::{
    CompletionQueue, Context, Error, ErrorKind, ProtectionDomain, QueuePair, QueuePairInit,
};

/// How many queue pairs share two completion queues.
const SHARING: u32 = 1024;

/// Makes the queue pairs, and keeps what they share.
#[derive(Default)]
pub(crate) struct Queues(Vec<Shared>);

/// Two completion queues, each with a channel, and a protection domain. The order is the order of dropping.
struct Shared {
    send: CompletionQueue,
    recv: CompletionQueue,
    pd: ProtectionDomain,
}

impl Queues {
    /// Makes the queue pair of an id on the device of `context`, with room for one request in each queue.
    pub(crate) fn create_qp(
        &mut self,
        context: &Context,
        create_qp: impl Fn(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair, Error>,
    ) -> Result<QueuePair, Error> {
        let last = self.0.iter().rfind(|shared| shared.pd.context() == context);
        let pd = match last.map(|shared| (shared, shared.create_qp(&create_qp))) {
            // There is no room for another one's completions.
            Some((shared, Err(error))) if error.kind() == ErrorKind::TooLarge => shared.pd.clone(),
            Some((_, made)) => return made,
            None => context.alloc_pd()?,
        };
        let shared = Shared {
            send: context.create_cq_with_channel(SHARING)?,
            recv: context.create_cq_with_channel(SHARING)?,
            pd,
        };
        let made = shared.create_qp(&create_qp);
        self.0.push(shared);
        made
    }
}

impl Shared {
    fn create_qp(
        &self,
        create_qp: impl Fn(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair, Error>,
    ) -> Result<QueuePair, Error> {
        let init = QueuePairInit::new(&self.send.handle())
            .recv_cq(&self.recv.handle())
            .max_send_wr(1)
            .max_recv_wr(1);
        create_qp(&self.pd, &init)
    }
}
