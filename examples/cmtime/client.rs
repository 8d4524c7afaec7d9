//! The client: each step for all connections, and then the next one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdmacm::{CmId, ConnParam, Error, Event, EventChannel, EventKind, QueuePair, RetryCount};

use crate::Args;
use crate::events::check;
use crate::qp::Queues;
use crate::table::{self, Clock, STEPS, Step, Times, Totals};
use crate::tool::{self, Outcome};

/// A connection, as both threads see it. Its times are beside it.
struct Conn {
    id: CmId,
    failed: AtomicBool,
    /// How often a resolution that fails is still tried again.
    retries: AtomicU8,
}

/// What the thread that starts the steps shares with the one that reads events.
struct Run<'r> {
    /// In the order of their tokens, by which events name them.
    conns: Vec<Conn>,
    times: &'r [Times],
    clock: Clock,
    /// How many connections have ended each step.
    ended: [AtomicUsize; STEPS],
    /// How many the starter waits for, once it does.
    wanted: AtomicUsize,
    starter: Thread,
    here: Option<SocketAddr>,
    there: SocketAddr,
    timeout: Duration,
}

pub(crate) fn run(args: &Args, server: &str) -> Outcome {
    let channel = EventChannel::new()?;
    let there = tool::host(server, args.port)?;
    let here = args.bind.as_deref().map(|host| tool::host(host, 0));
    let here = here.transpose()?;
    let clock = Clock::new();
    let times: Vec<_> = (0..args.connections).map(|_| Times::default()).collect();
    let mut totals = Totals::default();

    println!("creating ids");
    let start = Instant::now();
    let mut conns = Vec::with_capacity(args.connections);
    for times in &times {
        times.start(Step::CreateId, clock);
        conns.push(Conn {
            id: CmId::new(&channel)?,
            failed: AtomicBool::new(false),
            retries: AtomicU8::new(0),
        });
        times.end(Step::CreateId, clock);
    }
    totals[Step::CreateId as usize] = start.elapsed();

    conns.sort_by_key(|conn| conn.id.token());
    let run = Run {
        conns,
        times: &times,
        clock,
        ended: Default::default(),
        wanted: AtomicUsize::new(usize::MAX),
        starter: thread::current(),
        here,
        there,
        timeout: Duration::from_millis(args.timeout),
    };
    // They keep the device in use until the ids are gone.
    let mut queues = Queues::default();
    let last = thread::scope(|scope| {
        scope.spawn(|| run.read(&channel));
        let last = run.connect(args, &mut queues, &mut totals);
        // Ends the reader.
        channel.wake();
        last
    });

    println!("destroying ids");
    let start = Instant::now();
    for (conn, times) in run.conns.into_iter().zip(&times) {
        times.start(Step::Destroy, clock);
        drop(conn.id);
        times.end(Step::Destroy, clock);
    }
    totals[Step::Destroy as usize] = start.elapsed();
    table::print(&totals, &times, here.is_some());
    Ok(last?)
}

impl Run<'_> {
    /// Goes through the steps, and gives the result of the last call that binds, resolves, creates or connects.
    fn connect(&self, args: &Args, queues: &mut Queues, totals: &mut Totals) -> Result<(), Error> {
        let mut last = Ok(());
        if let Some(here) = self.here {
            println!("binding");
            let total = self.each(Step::Bind, &mut last, |_, conn| conn.id.bind_addr(here));
            totals[Step::Bind as usize] = total;
        }
        println!("resolving addresses");
        let total = self.each(Step::ResolveAddr, &mut last, |_, conn| {
            conn.retries.store(args.retries, Ordering::Relaxed);
            conn.id.resolve_addr(self.here, self.there, self.timeout)
        });
        totals[Step::ResolveAddr as usize] = total;
        println!("resolving routes");
        let total = self.each(Step::ResolveRoute, &mut last, |_, conn| {
            conn.retries.store(args.retries, Ordering::Relaxed);
            conn.id.resolve_route(self.timeout)
        });
        totals[Step::ResolveRoute as usize] = total;

        println!("creating queue pairs");
        let mut qps: Vec<Option<QueuePair>> = self.conns.iter().map(|_| None).collect();
        let total = self.each(Step::CreateQp, &mut last, |at, conn| {
            let context = conn.id.context()?;
            let create = |pd: &_, init: &_| conn.id.create_qp(pd, init);
            qps[at] = Some(queues.create_qp(&context, create)?);
            Ok(())
        });
        totals[Step::CreateQp as usize] = total;

        println!("connecting");
        let count = RetryCount::new(args.retries).unwrap_or_default();
        let total = self.each(Step::Connect, &mut last, |_, conn| {
            let param = ConnParam::new().responder_resources(1).initiator_depth(1);
            conn.id.connect(param.retry_count(count))
        });
        totals[Step::Connect as usize] = total;

        println!("disconnecting");
        let mut ignored = Ok(());
        let total = self.each(Step::Disconnect, &mut ignored, |at, conn| {
            conn.id.disconnect()?;
            qps[at].take().map_or(Ok(()), QueuePair::destroy)
        });
        totals[Step::Disconnect as usize] = total;
        last
    }

    /// Does a step for every connection that has not failed, waits until it has ended for all, and gives the time it took.
    fn each(
        &self,
        step: Step,
        last: &mut Result<(), Error>,
        mut call: impl FnMut(usize, &Conn) -> Result<(), Error>,
    ) -> Duration {
        let start = Instant::now();
        let by_event = !matches!(step, Step::Bind | Step::CreateQp);
        let mut started = 0;
        for (at, conn) in self.conns.iter().enumerate() {
            if conn.failed.load(Ordering::Relaxed) {
                continue;
            }
            self.times[at].start(step, self.clock);
            *last = call(at, conn);
            if let Err(error) = last {
                eprintln!("error: {error}");
                conn.failed.store(true, Ordering::Relaxed);
            } else if by_event {
                started += 1;
            } else {
                self.times[at].end(step, self.clock);
            }
        }
        let ended = &self.ended[step as usize];
        self.wanted.store(started, Ordering::SeqCst);
        while ended.load(Ordering::SeqCst) < started {
            thread::park();
        }
        self.wanted.store(usize::MAX, Ordering::SeqCst);
        start.elapsed()
    }

    /// Reads events until there is a wake.
    fn read(&self, channel: &EventChannel) {
        loop {
            match channel.wait(None) {
                Ok(Some(event)) => self.take(&event),
                Ok(None) => return,
                Err(error) => {
                    // The starter waits for what can no longer be read.
                    eprintln!("error: {error}");
                    std::process::exit(255);
                }
            }
        }
    }

    /// Starts a resolution that has failed once more, if it may.
    fn retries(&self, conn: &Conn, kind: &EventKind) -> bool {
        let again = || match kind {
            EventKind::AddrError(_) => {
                Some(conn.id.resolve_addr(self.here, self.there, self.timeout))
            }
            EventKind::RouteError(_) => Some(conn.id.resolve_route(self.timeout)),
            _ => None,
        };
        let left = conn.retries.load(Ordering::Relaxed);
        let is_on = left > 0 && again().is_some_and(|again| again.is_ok());
        if is_on {
            conn.retries.store(left - 1, Ordering::Relaxed);
        }
        is_on
    }

    /// Ends the step that an event is the end of.
    fn take(&self, event: &Event) {
        let token = |conn: &Conn| conn.id.token();
        let Ok(at) = self.conns.binary_search_by_key(&event.token, token) else {
            return;
        };
        let conn = &self.conns[at];
        if self.retries(conn, &event.kind) {
            return;
        }
        let step = match event.kind {
            EventKind::AddrResolved | EventKind::AddrError(_) => Step::ResolveAddr,
            EventKind::RouteResolved | EventKind::RouteError(_) => Step::ResolveRoute,
            EventKind::Established(_)
            | EventKind::ConnectError(_)
            | EventKind::Unreachable(_)
            | EventKind::Rejected(_) => Step::Connect,
            EventKind::Disconnected(_) => Step::Disconnect,
            _ => return,
        };
        self.times[at].end(step, self.clock);
        if let Err(error) = check(event) {
            println!("connection {at}: {error}");
            conn.failed.store(true, Ordering::Relaxed);
        }
        let ended = self.ended[step as usize].fetch_add(1, Ordering::SeqCst) + 1;
        if ended >= self.wanted.load(Ordering::SeqCst) {
            self.starter.unpark();
        }
    }
}
