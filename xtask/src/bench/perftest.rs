//! Latency and bandwidth beside perftest's programs; ours is `benches/perf`.

use std::{
    net::IpAddr,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    guest,
    process::Running,
    rows::{Better, Job, Judged, Row},
    runs,
    samples::Who,
};

/// For a server to listen, and for a pair to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The processors that the two sides are bound to.
const SERVER: usize = 0;
const CLIENT: usize = 1;

/// A test of perftest, and of ours under the same name.
#[derive(Debug, Clone)]
pub(crate) struct Perftest {
    verb: Verb,
    size: u32,
    iters: u32,
    /// How many requests may be outstanding.
    depth: u32,
    /// What each run gives.
    gives: &'static [Figure],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Send,
    Write,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// The median time of a message, in microseconds.
    Latency,
    /// MiB per second.
    Bandwidth,
    /// Messages per second.
    Rate,
}

/// The sizes, with how many messages take a fifth of a second or so: for a latency and for a bandwidth.
const SIZES: &[(u32, u32, u32)] = &[
    (2, 5000, 5000),
    (SMALL, 5000, 5000),
    (4096, 1500, 2000),
    (65536, 64, 128),
    (1 << 20, 8, 10),
];

/// The size whose rate of messages is measured too.
const SMALL: u32 = 64;

/// How many messages of a bandwidth may be outstanding: perftest's own choice.
const DEPTH: u32 = 128;

/// The other depths that the rate of messages is measured with.
const DEPTHS: &[(u32, u32)] = &[(1, 5000), (16, 5000)];

/// What a quick look is at.
const QUICK: &[u32] = &[SMALL, 65536];

/// All tests, or those of a quick look.
pub(crate) fn jobs(quick: bool) -> Vec<Perftest> {
    let mut jobs = Vec::new();
    for latency in [true, false] {
        for verb in [Verb::Send, Verb::Write, Verb::Read] {
            for (size, few, many) in SIZES.iter().copied() {
                if quick && !QUICK.contains(&size) {
                    continue;
                }
                jobs.push(if latency {
                    Perftest::latency(verb, size, few)
                } else {
                    Perftest::bandwidth(verb, size, many)
                });
            }
        }
    }
    if !quick {
        for (depth, iters) in DEPTHS.iter().copied() {
            jobs.push(Perftest::rate(depth, iters));
        }
    }
    jobs
}

impl Perftest {
    fn latency(verb: Verb, size: u32, iters: u32) -> Self {
        Self {
            verb,
            size,
            iters,
            depth: 1,
            gives: &[Figure::Latency],
        }
    }

    fn bandwidth(verb: Verb, size: u32, iters: u32) -> Self {
        let both = verb == Verb::Send && size == SMALL;
        Self {
            verb,
            size,
            iters,
            depth: DEPTH.min(iters),
            gives: if both {
                &[Figure::Bandwidth, Figure::Rate]
            } else {
                &[Figure::Bandwidth]
            },
        }
    }

    /// Of sends, for which both sides work. (`ib_write_bw` sleeps a second in every run, too.)
    fn rate(depth: u32, iters: u32) -> Self {
        Self {
            verb: Verb::Send,
            size: SMALL,
            iters,
            depth,
            gives: &[Figure::Rate],
        }
    }

    fn is_latency(&self) -> bool {
        self.gives == [Figure::Latency]
    }

    /// Its name, as ours; perftest's has `ib_` before it.
    fn name(&self) -> String {
        let verb = match self.verb {
            Verb::Send => "send",
            Verb::Write => "write",
            Verb::Read => "read",
        };
        format!("{verb}_{}", if self.is_latency() { "lat" } else { "bw" })
    }

    fn row(&self, figure: Figure) -> Row {
        let (unit, better, bound) = match figure {
            Figure::Latency => ("us", Better::Less, 1.05),
            Figure::Bandwidth => ("MiB/s", Better::More, 0.95),
            Figure::Rate => ("msg/s", Better::More, 0.95),
        };
        let name = match figure {
            Figure::Latency | Figure::Bandwidth => format!("{} {}", self.name(), self.size),
            Figure::Rate => format!("send_rate {} depth {}", self.size, self.depth),
        };
        Row {
            name,
            unit,
            better,
            judged: Judged::Best { bound },
        }
    }

    /// The command of one side.
    fn command(&self, who: Who, port: u16, to: Option<IpAddr>) -> Command {
        let mut command = match who {
            Who::Rust => {
                let mut command = Command::new(guest::program("perf"));
                command.arg(self.name());
                command
            }
            Who::C | Who::Again => {
                let mut command = Command::new(guest::program(&format!("ib_{}", self.name())));
                // Beside -R the GID does not matter; told one, perftest does not read the device's table, which takes a second.
                command.args(["-R", "-F", "-x", "0"]);
                if !self.is_latency() {
                    // A completion for each message, and more decimals than in the table.
                    command.args(["-Q", "1", "--output", "bandwidth"]);
                } else if self.verb != Verb::Read {
                    command.args(["-I", "0"]);
                }
                command
            }
        };
        let mut option = |name: &str, value: &dyn ToString| {
            command.arg(name).arg(value.to_string());
        };
        option("-p", &port);
        option("-s", &self.size);
        option("-n", &self.iters);
        // For a latency of perftest's it is 1, and cannot be said.
        if !self.is_latency() {
            option("-t", &self.depth);
        }
        if let Some(to) = to {
            command.arg(to.to_string());
        }
        command
    }

    /// What the client has measured, in microseconds or MiB per second.
    fn measured(&self, who: Who, said: &str) -> Option<f64> {
        if self.is_latency() && who != Who::Rust {
            return typical(said);
        }
        // `ib_read_bw` draws a line before it.
        said.lines().last()?.trim().parse().ok()
    }
}

impl Job for Perftest {
    fn rows(&self) -> Vec<Row> {
        self.gives.iter().map(|figure| self.row(*figure)).collect()
    }

    fn conditions(&self) -> String {
        let reads = if self.verb == Verb::Read {
            ", as many at a time as the device answers"
        } else {
            ""
        };
        format!(
            "{:<9} {:>7} bytes, {:>4} messages, {:>3} outstanding{reads}, each signalled, inline size 0, server on processor {SERVER}, client on {CLIENT}",
            self.name(),
            self.size,
            self.iters,
            self.depth
        )
    }

    fn run(&self, place: &runs::Args, who: Who, port: u16) -> Result<Vec<f64>> {
        let deadline = Instant::now() + PATIENCE;
        let mut server = Running::start(&mut self.command(who, port, None), SERVER)?;
        server.listens(port, deadline)?;
        let mut client = Running::start(&mut self.command(who, port, Some(place.address)), CLIENT)?;
        let said = client.end("client", deadline)?;
        server.end("server", deadline)?;
        let measured = self
            .measured(who, &said)
            .with_context(|| format!("the client has not said what it measured: {said}"))?;
        let figure = |figure: &Figure| match figure {
            Figure::Latency | Figure::Bandwidth => measured,
            Figure::Rate => measured * f64::from(1 << 20) / f64::from(self.size),
        };
        Ok(self.gives.iter().map(figure).collect())
    }
}

/// The figure of perftest's table of latencies, which is a line of names and one of numbers.
fn typical(said: &str) -> Option<f64> {
    let mut lines = said
        .lines()
        .skip_while(|line| !line.contains("t_typical[usec]"));
    lines.nth(1)?.split_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn the_figure_is_found_in_what_perftest_says() {
        let table = "\
 Data ex. method : rdma_cm
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          14.33          24304.86      15.31    \t       24.40       \t119.60 \t\t125.54  \t\t24304.86
---------
";
        let latency = Perftest::latency(Verb::Send, 64, 5000);
        assert_eq!(latency.measured(Who::C, table), Some(15.31));
        assert_eq!(latency.measured(Who::Rust, "15.312\n"), Some(15.312));
        assert_eq!(latency.measured(Who::C, "15.312\n"), None);
        let bandwidth = Perftest::bandwidth(Verb::Send, 64, 5000);
        assert_eq!(
            bandwidth.measured(Who::Again, "----\n0.295312\n"),
            Some(0.295312)
        );
        assert_eq!(bandwidth.measured(Who::C, table), None);
    }

    fn line(test: &Perftest, who: Who, to: Option<IpAddr>) -> String {
        let command = test.command(who, 7, to);
        let words: Vec<&OsStr> = [command.get_program()]
            .into_iter()
            .chain(command.get_args())
            .collect();
        words.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn both_programs_are_told_the_same() {
        let server = Some(IpAddr::from([10, 9, 0, 1]));
        let bandwidth = Perftest::bandwidth(Verb::Send, 65536, 192);
        assert_eq!(
            line(&bandwidth, Who::Rust, None),
            "perf send_bw -p 7 -s 65536 -n 192 -t 128"
        );
        assert_eq!(
            line(&bandwidth, Who::C, server),
            "ib_send_bw -R -F -x 0 -Q 1 --output bandwidth -p 7 -s 65536 -n 192 -t 128 10.9.0.1"
        );
        let latency = Perftest::latency(Verb::Write, 64, 5000);
        assert_eq!(
            line(&latency, Who::Rust, server),
            "perf write_lat -p 7 -s 64 -n 5000 10.9.0.1"
        );
        assert_eq!(
            line(&latency, Who::Again, None),
            "ib_write_lat -R -F -x 0 -I 0 -p 7 -s 64 -n 5000"
        );
    }

    #[test]
    fn there_is_a_row_for_every_verb_and_size_and_depth() {
        let names = |quick| -> Vec<String> {
            let rows = jobs(quick).iter().flat_map(Job::rows).collect::<Vec<_>>();
            rows.into_iter().map(|row| row.name).collect()
        };
        let all = names(false);
        assert_eq!(all.len(), 33);
        for verb in ["send", "write", "read"] {
            for test in ["lat", "bw"] {
                for size in [2, 64, 4096, 65536, 1_048_576] {
                    assert!(all.contains(&format!("{verb}_{test} {size}")));
                }
            }
        }
        for depth in [1, 16, 128] {
            assert!(all.contains(&format!("send_rate 64 depth {depth}")));
        }
        assert_eq!(names(true).len(), 13);
    }
}
