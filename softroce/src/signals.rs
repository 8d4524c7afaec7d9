//! Signals for this process while a command runs.

use std::{
    io,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH},
    flag,
    iterator::{Handle, Signals},
};

/// The signals that end a command.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// How many commands are running.
static RUNNING: Mutex<usize> = Mutex::new(0);
/// Whether that is none.
static IDLE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let idle = Arc::new(AtomicBool::new(true));
    // The handlers stay for good; with nothing running they do what would happen without them.
    for signal in ENDING {
        let _ = flag::register_conditional_default(signal, Arc::clone(&idle));
    }
    idle
});

/// Hands signals to a function until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts watching.
    pub(crate) fn start(mut handler: impl FnMut(i32) + Send + 'static) -> io::Result<Self> {
        count(1);
        let watched = Signals::new(ENDING.into_iter().chain([SIGWINCH]));
        let mut signals = watched.inspect_err(|_| count(-1))?;
        let handle = signals.handle();
        let thread = thread::spawn(move || signals.forever().for_each(&mut handler));
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        count(-1);
    }
}

fn count(change: isize) {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    *running = running.saturating_add_signed(change);
    IDLE.store(*running == 0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};

    /// Runs in a process of its own: the signal would reach the watches of other tests too.
    #[test]
    fn a_signal_reaches_the_handler_instead_of_ending_the_process() {
        const ALONE: &str = "SOFTROCE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "signals::tests::a_signal_reaches_the_handler_instead_of_ending_the_process";
            let alone = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let output = String::from_utf8_lossy(&alone.stdout);
            assert!(alone.status.success(), "{alone:?}");
            assert!(output.contains("1 passed"), "{output}");
            return;
        }
        let (sender, receiver) = mpsc::channel();
        let watch = Watch::start(move |signal| sender.send(signal).unwrap()).unwrap();
        assert!(!IDLE.load(Ordering::SeqCst));
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(SIGHUP));
        drop(watch);
        assert!(IDLE.load(Ordering::SeqCst));
    }
}
