//! Where a command's standard streams lead.

use std::{
    fmt,
    io::{self, Read, Write},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
};

/// Where a command's standard streams lead.
#[non_exhaustive]
pub struct Stdio {
    /// Where its standard input comes from.
    pub(crate) stdin: Source,
    /// Where its standard output goes.
    pub(crate) stdout: Box<dyn Write + Send>,
    /// Where its standard error goes, and a message about how it ended.
    pub(crate) stderr: Box<dyn Write + Send>,
}

impl Stdio {
    /// This process's own streams.
    pub fn inherit() -> Self {
        Self {
            stdin: Source::Own,
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
        }
    }

    /// No standard input; output to the two writers.
    pub fn to(stdout: impl Write + Send + 'static, stderr: impl Write + Send + 'static) -> Self {
        Self {
            stdin: Source::Nothing,
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
        }
    }

    /// Takes standard input from a reader. It is read in a thread of its own, which may outlive the command.
    #[must_use]
    pub fn from(mut self, stdin: impl Read + Send + 'static) -> Self {
        self.stdin = Source::Reader(Box::new(stdin));
        self
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdio").finish_non_exhaustive()
    }
}

/// Where standard input comes from.
pub(crate) enum Source {
    /// This process's own standard input.
    Own,
    /// A reader.
    Reader(Box<dyn Read + Send>),
    /// Nowhere: it ends at once.
    Nothing,
}

impl Source {
    /// Makes it a reader that ends, at the latest, when the other end of `stop` is closed.
    pub(crate) fn into_reader(self, stop: OwnedFd) -> Box<dyn Read + Send> {
        match self {
            Self::Own => Box::new(OwnStdin { stop }),
            Self::Reader(reader) => reader,
            Self::Nothing => Box::new(io::empty()),
        }
    }
}

/// Standard input without a buffer, so that nothing is taken that the command does not get.
struct OwnStdin {
    stop: OwnedFd,
}

impl Read for OwnStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stdin = io::stdin();
        loop {
            let mut ready = [
                PollFd::new(&stdin, PollFlags::IN),
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            if !ready[1].revents().is_empty() {
                return Ok(0);
            }
            match rustix::io::read(&stdin, &mut *buffer) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                result => return Ok(result?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_input_ends_when_it_is_stopped() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(writer);
        assert_eq!(
            Source::Own.into_reader(reader).read(&mut [0; 8]).unwrap(),
            0
        );
    }

    #[test]
    fn nothing_ends_at_once() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(
            Source::Nothing
                .into_reader(reader)
                .read(&mut [0; 8])
                .unwrap(),
            0
        );
    }
}
