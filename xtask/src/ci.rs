//! `cargo xtask ci`: all that must hold before a change lands, in the order of how soon it is known.
//!
//! `.ci/run` is this and nothing else, so whoever wants to know what CI will say runs it here.

use std::{
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{bindings, cargo, overhead, setup, test};

/// Run every check that a change has to pass, and then all tests
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
}

/// Runs the steps up to the first that fails. The tests come last, and so does their sum.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::ensure(&setup::ci_needs(), setup::consent(args.install))?;
    let mut times = Vec::new();
    let mut step = |name: &'static str, check: &dyn Fn() -> Result<()>| {
        eprintln!("== {name}");
        let start = Instant::now();
        let done = check().with_context(|| format!("CI failed at the step `{name}`"));
        times.push((name, start.elapsed()));
        done
    };

    step("formatting", &|| {
        cargo(cargo::command().args(["fmt", "--all", "--check"]))
    })?;
    step("clippy", &|| clippy(&[]))?;
    step("clippy, all features", &|| clippy(&["--all-features"]))?;
    step("bindings", &|| bindings::run(true))?;
    step("documentation", &|| cargo(doc().args(["--workspace"])))?;
    step("documentation without the C libraries", &|| {
        cargo(&mut doc_without_libraries())
    })?;
    step("overhead", &|| overhead::check(args.install))?;

    eprintln!("== {}", summary(&times));
    eprintln!("== tests");
    let status =
        test::run(&test::Args::all(args.install)).context("CI failed at the step `tests`")?;
    Ok(status)
}

fn clippy(features: &[&str]) -> Result<()> {
    let mut command = cargo::command();
    command
        .args(["clippy", "--quiet", "--workspace", "--all-targets"])
        .args(features);
    cargo(command.args(["--", "-D", "warnings"]))
}

fn doc() -> Command {
    let mut command = cargo::command();
    command
        .args(["doc", "--quiet", "--no-deps"])
        .env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// As docs.rs builds it, which has neither library. Here they are installed, so pkg-config is made blind.
fn doc_without_libraries() -> Command {
    let mut command = doc();
    command.args(["--package", "rdmacm", "--package", "rdmacm-sys"]);
    command
        .arg("--target-dir")
        .arg(setup::workspace().join("target/docs-rs"));
    command
        .env("DOCS_RS", "1")
        .env("PKG_CONFIG_LIBDIR", "/nonexistent")
        .env_remove("PKG_CONFIG_PATH");
    command
}

/// Runs cargo; what is wrong it says itself.
fn cargo(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo ended with {status}; what it said is above");
    }
    Ok(())
}

fn summary(times: &[(&str, Duration)]) -> String {
    let each: Vec<String> = times
        .iter()
        .map(|(name, time)| format!("{name} {:.0} s", time.as_secs_f32()))
        .collect();
    let all: Duration = times.iter().map(|(_, time)| time).sum();
    format!("{} (all {:.0} s)", each.join(", "), all.as_secs_f32())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_each_step() {
        let times = [
            ("formatting", Duration::from_millis(1400)),
            ("clippy", Duration::from_secs(70)),
        ];
        assert_eq!(summary(&times), "formatting 1 s, clippy 70 s (all 71 s)");
    }
}
