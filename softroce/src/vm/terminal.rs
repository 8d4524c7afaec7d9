//! The user's terminal: its size, and raw mode while a command in the guest has a terminal of its own.

use std::io::{self, IsTerminal};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Tells whether standard input and output are both a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Rows and columns of the terminal, or the usual ones.
pub(crate) fn size() -> (u16, u16) {
    tcgetwinsize(io::stdout())
        .map(|size| (size.ws_row, size.ws_col))
        .ok()
        .filter(|(rows, columns)| *rows > 0 && *columns > 0)
        .unwrap_or((24, 80))
}

/// Raw mode, until it is dropped.
#[derive(Debug)]
pub(crate) struct Raw(Termios);

impl Raw {
    /// Switches the terminal on standard input to raw mode.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
