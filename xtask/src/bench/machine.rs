//! What the figures were made with, as far as it matters to them.

use std::{fs, process::Command};

/// Of what is told beside the device, each line begins so.
const MARK: &str = "about ";

/// Names and values, in the order in which they are shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Machine(pub(crate) Vec<(String, String)>);

impl Machine {
    /// What can be seen where the runs are made, a line each.
    pub(crate) fn tell() -> Vec<String> {
        let cpus = read("/proc/cpuinfo");
        let count = values(&cpus, "processor").count();
        let model = values(&cpus, "model name").next().unwrap_or("unknown");
        [
            ("processors", format!("{count} x {model}")),
            (
                "kernel",
                format!("Linux {}", read("/proc/sys/kernel/osrelease")),
            ),
        ]
        .into_iter()
        .map(|(name, value)| format!("{MARK}{name} {}", value.trim()))
        .collect()
    }

    /// Takes what was told, and gives the lines that are something else.
    pub(crate) fn listen(&mut self, text: &str) -> String {
        let mut rest = String::new();
        for line in text.lines() {
            let told = line.strip_prefix(MARK);
            if let Some((name, value)) = told.and_then(|told| told.split_once(' ')) {
                self.add(name, value);
            } else {
                rest.push_str(line);
                rest.push('\n');
            }
        }
        rest
    }

    /// Whether its processors are those of QEMU's software emulation.
    pub(crate) fn is_emulated(&self) -> bool {
        self.0.iter().any(|(_, value)| value.contains("QEMU TCG"))
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// What can be seen from here: the versions of the programs and libraries, and in the case of a guest its host.
    pub(crate) fn look(&mut self, guest: bool) {
        if guest {
            let cpus = read("/proc/cpuinfo");
            let model = values(&cpus, "model name").next().unwrap_or("unknown");
            let qemu = said("qemu-system-x86_64", &["--version"]);
            self.add("host's processor", model);
            self.add("virtual machine", first_line(&qemu));
        }
        let ibverbs = said("pkg-config", &["--modversion", "libibverbs"]);
        self.add("rdma-core", rdma_core(ibverbs.trim()));
        let perftest = said("ib_send_lat", &["--version"]);
        let perftest = perftest.trim().trim_start_matches("Version: ");
        self.add("perftest", perftest);
        let rustc = said("rustc", &["--version"]);
        self.add("rustc", rustc.trim().trim_start_matches("rustc "));
    }
}

/// The end of libibverbs's own version is rdma-core's: `1.14.44.0`.
fn rdma_core(ibverbs: &str) -> &str {
    let mut dots = ibverbs.match_indices('.').skip(1);
    dots.next().map_or(ibverbs, |(dot, _)| &ibverbs[dot + 1..])
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The values of a name in `/proc/cpuinfo`.
fn values<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = &'t str> {
    text.lines().filter_map(move |line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_taken_from_between_the_figures() {
        let mut machine = Machine::default();
        let rest = machine.listen("about kernel Linux 6.1.0\n0 c 12.5 send_lat 64\nabout x y z\n");
        assert_eq!(rest, "0 c 12.5 send_lat 64\n");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(machine.0, [pair("kernel", "Linux 6.1.0"), pair("x", "y z")]);
    }

    #[test]
    fn a_machine_tells_its_processors_and_kernel() {
        let mut machine = Machine::default();
        assert_eq!(machine.listen(&Machine::tell().join("\n")), "");
        let names: Vec<&str> = machine.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["processors", "kernel"]);
        assert!(machine.0[1].1.starts_with("Linux "), "{machine:?}");
        assert!(!machine.0[0].1.starts_with("0 x"), "{machine:?}");
    }

    #[test]
    fn the_version_of_rdma_core_is_the_end_of_libibverbs_own() {
        assert_eq!(rdma_core("1.14.44.0"), "44.0");
        assert_eq!(rdma_core("unknown"), "unknown");
    }

    #[test]
    fn the_values_of_cpuinfo_are_read() {
        let text = "processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n\nprocessor\t: 1\n";
        assert_eq!(values(text, "processor").collect::<Vec<_>>(), ["0", "1"]);
        assert_eq!(
            values(text, "model name").next(),
            Some("QEMU TCG CPU version 2.5+")
        );
    }
}
