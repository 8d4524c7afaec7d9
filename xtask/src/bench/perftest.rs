//! Latency and bandwidth beside perftest's programs; ours is `benches/perf`.

use std::{
    net::IpAddr,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    process::Running,
    rows::{Better, Job, Judged, Row},
    runs,
    samples::Who,
};

/// For a server to listen, and for a pair to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A test of perftest, and of ours under the same name.
#[derive(Debug, Clone)]
pub(crate) struct Perftest {
    /// Without the `ib_`.
    test: &'static str,
    kind: Kind,
    size: u32,
    iters: u32,
    /// How many requests may be outstanding.
    depth: u32,
    /// Whether perftest has to be told that nothing is inline.
    may_inline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Latency,
    Bandwidth,
}

impl Perftest {
    const fn latency(test: &'static str, may_inline: bool) -> Self {
        Self {
            test,
            kind: Kind::Latency,
            size: 64,
            iters: 5000,
            depth: 1,
            may_inline,
        }
    }

    const fn bandwidth(test: &'static str) -> Self {
        Self {
            test,
            kind: Kind::Bandwidth,
            size: 65536,
            iters: 300,
            depth: 128,
            may_inline: false,
        }
    }

    /// The command of one side, bound to a processor of its own.
    fn command(&self, place: &runs::Args, who: Who, port: u16, to: Option<IpAddr>) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", if to.is_some() { "1" } else { "0" }]);
        match who {
            Who::Rust => {
                command.arg(&place.perf).arg(self.test);
            }
            Who::C | Who::Again => {
                command.arg(format!("ib_{}", self.test)).args(["-R", "-F"]);
                // Beside -R the GID does not matter; told one, perftest does not read the device's table, which takes a second.
                command.args(["-x", "0"]);
                if self.may_inline {
                    command.args(["-I", "0"]);
                }
                if self.kind == Kind::Bandwidth {
                    command.args(["-Q", "1"]);
                }
            }
        }
        let mut option = |name: &str, value: &dyn ToString| {
            command.arg(name).arg(value.to_string());
        };
        option("-p", &port);
        option("-s", &self.size);
        option("-n", &self.iters);
        // For a latency of perftest's it is 1, and cannot be said.
        if self.kind == Kind::Bandwidth {
            option("-t", &self.depth);
        }
        if let Some(to) = to {
            command.arg(to.to_string());
        }
        command
    }
}

impl Job for Perftest {
    fn rows(&self) -> Vec<Row> {
        let (unit, better, bound) = match self.kind {
            Kind::Latency => ("us", Better::Less, 1.05),
            Kind::Bandwidth => ("MiB/s", Better::More, 0.95),
        };
        vec![Row {
            name: format!("{} {}", self.test, self.size),
            unit,
            better,
            judged: Judged::Best { bound },
        }]
    }

    fn conditions(&self) -> String {
        format!(
            "{:<9} {:>5} bytes, {} iterations, {} outstanding, each signalled, inline size 0, server on processor 0, client on 1",
            self.test, self.size, self.iters, self.depth
        )
    }

    fn run(&self, place: &runs::Args, who: Who, port: u16) -> Result<Vec<f64>> {
        let deadline = Instant::now() + PATIENCE;
        let mut server = Running::start(&mut self.command(place, who, port, None))?;
        server.listens(port, deadline)?;
        let mut client = Running::start(&mut self.command(place, who, port, Some(place.address)))?;
        let said = client.end("client", deadline)?;
        server.end("server", deadline)?;
        let figure = match who {
            Who::Rust => said.trim().parse().ok(),
            Who::C | Who::Again => figure(self.kind, &said),
        };
        let figure =
            figure.with_context(|| format!("the client has not said what it measured: {said}"))?;
        Ok(vec![figure])
    }
}

pub(crate) fn jobs(_quick: bool) -> Vec<Perftest> {
    vec![
        Perftest::latency("send_lat", true),
        Perftest::latency("write_lat", true),
        Perftest::latency("read_lat", false),
        Perftest::bandwidth("send_bw"),
        Perftest::bandwidth("write_bw"),
        Perftest::bandwidth("read_bw"),
    ]
}

/// The figure of perftest's table, which is a line of names and one of numbers.
fn figure(kind: Kind, said: &str) -> Option<f64> {
    let (title, place) = match kind {
        Kind::Latency => ("t_typical[usec]", 4),
        Kind::Bandwidth => ("BW average[", 3),
    };
    let mut lines = said.lines().skip_while(|line| !line.contains(title));
    lines.nth(1)?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn the_figure_is_found_in_the_table_of_perftest() {
        let latency = "\
 Data ex. method : rdma_cm
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          14.33          24304.86      15.31    \t       24.40       \t119.60 \t\t125.54  \t\t24304.86
---------
";
        assert_eq!(figure(Kind::Latency, latency), Some(15.31));
        let bandwidth = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      300              42.49              25.02  \t\t   0.000400
";
        assert_eq!(figure(Kind::Bandwidth, bandwidth), Some(25.02));
        assert_eq!(figure(Kind::Bandwidth, latency), None);
    }

    #[test]
    fn both_programs_are_told_the_same() {
        let place = runs::Args {
            address: IpAddr::from([10, 9, 0, 1]),
            perf: "/t/perf".into(),
            quick: false,
            rounds: 1,
            time: 1,
        };
        let line = |who, to| {
            let command = Perftest::bandwidth("send_bw").command(&place, who, 7, to);
            let words: Vec<&OsStr> = command.get_args().collect();
            words.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(
            line(Who::Rust, None),
            "-c 0 /t/perf send_bw -p 7 -s 65536 -n 300 -t 128"
        );
        assert_eq!(
            line(Who::C, Some(place.address)),
            "-c 1 ib_send_bw -R -F -x 0 -Q 1 -p 7 -s 65536 -n 300 -t 128 10.9.0.1"
        );
    }
}
