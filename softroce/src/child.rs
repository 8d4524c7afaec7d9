//! Child processes that do not outlive this one.

#![expect(
    unsafe_code,
    reason = "the child must ask, between fork and exec, to die with its parent"
)]

use std::{os::unix::process::CommandExt, process::Command};

use rustix::{
    io::Errno,
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
};

/// Puts the command into a process group of its own, so that the terminal's Ctrl-C is for this process to pass on, and makes it die with
/// the thread that starts it, whatever ends that.
pub(crate) fn bind(command: &mut Command) -> &mut Command {
    command.process_group(0);
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have gone before the request was made.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(Errno::SRCH.into())
        }
    };
    // SAFETY: the closure runs in the child between fork and exec. It makes two system calls, which are
    // async-signal-safe, allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let start = || bind(Command::new("sleep").arg("60")).spawn().unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
    }
}
