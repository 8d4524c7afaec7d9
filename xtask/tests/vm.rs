//! `cargo xtask vm`: everything passes through.

use std::{
    io::{self, Write as _},
    process::{Command, Stdio},
};

fn xtask() -> Command {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn streams_and_status_pass_through() -> io::Result<()> {
    let mut vm = xtask()
        .args(["vm", "--", "sh", "-c", "cat; echo wrong >&2; exit 7"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = vm.stdin.take() {
        stdin.write_all(b"in and out\n")?;
    }
    let output = vm.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "in and out\n");
    assert!(stderr.lines().any(|line| line == "wrong"), "{stderr}");
    Ok(())
}

#[test]
fn a_command_is_required() -> io::Result<()> {
    let output = xtask().arg("vm").output()?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("<CMD>"));
    Ok(())
}
