//! One end of a connection: its queue pair, and the messages that tell where memory is.

use std::error::Error;

use rdmacm::{
    Buf, Completion, CompletionQueue, Context, ErrorKind, EventChannel, Op, Pool, ProtectionDomain,
    QueuePair, QueuePairInit, RemoteMemory, Status,
};

#[path = "../common/link.rs"]
mod link;

use crate::tool::Outcome;

/// Requests in the send queue, and receives that are posted.
const SENDS: u32 = 16;
const RECEIVES: u32 = 2;

/// What one end needs beside its id. The order is the order of dropping.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    cq: CompletionQueue,
    messages: Pool,
    pub(crate) pd: ProtectionDomain,
    pub(crate) channel: EventChannel,
}

/// What comes next.
pub(crate) enum Next {
    /// A message.
    Message(RemoteMemory),
    /// The end of a read.
    Read,
    /// The end of a write, with what was written.
    Written(Buf),
    /// The peer has ended the connection.
    Ended,
}

impl End {
    /// An end whose events come to `channel`, with its receives posted before the peer can send.
    pub(crate) fn new(
        context: &Context,
        channel: EventChannel,
        create_qp: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair, rdmacm::Error>,
    ) -> Result<Self, rdmacm::Error> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_with_channel(2 * SENDS)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(SENDS)
            .max_recv_wr(RECEIVES);
        let mut qp = create_qp(&pd, &init)?;
        let messages = pd.pool((SENDS + RECEIVES) as usize, RemoteMemory::SIZE)?;
        for buf in (0..RECEIVES).map_while(|_| messages.take()) {
            qp.recv.post(buf, 0)?;
        }
        Ok(Self {
            qp,
            cq,
            messages,
            pd,
            channel,
        })
    }

    /// Tells the peer of memory. A server, which has none to tell of, says so that it is ready.
    pub(crate) fn tell(&mut self, memory: RemoteMemory) -> Outcome {
        let buf = self.messages.take();
        let mut buf = buf.ok_or("the peer takes none of the messages sent to it")?;
        buf.fill_from(&memory.to_bytes());
        self.qp.send.send(buf, 0)?;
        Ok(())
    }

    /// Waits for what comes next.
    pub(crate) fn next(&mut self) -> Outcome<Next> {
        loop {
            if let Some(next) = self.completed()? {
                return Ok(next);
            }
            match link::completion(&mut self.cq, &self.channel) {
                Err(error) if error.kind() == ErrorKind::Disconnected => return Ok(Next::Ended),
                waited => waited?,
            }
        }
    }

    /// What has completed, if anything that is waited for.
    fn completed(&mut self) -> Outcome<Option<Next>> {
        while let Some(completion) = self.cq.poll()? {
            match completion {
                // The end's event is there, or comes; what else was posted is of no use any more.
                completion if completion.status() == Status::FLUSHED => {
                    return Ok(Some(Next::Ended));
                }
                Completion::Received(received) => {
                    received.check()?;
                    let buf = received.into_buf();
                    let message: Result<[u8; RemoteMemory::SIZE], _> = buf[..].try_into();
                    let message = message.map_err(|_| unknown(buf.len()))?;
                    self.qp.recv.post(buf, 0)?;
                    return Ok(Some(Next::Message(RemoteMemory::from_bytes(message))));
                }
                Completion::Sent(sent) => {
                    sent.check()?;
                    if sent.op() == Op::Write {
                        return Ok(Some(Next::Written(sent.into_buf())));
                    }
                }
                Completion::Bare(bare) => {
                    bare.check()?;
                    return Ok(Some(Next::Read));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Ends the queue pair in order.
    pub(crate) fn close(mut self) -> Result<(), rdmacm::Error> {
        self.qp.close(&mut self.cq, link::PATIENCE)
    }
}

fn unknown(len: usize) -> Box<dyn Error> {
    format!(
        "a message of {len} bytes came, rping's have {}",
        RemoteMemory::SIZE
    )
    .into()
}
