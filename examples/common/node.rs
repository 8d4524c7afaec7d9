//! One datagram queue pair of many, as `udaddy` and `mckey` have them.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::time::Duration;

use rdmacm::{
    CmId, Completion, CompletionQueue, Datagram, DatagramPair, DatagramWork, Destination, Error,
    Grh, Peer, Pool, ProtectionDomain, QueuePairInit, UDP_QKEY,
};

use super::tool::{self, Outcome, failure};

/// How long the end of a queue pair may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What messages that cannot be sent end a program with: `EINVAL`.
const INVALID: i32 = -22;

/// How many messages each queue pair sends or gets, and of how many bytes.
#[derive(Clone, Copy)]
pub(crate) struct Messages {
    pub(crate) count: u32,
    pub(crate) size: usize,
}

impl Messages {
    /// Messages of no bytes are none.
    pub(crate) fn new(count: u32, size: usize) -> Self {
        let count = if size == 0 { 0 } else { count };
        Self { count, size }
    }
}

/// A queue pair with what belongs to it. The order is the order of dropping.
pub(crate) struct Node {
    pair: DatagramPair,
    cq: CompletionQueue,
    pool: Pool,
    pd: ProtectionDomain,
    /// Where it sends to, once that is known.
    to: Option<Peer>,
    messages: Messages,
}

impl Node {
    /// Makes the queue pair of `id`, which has its device.
    pub(crate) fn new(id: &CmId, messages: Messages) -> Outcome<Self> {
        let context = id.context()?;
        let port = context.port(id.port_num().unwrap_or(1))?;
        let mtu = port.active_mtu().bytes().unwrap_or(u32::MAX);
        if messages.count > 0 && messages.size > mtu as usize {
            let text = format!(
                "messages of {} bytes do not fit the MTU of {mtu}",
                messages.size
            );
            return Err(failure(tool::status(INVALID), text));
        }
        let depth = messages.count.max(1);
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_with_channel(2 * depth)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(depth)
            .max_recv_wr(depth);
        let pair = id.create_datagram_qp(&pd, &init)?;
        // As many to receive into as to send.
        let pool = pd.pool(2 * depth as usize, Grh::LEN + messages.size)?;
        Ok(Self {
            pair,
            cq,
            pool,
            pd,
            to: None,
            messages,
        })
    }

    pub(crate) fn qp_num(&self) -> u32 {
        self.pair.qp_num()
    }

    /// Posts a receive for every message that is to come.
    pub(crate) fn post_receives(&mut self) -> Result<(), Error> {
        for _ in 0..self.messages.count {
            let buf = self.pool.take().expect("there is one for each receive");
            self.pair.recv.post(buf, 0)?;
        }
        Ok(())
    }

    /// Sends to `there` from now on.
    pub(crate) fn aim(&mut self, there: &Destination) -> Result<(), Error> {
        let ah = self.pd.create_ah(&there.address())?;
        let to = self.pair.send.add_peer(&ah, there.qp_num(), there.qkey())?;
        self.to = Some(to);
        Ok(())
    }

    /// Sends the messages, each with the queue pair's number as its immediate value, which is where answers go to.
    pub(crate) fn send(&mut self) -> Result<(), Error> {
        let Some(to) = self.to else {
            return Ok(());
        };
        let work = DatagramWork::send_with_imm(to, self.qp_num());
        for left in (0..self.messages.count).rev() {
            let mut buf = self.pool.take().expect("there is one for each send");
            buf.set_len(self.messages.size);
            // One completion brings back all.
            let work = if left == 0 { work } else { work.unsignaled() };
            self.pair.send.post(work, buf, 0)?;
        }
        Ok(())
    }

    /// Waits until what was sent has left.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        while !self.pair.send.is_idle() {
            while let Some(completion) = self.cq.poll()? {
                if let Completion::Sent(sent) = completion {
                    sent.check()?;
                }
            }
            if !self.pair.send.is_idle() {
                self.cq.wait(None)?;
            }
        }
        Ok(())
    }

    /// Waits for every message. The sender of the first is who is sent to, where nobody was named before.
    pub(crate) fn receive(&mut self) -> Outcome {
        let mut left = self.messages.count;
        while left > 0 {
            self.cq.wait(None)?;
            while let Some(completion) = self.cq.poll()? {
                let Completion::Datagram(message) = completion else {
                    continue;
                };
                message.check()?;
                if self.to.is_none() {
                    let (address, qp_num) = (message.sender()?, answer_to(&message)?);
                    let ah = self.pd.create_ah(&address)?;
                    self.to = Some(self.pair.send.add_peer(&ah, qp_num, UDP_QKEY)?);
                }
                left = left.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Ends the queue pair in order.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.pair.close(&mut self.cq, PATIENCE)
    }
}

/// The queue pair that answers to a message go to.
fn answer_to(message: &Datagram<'_>) -> Outcome<u32> {
    let unknown = "a message does not say which queue pair to answer to";
    message
        .imm()
        .ok_or_else(|| failure(tool::status(INVALID), unknown))
}
