//! Connection set-up beside rdma-core's `cmtime`; ours is the example of that name.

use std::{
    fmt,
    fs::{self, File},
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::{
    guest,
    process::Running,
    rows::{Better, Job, Judged, Row},
    runs,
    samples::Who,
};

/// For a server to listen, and for a client to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// The steps of the table, as both programs print them.
const STEPS: [&str; 8] = [
    "create id",
    "bind addr",
    "resolve addr",
    "resolve route",
    "create qp",
    "connect",
    "disconnect",
    "destroy",
];

/// How much longer than C's client with C's server any other pair may take.
const BOUND: f64 = 1.05;
/// How much more memory a connection may take.
const MEMORY_BOUND: f64 = 1.10;

/// Whose program is at one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    C,
    Rust,
}

/// A client and the server that it connects to.
#[derive(Debug, Clone, Copy)]
struct Pair {
    client: Side,
    server: Side,
}

/// What C's client with C's server is compared with.
const PAIRS: [Pair; 3] = [
    Pair {
        client: Side::Rust,
        server: Side::C,
    },
    Pair {
        client: Side::C,
        server: Side::Rust,
    },
    Pair {
        client: Side::Rust,
        server: Side::Rust,
    },
];

const BOTH_C: Pair = Pair {
    client: Side::C,
    server: Side::C,
};
const BOTH_RUST: Pair = PAIRS[2];

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::C => "c",
            Self::Rust => "rust",
        })
    }
}

/// The time of each step and of all, for so many connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    connections: u32,
    pairs: &'static [Pair],
    at_most: Option<u32>,
    /// Whether connect and the whole are held to the bound.
    is_bound: bool,
}

/// The memory of a connection that stands, at each end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory;

pub(crate) fn jobs(quick: bool) -> Vec<Box<dyn Job>> {
    let all = Steps {
        connections: 1000,
        pairs: &PAIRS,
        at_most: None,
        is_bound: true,
    };
    let mut jobs: Vec<Box<dyn Job>> = vec![Box::new(all)];
    if !quick {
        jobs.push(Box::new(Steps {
            connections: 100,
            is_bound: false,
            ..all
        }));
        // A run takes half a minute.
        jobs.push(Box::new(Steps {
            connections: 4000,
            pairs: &PAIRS[2..],
            at_most: Some(3),
            is_bound: false,
        }));
        jobs.push(Box::new(Memory));
    }
    jobs
}

impl Job for Steps {
    fn rows(&self) -> Vec<Row> {
        let row = |pair: Pair, step: &str| Row {
            name: format!(
                "cmtime {} {}-{} {step}",
                self.connections, pair.client, pair.server
            ),
            unit: "ms",
            better: Better::Less,
            judged: if self.is_bound && ["connect", "whole"].contains(&step) {
                Judged::Pairs { bound: BOUND }
            } else {
                Judged::Not
            },
        };
        let of_pair = |pair| {
            let steps = STEPS.into_iter().chain(["whole"]);
            steps.map(move |step| row(pair, step))
        };
        self.pairs.iter().copied().flat_map(of_pair).collect()
    }

    fn conditions(&self) -> String {
        format!(
            "cmtime    {:>5} connections, client-server, the server started anew for each run",
            self.connections
        )
    }

    fn at_most(&self) -> Option<u32> {
        self.at_most
    }

    fn run(&self, place: &runs::Args, who: Who, port: u16) -> Result<Vec<f64>> {
        let run = |pair| -> Result<Vec<f64>> {
            let server = pair_server(place, pair, port)?;
            let mut client = command(place, pair.client, port, Some(self.connections));
            let mut client = Running::start_anywhere(&mut client)?;
            let said = client.end("client", Instant::now() + PATIENCE)?;
            drop(server);
            steps(&said)
        };
        match who {
            // C's is what each of the pairs is compared with.
            Who::C | Who::Again => Ok(run(BOTH_C)?.repeat(self.pairs.len())),
            Who::Rust => {
                let mut figures = Vec::new();
                for pair in self.pairs {
                    figures.extend(run(*pair)?);
                }
                Ok(figures)
            }
        }
    }
}

impl Job for Memory {
    fn rows(&self) -> Vec<Row> {
        let row = |side: &str| Row {
            name: format!("cmtime memory {side}"),
            unit: "KiB",
            better: Better::Less,
            judged: Judged::Best {
                bound: MEMORY_BOUND,
            },
        };
        vec![row("server"), row("client")]
    }

    fn conditions(&self) -> String {
        format!(
            "cmtime memory: resident for each connection that stands, of those from {LITTLE} to {MUCH}"
        )
    }

    fn at_most(&self) -> Option<u32> {
        // It is nearly the same each time.
        Some(1)
    }

    fn run(&self, place: &runs::Args, who: Who, port: u16) -> Result<Vec<f64>> {
        let pair = match who {
            Who::C | Who::Again => BOTH_C,
            Who::Rust => BOTH_RUST,
        };
        let little = resident(place, pair, port, LITTLE)?;
        let much = resident(place, pair, port, MUCH)?;
        let each = |(much, little): (f64, f64)| (much - little) / f64::from(MUCH - LITTLE);
        Ok(much.into_iter().zip(little).map(each).collect())
    }
}

const LITTLE: u32 = 100;
const MUCH: u32 = 1000;

/// Starts the server of a pair, and waits until it listens.
fn pair_server(place: &runs::Args, pair: Pair, port: u16) -> Result<Running> {
    let mut server = Running::start_anywhere(&mut command(place, pair.server, port, None))?;
    server.listens(port, Instant::now() + PATIENCE)?;
    Ok(server)
}

/// The command of a client that makes so many connections, or of a server.
fn command(place: &runs::Args, side: Side, port: u16, connections: Option<u32>) -> Command {
    let mut command = Command::new(match side {
        Side::C => guest::program("cmtime"),
        Side::Rust => guest::ours(guest::CMTIME, &place.cmtime),
    });
    let mut option = |name: &str, value: &dyn ToString| {
        command.arg(name).arg(value.to_string());
    };
    option("-p", &port);
    option("-b", &place.address);
    if let Some(connections) = connections {
        option("-s", &place.address);
        option("-c", &connections);
    }
    command
}

/// The total of each step, in milliseconds, and their sum, out of what a client has said.
fn steps(said: &str) -> Result<Vec<f64>> {
    for line in said.lines() {
        // So both programs tell that one has failed.
        ensure!(
            !line.starts_with("connection ") && !line.contains("error"),
            "a connection has failed: {line}"
        );
    }
    let total = |step: &str| -> Option<f64> {
        let row = said.lines().find_map(|line| {
            let (name, row) = line.split_once(':')?;
            (name.trim_end() == step).then_some(row)
        });
        row?.split_whitespace().next()?.parse().ok()
    };
    let mut totals = Vec::new();
    for step in STEPS {
        totals.push(total(step).with_context(|| format!("the client has told no {step}: {said}"))?);
    }
    totals.push(totals.iter().sum());
    Ok(totals)
}

/// The resident memory of server and client, in KiB, while all connections stand.
///
/// The client says before each step what it does. It goes on to the next while one line is not read, and waits to write the
/// second: so it waits between connect and disconnect.
fn resident(place: &runs::Args, pair: Pair, port: u16, connections: u32) -> Result<Vec<f64>> {
    let deadline = Instant::now() + PATIENCE;
    let server = pair_server(place, pair, port)?;
    let (lines, end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT)?;
    // Rounded up to a page, which holds one write.
    fcntl_setpipe_size(&end, 1)?;
    let mut lines = File::from(lines);
    let plain = command(place, pair.client, port, Some(connections));
    // C's program would keep its lines to itself.
    let mut client = Command::new("stdbuf");
    client.arg("-oL").arg(plain.get_program());
    client.args(plain.get_args()).stdout(Stdio::from(end));
    let mut running = Running::start_saying(&mut client)?;
    drop(client);
    let mut line = [0; 4096];
    loop {
        let length = lines.read(&mut line)?;
        ensure!(length > 0, "the client has ended before it was connected");
        if line.starts_with(b"creating q") {
            break;
        }
    }
    while !waits_to_write(running.id())? {
        if Instant::now() > deadline {
            bail!("the client does not connect");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let figures = vec![rss(server.id())?, rss(running.id())?];
    while lines.read(&mut line)? > 0 {}
    running.end("client", deadline)?;
    drop(server);
    Ok(figures)
}

fn waits_to_write(process: u32) -> Result<bool> {
    let place = fs::read_to_string(format!("/proc/{process}/wchan"))?;
    Ok(place.contains("pipe"))
}

/// What a process has in memory, in KiB, counted by the kernel page by page.
fn rss(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text =
        fs::read_to_string(Path::new(&path)).with_context(|| format!("cannot read {path}"))?;
    rss_of(&text).with_context(|| format!("no Rss in {path}"))
}

fn rss_of(text: &str) -> Option<f64> {
    let row = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    row.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: &str = "\
creating id
binding source address
resolving address
resolving route
creating qp
connecting
disconnecting
destroying id
step              total ms     max ms     min us  us / conn
create id    :       20.02       5.10       6.00      20.02
bind addr    :       20.97       2.96      11.00      20.97
resolve addr :       71.25      34.02    3243.00      71.25
resolve route:       66.41      39.25    3829.00      66.41
create qp    :      709.98     169.49     131.00     709.98
connect      :     7027.88    6185.80  453496.00    7027.88
disconnect   :     3289.55    1450.25    2262.00    3289.55
destroy      :       13.57       0.70       9.00      13.57
";

    #[test]
    fn the_totals_are_found_and_summed() {
        let found = steps(C).unwrap();
        assert_eq!(found[..2], [20.02, 20.97]);
        assert_eq!((found[5], found.len()), (7027.88, 9));
        assert!((found[8] - 11219.63).abs() < 0.001, "{found:?}");
        let ours = C.replace("creating id", "creating ids");
        assert_eq!(steps(&ours).unwrap(), found);
    }

    #[test]
    fn a_failed_connection_or_a_missing_step_is_an_error() {
        let failed = format!("connection 3: rdma_connect: refused\n{C}");
        assert!(steps(&failed).is_err());
        let failed = format!("event: RDMA_CM_EVENT_REJECTED, error: 8\n{C}");
        assert!(steps(&failed).is_err());
        let short = C.replace("destroy      :", "destroy      ");
        let told = steps(&short).unwrap_err().to_string();
        assert!(told.starts_with("the client has told no destroy"), "{told}");
    }

    #[test]
    fn connect_and_the_whole_are_judged_with_a_thousand() {
        let judged = |job: &dyn Job| -> Vec<String> {
            let rows = job.rows().into_iter();
            rows.filter(|row| row.judged != Judged::Not)
                .map(|row| row.name)
                .collect()
        };
        let all = jobs(false);
        assert_eq!(
            judged(all[0].as_ref()),
            [
                "cmtime 1000 rust-c connect",
                "cmtime 1000 rust-c whole",
                "cmtime 1000 c-rust connect",
                "cmtime 1000 c-rust whole",
                "cmtime 1000 rust-rust connect",
                "cmtime 1000 rust-rust whole",
            ]
        );
        assert_eq!(judged(all[1].as_ref()), [""; 0]);
        assert_eq!(judged(all[3].as_ref()).len(), 2);
        assert_eq!(jobs(true).len(), 1);
    }

    #[test]
    fn the_resident_memory_is_found() {
        let text = "\
55d0-7ffe ---p 00000000 00:00 0                  [rollup]
Rss:               12576 kB
Pss:               10748 kB
";
        assert_eq!(rss_of(text), Some(12576.0));
        assert_eq!(rss_of("Pss: 1 kB"), None);
    }
}
