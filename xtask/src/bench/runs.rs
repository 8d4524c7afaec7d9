//! The rounds of `cargo xtask bench`, beside the RDMA device.

use std::{
    ffi::OsString,
    io::Read as _,
    net::IpAddr,
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::rows::{Kind, ROWS, Row, Sample, Who};

/// Run the rounds of the benchmark
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address of an RDMA device
    #[arg(long)]
    pub(crate) address: IpAddr,
    /// Our program
    #[arg(long)]
    pub(crate) perf: PathBuf,
    /// How many rounds
    #[arg(long)]
    pub(crate) rounds: u32,
    /// No round is begun that would not end within so many seconds
    #[arg(long)]
    pub(crate) time: u64,
}

impl Args {
    /// These arguments as a command line, for another run of this program.
    pub(crate) fn to_command_line(&self) -> Vec<OsString> {
        vec![
            "bench-runs".into(),
            "--address".into(),
            self.address.to_string().into(),
            "--perf".into(),
            self.perf.clone().into(),
            "--rounds".into(),
            self.rounds.to_string().into(),
            "--time".into(),
            self.time.to_string().into(),
        ]
    }
}

/// For a server to listen, and for a pair to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a run is tried: perftest gives up easily when the machine is busy.
const TRIES: u32 = 3;
const PORT: u16 = 18515;

/// Runs the rounds. Each figure is a line on standard output, how far it is one on standard error.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let start = Instant::now();
    let limit = Duration::from_secs(args.time);
    let mut longest = Duration::ZERO;
    let mut port = PORT;
    for round in 0..args.rounds {
        let begin = Instant::now();
        if round > 0 && start.elapsed() + longest > limit {
            break;
        }
        for row in ROWS {
            let mut turn = Who::ALL;
            turn.rotate_left(round as usize % Who::ALL.len());
            for who in turn {
                let figure = attempt(args, row, who, &mut port)?;
                let test = row.test.to_owned();
                println!("{}", Sample { test, who, figure });
            }
        }
        longest = longest.max(begin.elapsed());
        eprintln!(
            "round {} of {} ({:.0} s)",
            round + 1,
            args.rounds,
            begin.elapsed().as_secs_f32()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes one run, again if it fails.
fn attempt(args: &Args, row: &Row, who: Who, port: &mut u16) -> Result<f64> {
    let mut tries = 1;
    loop {
        // A port of its own, so that nothing of the last run is in the way.
        *port += 1;
        match pair(args, row, who, *port) {
            Err(error) if tries < TRIES => {
                eprintln!("{} ({who}) failed and is run again: {error:#}", row.test);
                tries += 1;
            }
            done => return done.with_context(|| format!("{} ({who})", row.test)),
        }
    }
}

/// Runs a server and a client.
fn pair(args: &Args, row: &Row, who: Who, port: u16) -> Result<f64> {
    let mut server = Running::start(&mut command(args, row, who, port, None))?;
    let deadline = Instant::now() + PATIENCE;
    while !listens(port)? {
        if let Some(status) = server.0.try_wait()? {
            bail!("the server ended with {status}: {}", server.said());
        }
        if Instant::now() > deadline {
            bail!("the server does not listen");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let mut client = Running::start(&mut command(args, row, who, port, Some(args.address)))?;
    let said = client.end("client", deadline)?;
    server.end("server", deadline)?;
    let figure = match who {
        Who::Rust => said.trim().parse().ok(),
        Who::C | Who::Again => figure(row.kind, &said),
    };
    figure.with_context(|| format!("the client has not said what it measured: {said}"))
}

/// The command of one side, bound to a processor of its own.
fn command(args: &Args, row: &Row, who: Who, port: u16, to: Option<IpAddr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", if to.is_some() { "1" } else { "0" }]);
    match who {
        Who::Rust => {
            command.arg(&args.perf).arg(row.test);
        }
        Who::C | Who::Again => {
            command.arg(format!("ib_{}", row.test)).args(["-R", "-F"]);
            // Beside -R the GID does not matter; told one, perftest does not read the device's table, which takes a second.
            command.args(["-x", "0"]);
            if row.may_inline {
                command.args(["-I", "0"]);
            }
            if row.kind == Kind::Bandwidth {
                command.args(["-Q", "1"]);
            }
        }
    }
    let mut option = |name: &str, value: &dyn ToString| {
        command.arg(name).arg(value.to_string());
    };
    option("-p", &port);
    option("-s", &row.size);
    option("-n", &row.iters);
    // For a latency of perftest's it is 1, and cannot be said.
    if row.kind == Kind::Bandwidth {
        option("-t", &row.depth);
    }
    if let Some(to) = to {
        command.arg(to.to_string());
    }
    command
}

/// Whether an id listens on a port.
fn listens(port: u16) -> Result<bool> {
    let output = Command::new("rdma")
        .args(["resource", "show", "cm_id"])
        .stdin(Stdio::null())
        .output()
        .context("cannot run rdma")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let port = format!(":{port} ");
    Ok(text
        .lines()
        .any(|line| line.contains("LISTEN") && line.contains(&port)))
}

/// A program that is ended if it has not ended.
#[derive(Debug)]
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run taskset")?;
        Ok(Self(child))
    }

    /// Waits for the end, and gives what it has said. (It says less than a pipe holds.)
    fn end(&mut self, side: &str, deadline: Instant) -> Result<String> {
        let status = loop {
            if let Some(status) = self.0.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("the {side} does not end");
            }
            thread::sleep(Duration::from_millis(5));
        };
        let mut said = String::new();
        if let Some(stdout) = &mut self.0.stdout {
            stdout.read_to_string(&mut said)?;
        }
        if !status.success() {
            bail!("the {side} ended with {status}: {said}{}", self.said());
        }
        Ok(said)
    }

    /// What an ended program has said on standard error.
    fn said(&mut self) -> String {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.0.stderr {
            // What cannot be read is not said.
            let _ = stderr.read_to_end(&mut said);
        }
        String::from_utf8_lossy(&said).trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, or is to.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
        let args = Args {
            address: IpAddr::from([10, 9, 0, 1]),
            perf: "/t/perf".into(),
            rounds: 1,
            time: 1,
        };
        let line = |who, to| {
            let command = command(&args, &ROWS[3], who, 7, to);
            let words: Vec<&OsStr> = command.get_args().collect();
            words.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(
            line(Who::Rust, None),
            "-c 0 /t/perf send_bw -p 7 -s 65536 -n 300 -t 128"
        );
        assert_eq!(
            line(Who::C, Some(args.address)),
            "-c 1 ib_send_bw -R -F -x 0 -Q 1 -p 7 -s 65536 -n 300 -t 128 10.9.0.1"
        );
    }
}
