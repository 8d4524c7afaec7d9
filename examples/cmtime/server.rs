//! The server: reads every event that there is, then answers a few.

use std::collections::HashMap;
use std::sync::mpsc;

use rdmacm::{CmId, ConnRequest, Error, EventChannel, EventKind, QueuePair, Token};

use crate::Args;
use crate::events::{self, Format};
use crate::qp::Queues;
use crate::tool::Outcome;

/// How many are answered before events are looked for again.
const A_FEW: usize = 16;

/// What is to do for an event. An end comes behind the request that it belongs to.
enum Job {
    Accept(ConnRequest),
    End(Token),
}

/// The connections. The order is the order of dropping: queue pairs go before their queues.
#[derive(Default)]
struct Conns {
    /// Each keeps its id. They are boxed, so that a table with room for more has no room for whole queue pairs.
    qps: HashMap<Token, Box<QueuePair>>,
    queues: Queues,
}

/// Serves with one thread. A request keeps its event, which was allocated by the thread that read it, until it was answered. A
/// second thread would make what an answer needs out of memory of its own, and that of the events, a third of a kibibyte for each
/// connection of a burst, would lie idle.
pub(crate) fn run(args: &Args) -> Outcome {
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel)?;
    let addr = events::local(args.bind.as_deref(), args.port, Format::Name)?;
    listener.bind_addr(addr)?;
    listener.listen(0)?;
    println!("listening on {addr}");
    let mut conns = Conns::default();
    // A queue in blocks, each of which is freed when it was answered.
    let (later, jobs) = mpsc::channel();
    let mut is_idle = true;
    loop {
        // Requests that are not read count against the listener's backlog, and the kernel drops those above it.
        let event = if is_idle {
            channel.wait(None)?
        } else {
            channel.try_event()?
        };
        if let Some(event) = event {
            is_idle = false;
            let job = match event.kind {
                EventKind::ConnectRequest(request) => Job::Accept(request),
                EventKind::Disconnected(_) => Job::End(event.token),
                _ => continue,
            };
            later.send(job)?;
            continue;
        }
        is_idle = true;
        for job in jobs.try_iter().take(A_FEW) {
            is_idle = false;
            if let Err(error) = conns.answer(job) {
                eprintln!("error: {error}");
            }
        }
    }
}

impl Conns {
    fn answer(&mut self, job: Job) -> Result<(), Error> {
        match job {
            Job::Accept(request) => self.accept(request),
            // The peer was answered when this was read.
            Job::End(token) => match self.qps.remove(&token) {
                Some(qp) => qp.destroy(),
                None => Ok(()),
            },
        }
    }

    /// Accepts. A failure rejects.
    fn accept(&mut self, request: ConnRequest) -> Result<(), Error> {
        let context = request.context()?;
        let create = |pd: &_, init: &_| request.create_qp(pd, init);
        let qp = self.queues.create_qp(&context, create)?;
        let id = request.accept()?;
        self.qps.insert(id.token(), Box::new(qp));
        Ok(())
    }
}
