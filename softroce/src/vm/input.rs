//! What goes to the guest: orders, and standard input within the credit it gives.

use std::{
    io::Read,
    process::ChildStdin,
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use rustix::{
    fd::OwnedFd,
    pipe::{PipeFlags, pipe_with},
};

use super::stdio::Source;
use crate::protocol::{Kind, STDIN_WINDOW, write_frame};

/// Sends frames from a thread of its own, so that nobody waits for a guest that does not read.
#[derive(Debug, Clone)]
pub(crate) struct Orders(mpsc::Sender<(Kind, Vec<u8>)>);

impl Orders {
    /// Starts the thread. It ends with the pipe, or with the last clone of this.
    pub(crate) fn start(pipe: Option<ChildStdin>) -> Self {
        let (sender, receiver) = mpsc::channel::<(Kind, Vec<u8>)>();
        if let Some(mut pipe) = pipe {
            thread::spawn(move || {
                for (kind, payload) in receiver {
                    if write_frame(&mut pipe, kind, &payload).is_err() {
                        break;
                    }
                }
            });
        }
        Self(sender)
    }

    /// Sends a frame, in turn. Nothing happens when the machine has gone.
    pub(crate) fn send(&self, kind: Kind, payload: Vec<u8>) {
        let _ = self.0.send((kind, payload));
    }
}

/// How many bytes of standard input may still be sent.
#[derive(Debug)]
pub(crate) struct Input {
    credit: Mutex<usize>,
    changed: Condvar,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            credit: Mutex::new(STDIN_WINDOW),
            changed: Condvar::new(),
        }
    }
}

/// Standard input is being read as long as this lives.
#[derive(Debug)]
pub(crate) struct Reading {
    input: Arc<Input>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Input {
    /// Gives credit back.
    pub(crate) fn credit(&self, bytes: usize) {
        let mut credit = self.credit.lock().unwrap_or_else(PoisonError::into_inner);
        *credit = credit.saturating_add(bytes);
        self.changed.notify_all();
    }

    /// Takes some credit, at most so much; waits if there is none.
    fn take(&self, most: usize) -> usize {
        let credit = self.credit.lock().unwrap_or_else(PoisonError::into_inner);
        let mut credit = self
            .changed
            .wait_while(credit, |credit| *credit == 0)
            .unwrap_or_else(PoisonError::into_inner);
        let taken = most.min(*credit);
        *credit -= taken;
        taken
    }

    /// Starts to read standard input.
    pub(crate) fn start(self: &Arc<Self>, stdin: Source, orders: &Orders) -> Reading {
        let own = matches!(stdin, Source::Own);
        // Without a pipe to stop it by, nothing is read.
        let Ok((stopped, stop)) = pipe_with(PipeFlags::CLOEXEC) else {
            orders.send(Kind::StdinEnd, Vec::new());
            return Reading {
                input: Arc::clone(self),
                stop: None,
                thread: None,
            };
        };
        let (input, orders) = (Arc::clone(self), orders.clone());
        let thread =
            thread::spawn(move || input.pass_on(&mut *stdin.into_reader(stopped), &orders));
        // Another's reader may block where nobody can wake it: only the own one is waited for.
        Reading {
            input: Arc::clone(self),
            stop: Some(stop),
            thread: own.then_some(thread),
        }
    }

    fn pass_on(&self, from: &mut dyn Read, orders: &Orders) {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let room = self.take(buffer.len());
            match from.read(&mut buffer[..room]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => self.credit(room),
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    self.credit(room - length);
                    orders.send(Kind::Stdin, buffer[..length].to_vec());
                }
            }
        }
        orders.send(Kind::StdinEnd, Vec::new());
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.input.credit(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_more_is_read_than_there_is_credit_for() {
        let (sender, receiver) = mpsc::channel();
        let input = Arc::new(Input::default());
        let orders = Orders(sender);
        let total = STDIN_WINDOW + 1000;
        let reading = input.start(
            Source::Reader(Box::new(std::io::repeat(7).take(total as u64))),
            &orders,
        );
        let mut seen = 0;
        while let Ok((_, payload)) = receiver.recv_timeout(Duration::from_millis(300)) {
            seen += payload.len();
        }
        assert_eq!(seen, STDIN_WINDOW);
        input.credit(2000);
        assert_eq!(
            receiver
                .recv_timeout(Duration::from_secs(5))
                .unwrap()
                .1
                .len(),
            1000
        );
        assert_eq!(
            receiver.recv_timeout(Duration::from_secs(5)).unwrap().0,
            Kind::StdinEnd
        );
        drop(reading);
    }
}
