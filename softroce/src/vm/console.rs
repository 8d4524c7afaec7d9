//! What QEMU and the guest's kernel say beside the protocol: silence, or the reason for the end.

use std::{
    io::{Read, Write},
    process::ChildStderr,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use crate::Error;

/// How much of it is kept.
const KEPT: usize = 64 * 1024;

/// The last words of QEMU and the kernel.
#[derive(Debug)]
pub(crate) struct Console {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Console {
    /// Starts to read; `aloud` passes everything on to standard error.
    pub(crate) fn read(from: Option<ChildStderr>, aloud: bool) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&text);
        let thread = from.map(|mut from| {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = from.read(&mut buffer) {
                    if aloud {
                        let _ = std::io::stderr().write_all(&buffer[..length]);
                    }
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.extend_from_slice(&buffer[..length]);
                    let surplus = kept.len().saturating_sub(KEPT);
                    kept.drain(..surplus);
                }
            })
        });
        Self { text, thread }
    }

    /// Says why the machine ended without a status. QEMU has ended, with that status.
    pub(crate) fn explain(mut self, qemu: String, alive: bool) -> Error {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        explain(&String::from_utf8_lossy(&text), &qemu, alive)
    }
}

fn explain(text: &str, qemu: &str, alive: bool) -> Error {
    const PANIC: &str = "Kernel panic - not syncing: ";
    let lines = || {
        text.lines()
            .map(|line| line.trim_matches(|character: char| character.is_control()))
            .filter(|line| !line.trim().is_empty())
    };
    if let Some((_, reason)) = lines().find_map(|line| line.split_once(PANIC)) {
        return Error::Panicked(reason.trim().to_owned());
    }
    let last: Vec<&str> = lines().rev().take(3).collect();
    let last = last.into_iter().rev().collect::<Vec<_>>().join("; ");
    match (alive, last.is_empty()) {
        (true, true) => Error::Stopped(String::new()),
        (true, false) => Error::Stopped(format!(": {last}")),
        (false, true) => Error::NotStarted(format!("QEMU ended with {qemu}")),
        (false, false) => Error::NotStarted(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_panic_is_picked_out() {
        let text = "\x1b[2J\r\n[    5.0] sysrq: Trigger a crash\r\n[    5.1] Kernel panic - not syncing: sysrq triggered crash\r\n[    5.2] CPU: 0\r\n";
        assert_eq!(
            explain(text, "exit status: 0", true).to_string(),
            "the guest's kernel panicked: sysrq triggered crash"
        );
    }

    #[test]
    fn qemus_own_complaint_is_passed_on() {
        let error = explain(
            "qemu-system-x86_64: cannot set up guest memory\n",
            "exit status: 1",
            false,
        );
        assert_eq!(
            error.to_string(),
            "the virtual machine did not start: qemu-system-x86_64: cannot set up guest memory"
        );
        assert!(
            explain("", "signal: 9", false)
                .to_string()
                .contains("signal: 9")
        );
        assert_eq!(
            explain("", "exit status: 0", true).to_string(),
            "the virtual machine stopped before the command had ended"
        );
    }
}
