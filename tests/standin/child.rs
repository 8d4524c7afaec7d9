//! Tests whose process must end: they run once more, in a child.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const CASE: &str = "STANDIN_CASE";

/// The case that this process is to run, if it is a child.
pub(crate) fn in_child() -> Option<String> {
    std::env::var(CASE).ok()
}

fn child(name: &str, case: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            name,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CASE, case)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap()
}

/// Runs the test `name` of this program in a child, since it leaves something behind on purpose. Gives true in the child.
pub(crate) fn is_child_of(name: &str) -> bool {
    if in_child().is_some() {
        return true;
    }
    let output = child(name, name);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the child ended with {}; it said: {said}",
        output.status
    );
    false
}

/// Runs the test `name` of this program in a child, which must be ended by the stand-in with a line that contains `line`.
pub(crate) fn must_die(name: &str, case: &str, line: &str) {
    let output = child(name, case);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{case}: the child ended with {}; it said: {said}",
        output.status
    );
    assert!(
        said.lines()
            .any(|said| said.starts_with("standin: ") && said.contains(line)),
        "{case}: the child said {said}, not: {line}"
    );
}

/// Runs the test `name` of this program in a child, which must abort by itself: not the stand-in, and not by a panic.
pub(crate) fn must_abort(name: &str, case: &str) {
    let output = child(name, case);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{case}: the child ended with {}; it said: {said}",
        output.status
    );
    let other = |said: &str| said.starts_with("standin: ") || said.contains("panicked");
    assert!(!said.lines().any(other), "{case}: the child said {said}");
}
