//! The store, with one shared receive queue, one completion queue and one pool for all clients.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::{
    CmId, Completion, CompletionQueue, ConnRequest, Error, ErrorKind, Event, EventKind, Pool,
    QueuePair, QueuePairInit, SharedReceiveQueue, Token,
};

use crate::common::link;
use crate::{SIZE, answer};

/// Requests that may wait for an answer, of all clients together.
const REQUESTS: u32 = 128;
/// Answers that may be on their way to one client.
const ANSWERS: u32 = 16;
const CLIENTS: u32 = 64;
/// For a queue pair to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// Serves so many clients, or without a count until the program is interrupted.
pub(crate) fn serve(addr: SocketAddr, count: Option<u64>) -> Result<(), Error> {
    let (listener, channel) = link::listen(addr)?;
    let pd = listener.context()?.alloc_pd()?;
    let all = REQUESTS + CLIENTS * ANSWERS;
    let cq = pd.context().create_cq_with_channel(all)?;
    let mut server = Server {
        clients: HashMap::new(),
        numbers: HashMap::new(),
        store: HashMap::new(),
        served: 0,
        srq: pd.create_srq(REQUESTS, 1)?,
        // Clients that take no answers leave the others enough for theirs.
        pool: pd.pool(all as usize, SIZE)?,
        cq,
    };
    loop {
        while let Some(event) = channel.try_event()? {
            server.on_event(event);
            // Before a further client has the number of one that has gone.
            server.on_completions()?;
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
    clients: HashMap<u64, Client>,
    numbers: HashMap<Token, u64>,
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
                let number = self.numbers.remove(&event.token);
                if let Some(client) = number.and_then(|number| self.clients.remove(&number)) {
                    // Answers come back to the pool, and requests that were not seen wait for the next poll.
                    if let Err(error) = client.qp.close(&mut self.cq, PATIENCE) {
                        eprintln!("error: {error}");
                    }
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
        let number = qp.qp_num().into();
        self.numbers.insert(id.token(), number);
        self.clients.insert(number, Client { qp, id });
        Ok(())
    }

    fn on_completions(&mut self) -> Result<(), Error> {
        while let Some(completion) = self.cq.poll()? {
            let (number, checked, request) = match completion {
                Completion::Received(received) => {
                    let (number, checked) = (received.qp_num().into(), received.check());
                    (number, checked, Some(received.into_buf()))
                }
                // The buffer of an answer goes back to the pool.
                Completion::Sent(sent) => (sent.user(), sent.check(), None),
                _ => continue,
            };
            let Some(client) = self.clients.get_mut(&number) else {
                continue;
            };
            let sent = checked.and_then(|()| match request {
                Some(mut buf) => {
                    answer(&mut self.store, &mut buf);
                    Ok(client.qp.send.send(buf, number)?)
                }
                None => Ok(()),
            });
            if let Err(error) = sent {
                // It takes no answers, or is gone without a word. Its end is an event.
                eprintln!("error: {error}");
                let _ = client.id.disconnect();
            }
        }
        while let Some(buf) = self.pool.take() {
            match self.srq.post(buf, 0) {
                Ok(()) => {}
                Err(full) if full.error().kind() == ErrorKind::QueueFull => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
