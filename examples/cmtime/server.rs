//! The server: one thread reads events, the other answers.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rdmacm::{CmId, ConnRequest, Error, EventChannel, EventKind, QueuePair, Token};

use crate::Args;
use crate::events::{self, Format};
use crate::qp::Queues;
use crate::tool::Outcome;

/// What the reader hands over. An end comes behind the request that it belongs to.
enum Job {
    Accept(ConnRequest),
    End(Token),
}

pub(crate) fn run(args: &Args) -> Outcome {
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel)?;
    let addr = events::local(args.bind.as_deref(), args.port, Format::Name)?;
    listener.bind_addr(addr)?;
    listener.listen(0)?;
    println!("listening on {addr}");
    let (sender, jobs) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| answer(jobs));
        let sender = sender;
        loop {
            let Some(event) = channel.wait(None)? else {
                continue;
            };
            let job = match event.kind {
                EventKind::ConnectRequest(request) => Job::Accept(request),
                EventKind::Disconnected(_) => Job::End(event.id),
                _ => continue,
            };
            // The receiver ends after the sender.
            let _ = sender.send(job);
        }
    })
}

fn answer(jobs: Receiver<Job>) {
    // Queue pairs go before their queues, and ids after their queue pairs.
    let mut queues = Queues::default();
    let mut conns = HashMap::new();
    for job in jobs {
        let result = match job {
            Job::Accept(request) => {
                let token = request.token();
                accept(request, &mut queues).map(|conn| {
                    conns.insert(token, conn);
                })
            }
            Job::End(token) => conns.remove(&token).map_or(Ok(()), |conn| end(*conn)),
        };
        if let Err(error) = result {
            eprintln!("error: {error}");
        }
    }
}

/// A connection. It is boxed, so that a table with room for more has no room for whole queue pairs.
type Conn = Box<(QueuePair, CmId)>;

/// Accepts. A failure rejects.
fn accept(request: ConnRequest, queues: &mut Queues) -> Result<Conn, Error> {
    let context = request.context()?;
    let qp = queues.create_qp(&context, |pd, init| request.create_qp(pd, init))?;
    Ok(Box::new((qp, request.accept()?)))
}

/// Ends a connection that the peer has ended: it was answered when that was read.
fn end((qp, _id): (QueuePair, CmId)) -> Result<(), Error> {
    qp.destroy()
}
