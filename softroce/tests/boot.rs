//! What needs a machine. Each test boots one, and looks for what it may have left.

mod common;

use std::{
    fs,
    io::Read,
    path::Path,
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use common::{Run, assert_no_process, finish, one_message, run, softroce, start};

/// One machine at a time: two would only slow each other down.
static ONE: Mutex<()> = Mutex::new(());

/// A shared folder, which is also the mark by which its machine is known, and the turn to boot one.
struct Turn {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Self {
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            folder: tempfile::tempdir().unwrap(),
            _turn: turn,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn arguments<'a>(&'a self, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
        let own = ["run", "--quiet", "--share", self.path().to_str().unwrap()];
        [&own, options, &["--"], command].concat()
    }

    /// Runs a command in a machine and checks that none is left.
    fn run(&self, options: &[&str], command: &[&str], input: &[u8]) -> Run {
        let run = run(&mut softroce(&self.arguments(options, command)), input);
        assert_no_process(self.path());
        run
    }

    /// Starts a command in a machine and waits until it says `up`.
    fn start(&self, command: &[&str]) -> Child {
        let mut child = start(&mut softroce(&self.arguments(&[], command)));
        let mut said = [0; 3];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        assert_eq!(&said, b"up\n");
        child
    }
}

fn send(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn streams_and_status_pass_through_unharmed() {
    let turn = Turn::take();
    // Every byte value, line ends of all kinds, and more than any window or pipe holds.
    let mut number: u32 = 1;
    let input: Vec<u8> = (0..700_000)
        .map(|_| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            number.to_be_bytes()[0]
        })
        .collect();
    let run = turn.run(
        &[],
        &["sh", "-c", "cat; printf 'a\\r\\nb' >&2; exit 7"],
        &input,
    );
    assert_eq!(run.code, Some(7), "{}", run.stderr);
    assert_eq!(run.stderr, "a\r\nb");
    assert!(
        run.stdout == input,
        "{} of {} bytes came back",
        run.stdout.len(),
        input.len()
    );
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn the_guest_has_the_devices_the_root_and_the_shared_folder() {
    let turn = Turn::take();
    let script = r#"
        set -e
        test "$(id -u)" = 0; test "$PWD" = /usr; test "$A" = 'b c'; test "$HOME" = "$HOST_HOME"
        test "$(ulimit -l)" = unlimited; test "$(ulimit -n)" = 65536
        cat /sys/class/infiniband/rxe0/ports/1/state /sys/class/infiniband/rxe1/ports/1/state
        cat /sys/class/infiniband/rxe0/ports/1/gids/[0-9] /sys/class/infiniband/rxe1/ports/1/gids/[0-9] 2>/dev/null | grep -v '^0000:0000:0000:0000:0000:0000:'
        test -c /dev/infiniband/rdma_cm; test -c /dev/infiniband/uverbs0; test -c /dev/infiniband/uverbs1
        rdma link show rxe0/1
        echo x >/etc/softroce-test; echo x >/dev/shm/x; echo x >/run/x; mv /etc/softroce-test /etc/softroce-moved
        echo from the guest >"$SHARE/file"; cat "$SHARE/from-host"
    "#;
    fs::write(turn.path().join("from-host"), "from the host\n").unwrap();
    let share = format!("SHARE={}", turn.path().display());
    let home = format!("HOST_HOME={}", std::env::var("HOME").unwrap_or_default());
    let options = [
        "-C",
        "/usr",
        "--env",
        "A=b c",
        "--env",
        &share,
        "--env",
        &home,
        "--modules",
        "sch_netem",
    ];
    let run = turn.run(&options, &["sh", "-c", script], b"");
    let stdout = String::from_utf8(run.stdout).unwrap();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{stdout}");
    for wanted in [
        "4: ACTIVE\n4: ACTIVE\n",
        "0000:0000:0000:0000:0000:ffff:0a09:0001\n",
        "fd09:0000:0000:0000:0000:0000:0000:0001\n",
        "0000:0000:0000:0000:0000:ffff:0a09:0101\n",
        "link rxe0/1 state ACTIVE physical_state LINK_UP netdev d0",
        "from the host\n",
    ] {
        assert!(stdout.contains(wanted), "{wanted:?} is not in {stdout}");
    }
    assert_eq!(
        fs::read_to_string(turn.path().join("file")).unwrap(),
        "from the guest\n"
    );
    assert!(
        !Path::new("/etc/softroce-test").exists() && !Path::new("/etc/softroce-moved").exists()
    );
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn a_command_that_is_not_there_is_127() {
    let turn = Turn::take();
    let run = turn.run(&[], &["no-such-command", "x"], b"");
    assert_eq!(
        (run.code, one_message(&run)),
        (Some(127), "softroce: no-such-command: command not found")
    );
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn a_command_that_hangs_is_124() {
    let turn = Turn::take();
    let start = Instant::now();
    let run = turn.run(
        &["--time-limit", "25"],
        &[
            "sh",
            "-c",
            "echo up; trap '' INT TERM; while :; do sleep 1; done",
        ],
        b"",
    );
    assert_eq!(
        (run.code, one_message(&run)),
        (Some(124), "softroce: the time limit of 25 s ran out")
    );
    assert_eq!(run.stdout, b"up\n");
    assert!(
        (25..60).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn a_kvm_that_hangs_is_given_up_and_remembered() {
    let turn = Turn::take();
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        eprintln!("not tested: there is no /dev/kvm for this user");
        return;
    }
    let real = softroce::packages::find_program("qemu-system-x86_64").unwrap();
    let fake = turn.path().join("qemu-system-x86_64");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *'-accel kvm'*) exec sleep 60 ;; esac\nexec {} \"$@\"\n",
        real.display()
    );
    fs::write(&fake, script).unwrap();
    fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        turn.path().display(),
        std::env::var("PATH").unwrap()
    );
    let boot = || {
        let share = turn.path().to_str().unwrap();
        let run = run(
            softroce(&["run", "--share", share, "--", "echo", "alive"]).env("PATH", &path),
            b"",
        );
        assert_eq!(
            (run.code, run.stdout.as_slice()),
            (Some(0), b"alive\n".as_slice()),
            "{}",
            run.stderr
        );
        assert_no_process(turn.path());
        run.stderr
    };
    let first = boot();
    assert!(
        first.contains("with KVM\n") && first.contains("under emulation\n"),
        "{first}"
    );
    let second = boot();
    assert!(
        !second.contains("with KVM\n") && second.contains("under emulation\n"),
        "{second}"
    );
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn a_panic_of_the_guests_kernel_is_125() {
    let turn = Turn::take();
    let run = turn.run(
        &[],
        &["sh", "-c", "echo up; echo c >/proc/sysrq-trigger; sleep 60"],
        b"",
    );
    assert_eq!(
        (run.code, one_message(&run)),
        (
            Some(125),
            "softroce: the guest's kernel panicked: sysrq triggered crash"
        )
    );
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn an_interrupt_reaches_the_command_and_ends_it() {
    let turn = Turn::take();
    let child = turn.start(&[
        "sh",
        "-c",
        "trap 'echo caught; exit 3' INT; echo up; sleep 60 & wait",
    ]);
    send(&child, rustix::process::Signal::INT);
    let run = finish(child);
    assert_eq!(
        (run.code, run.stdout.as_slice(), run.stderr.as_str()),
        (Some(3), b"caught\n".as_slice(), "")
    );
    assert_no_process(turn.path());
}

#[test]
#[ignore = "boots a VM: cargo xtask test"]
fn the_machine_does_not_outlive_a_program_that_is_killed() {
    let turn = Turn::take();
    let child = turn.start(&["sh", "-c", "echo up; sleep 60"]);
    let start = Instant::now();
    send(&child, rustix::process::Signal::KILL);
    assert_eq!(finish(child).signal, Some(9));
    assert_no_process(turn.path());
    assert!(start.elapsed() < Duration::from_secs(5));
}
