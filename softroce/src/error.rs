//! Why a command could not be run.

/// Why a command could not be run, in one message for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tool or library is missing; the message holds the command that installs it.
    #[error("{0}")]
    Missing(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Returns the status a program should exit with: 125, as with `env`, `timeout` and `docker run`.
    pub fn exit_code(&self) -> i32 {
        crate::EXIT_VM_FAILED
    }
}
