//! The store, with one shared receive queue, one completion queue and one pool for all clients.

use std::collections::HashMap;
use std::net::SocketAddr;

use rdmacm::{
    Buf, CmId, Completion, CompletionQueue, ConnRequest, Error, Event, EventKind, Pool, QueuePair,
    QueuePairInit, SharedReceiveQueue, Token,
};

use crate::SIZE;
use crate::common::link;

/// Requests and answers that may be under way, of all clients together.
const REQUESTS: u32 = 128;
/// Answers that may be on their way to one client.
const ANSWERS: u32 = 16;
const CLIENTS: u32 = 64;

/// Serves so many clients, or without a count until the program is interrupted.
pub(crate) fn serve(addr: SocketAddr, count: Option<u64>) -> Result<(), Error> {
    let (listener, channel) = link::listen(addr)?;
    let pd = listener.context()?.alloc_pd()?;
    let cq = pd
        .context()
        .create_cq_with_channel(REQUESTS + CLIENTS * ANSWERS)?;
    let mut server = Server {
        clients: HashMap::new(),
        qp_nums: HashMap::new(),
        store: HashMap::new(),
        served: 0,
        srq: pd.create_srq(REQUESTS, 1)?,
        pool: pd.pool(REQUESTS as usize, SIZE)?,
        cq,
    };
    loop {
        while let Some(event) = channel.try_event()? {
            server.on_event(event);
        }
        server.on_completions()?;
        if count == Some(server.served) {
            return Ok(());
        }
        if !server.cq.arm()? {
            link::something(&server.cq, &channel);
        }
    }
}

/// A connection. The order is the order of dropping.
struct Client {
    qp: QueuePair,
    id: CmId,
}

/// Clients by the number of their queue pair, which every completion tells.
struct Server {
    clients: HashMap<u32, Client>,
    qp_nums: HashMap<Token, u32>,
    store: HashMap<Vec<u8>, Vec<u8>>,
    served: u64,
    srq: SharedReceiveQueue,
    pool: Pool,
    cq: CompletionQueue,
}

impl Server {
    fn on_event(&mut self, event: Event) {
        let failed = event.failure().is_some();
        match event.kind {
            EventKind::ConnectRequest(request) => {
                // One failed connection must not stop the server.
                if let Err(error) = self.accept(request) {
                    eprintln!("error: {error}");
                }
            }
            _ if failed => {
                if let Some(qp_num) = self.qp_nums.remove(&event.token) {
                    // Answers that are still under way come back to the pool with the queue pair.
                    self.clients.remove(&qp_num);
                    self.served += 1;
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self, request: ConnRequest) -> Result<(), Error> {
        if self.clients.len() == CLIENTS as usize {
            return request.reject(b"full");
        }
        let init = QueuePairInit::new(&self.cq.handle())
            .srq(&self.srq)
            .max_send_wr(ANSWERS);
        let qp = request.create_qp(self.pool.protection_domain(), &init)?;
        let id = request.accept()?;
        self.qp_nums.insert(id.token(), qp.qp_num());
        self.clients.insert(qp.qp_num(), Client { qp, id });
        Ok(())
    }

    fn on_completions(&mut self) -> Result<(), Error> {
        while let Some(completion) = self.cq.poll()? {
            // The buffer of an answer, and of whatever failed, goes back to the pool.
            let Completion::Received(received) = completion else {
                continue;
            };
            let qp_num = received.qp_num();
            let (Ok(()), Some(client)) = (received.check(), self.clients.get_mut(&qp_num)) else {
                continue;
            };
            let mut buf = received.into_buf();
            answer(&mut self.store, &mut buf);
            if client.qp.send.send(buf, 0).is_err() {
                // It asks faster than it takes answers.
                let _ = client.id.disconnect();
            }
        }
        while let Some(buf) = self.pool.take() {
            self.srq.post(buf, 0)?;
        }
        Ok(())
    }
}

/// Puts the answer where the request was.
fn answer(store: &mut HashMap<Vec<u8>, Vec<u8>>, buf: &mut Buf) {
    let mut parts = buf.splitn(2, |&byte| byte == b'=').map(<[u8]>::to_vec);
    let (key, value) = (parts.next().unwrap_or_default(), parts.next());
    let before = match value {
        Some(value) => store.insert(key, value),
        None => store.get(&key).cloned(),
    };
    buf.fill_from(&before.unwrap_or_default());
}
