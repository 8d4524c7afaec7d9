use std::fmt;

use crate::error::Error;

/// What went wrong, beside the value that could not be turned into something else: memory that was not registered, or a request
/// that was not accepted and can be tried again with other values.
///
/// Without the value, nothing of it is left to use: memory that a device may still reach is leaked, and the peer of a request was
/// rejected.
pub struct HandedBack<T> {
    error: Error,
    value: Option<T>,
}

impl<T> HandedBack<T> {
    pub(crate) fn with(error: Error, value: T) -> Self {
        Self {
            error,
            value: Some(value),
        }
    }

    pub(crate) fn without(error: Error) -> Self {
        Self { error, value: None }
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The value, if it is whole.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        self.value
    }

    /// Both at once.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<T>) {
        (self.error, self.value)
    }
}

impl<T> From<HandedBack<T>> for Error {
    /// Drops the value, if there still is one: the peer of a request is rejected then.
    fn from(handed_back: HandedBack<T>) -> Self {
        handed_back.error
    }
}

impl<T> fmt::Debug for HandedBack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedBack")
            .field("error", &self.error)
            .field("has_value", &self.value.is_some())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for HandedBack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for HandedBack<T> {}
