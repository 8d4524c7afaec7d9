//! What goes wrong before a machine is booted: one message, the right status, nothing left behind.

mod common;

use std::{fs, path::Path, process::Command};

use common::{assert_no_process, one_message, run, softroce};

/// Runs the program with an empty cache and checks that it failed with one message, which is returned, and left nothing.
fn refused(arguments: &[&str], change: impl FnOnce(&mut Command)) -> String {
    let cache = tempfile::tempdir().unwrap();
    let mut command = softroce(&[
        "run",
        "--no-install",
        "--quiet",
        "--cache-dir",
        cache.path().to_str().unwrap(),
    ]);
    command.args(arguments);
    change(&mut command);
    let run = run(&mut command, b"");
    assert_eq!((run.code, run.signal), (Some(125), None), "{run:?}");
    assert_eq!(run.stdout, b"");
    let left: Vec<_> = fs::read_dir(cache.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name != "lock")
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert_no_process(cache.path());
    one_message(&run).to_owned()
}

#[test]
fn an_unknown_kernel_is_named() {
    let message = refused(&["--kernel", "0.0.0-none", "--", "true"], |_| ());
    assert!(
        message.contains("there is no kernel `0.0.0-none` here"),
        "{message}"
    );
    let message = refused(&["--kernel", "/etc/passwd", "--", "true"], |_| ());
    assert!(
        message.contains("`/etc/passwd`") && message.contains("not a kernel"),
        "{message}"
    );
}

#[test]
fn without_qemu_the_message_says_how_to_get_it() {
    let message = refused(&["--", "true"], |command| {
        command.env("PATH", "/nonexistent");
    });
    assert!(message.contains("QEMU (qemu-system-x86_64)"), "{message}");
    if Path::new("/usr/bin/apt-get").exists() {
        assert!(
            message.contains("apt-get install -y --no-install-recommends")
                && message.contains("qemu-system-x86"),
            "{message}"
        );
    }
}

#[test]
fn no_space_is_said_in_so_many_words() {
    if !softroce::packages::missing(&[
        softroce::packages::Need::Qemu,
        softroce::packages::Need::Iproute2,
    ])
    .is_empty()
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // A mount namespace of its own: the small file system goes with it. Root needs no user namespace.
    let script = format!("mount -t tmpfs -o size=100k none {path} && echo mounted && exec \"$@\"");
    let program = softroce(&[
        "run",
        "--no-install",
        "--quiet",
        "--cache-dir",
        path,
        "--",
        "true",
    ]);
    let arguments: Vec<_> = program.get_args().collect();
    let attempt = |unshare: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(unshare)
            .args(["sh", "-c", &script, "sh"])
            .arg(program.get_program())
            .args(&arguments);
        run(&mut command, b"")
    };
    let runs = [
        attempt(&["--mount"]),
        attempt(&["--user", "--map-root-user", "--mount"]),
    ];
    let Some(run) = runs.iter().find(|run| run.stdout == b"mounted\n") else {
        eprintln!("not tested: this user may mount nothing here");
        return;
    };
    assert_eq!(run.code, Some(125), "{run:?}");
    let message = one_message(run);
    assert!(
        message.contains("no space left for") && message.contains(path),
        "{message}"
    );
}

#[test]
fn folders_modules_and_sizes_are_checked() {
    if !softroce::packages::missing(&[
        softroce::packages::Need::Qemu,
        softroce::packages::Need::Iproute2,
    ])
    .is_empty()
    {
        return;
    }
    let message = refused(&["--share", "/no/such/folder", "--", "true"], |_| ());
    assert!(
        message.contains("cannot share /no/such/folder"),
        "{message}"
    );
    let message = refused(&["--share", "/etc/passwd", "--", "true"], |_| ());
    assert!(message.contains("cannot share /etc/passwd"), "{message}");
    let message = refused(&["--memory", "1", "--", "true"], |_| ());
    assert!(message.contains("256 MiB"), "{message}");
}

#[test]
fn without_an_own_device_that_is_said() {
    if softroce::host::rdma_devices().is_empty() {
        let message = refused(&["--device", "--", "true"], |_| ());
        assert!(message.contains("no RDMA device"), "{message}");
    }
}

#[test]
fn mistakes_on_the_command_line_exit_with_2() {
    for arguments in [
        ["run", "--no-such-option"],
        ["run", "--cpus=x"],
        ["fly", "-x"],
    ] {
        let run = run(&mut softroce(&arguments), b"");
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.starts_with("error: "), "{run:?}");
    }
}

#[test]
fn the_doctor_names_what_it_looked_at() {
    let cache = tempfile::tempdir().unwrap();
    let run = run(
        &mut softroce(&["doctor", "--cache-dir", cache.path().to_str().unwrap()]),
        b"",
    );
    let report = String::from_utf8(run.stdout).unwrap();
    for subject in ["QEMU", "iproute2", "kernel", "cache", "KVM", "RDMA"] {
        assert!(
            report
                .lines()
                .any(|line| line.split_whitespace().nth(1) == Some(subject)),
            "{subject}: {report}"
        );
    }
    assert_eq!(
        run.code,
        Some(i32::from(report.contains("BAD "))),
        "{report}"
    );
}
