use std::fmt;

use super::buf::Buf;
use super::stage::Stage;
use crate::error::{Error, ErrorKind};

/// A post that failed, with the buffers if they came back.
///
/// Without them, the device may hold the request all the same, and its completion brings them: an error from a post is no
/// refusal, unless the provider names the request that it refused.
pub struct Refused<B = Buf> {
    error: Error,
    back: Option<B>,
}

/// Every slot is in use.
#[cold]
pub(super) fn full(op: &'static str) -> Error {
    Error::plain(
        op,
        ErrorKind::QueueFull,
        "every slot of the queue is in use; poll the completion queue, or make the queue deeper",
    )
}

impl<B> Refused<B> {
    #[cold]
    pub(super) fn with(error: Error, back: B) -> Self {
        Self {
            error,
            back: Some(back),
        }
    }

    /// The device may have the request.
    #[cold]
    pub(super) fn kept(error: Error) -> Self {
        Self { error, back: None }
    }

    /// With the buffer as long as it was before the post.
    #[cold]
    pub(super) fn with_length(mut self, length: u64) -> Self
    where
        B: Stage,
    {
        if let (Some(back), Ok(length)) = (&mut self.back, u32::try_from(length)) {
            back.set_length(length);
        }
        self
    }

    /// Whether the device may have the request.
    pub(super) fn is_kept(&self) -> bool {
        self.back.is_none()
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The buffers, if the device does not have the request.
    #[must_use]
    pub fn into_buf(self) -> Option<B> {
        self.back
    }

    /// Both at once.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<B>) {
        (self.error, self.back)
    }
}

impl<B> From<Refused<B>> for Error {
    fn from(refused: Refused<B>) -> Self {
        refused.error
    }
}

impl<B> fmt::Debug for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .field("came_back", &self.back.is_some())
            .finish()
    }
}

impl<B> fmt::Display for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> std::error::Error for Refused<B> {}
