//! How many there are of what the loops work on, and how long: the same as in `c/work.h`.

/// How many queue pairs share the completion queue.
pub(crate) const PAIRS: usize = 8;
/// How many buffers there are.
pub(crate) const BUFFERS: usize = 64;
/// How long a buffer is.
pub(crate) const BUFFER_SIZE: usize = 64;
/// How long a message is that is posted inline.
pub(crate) const INLINE_SIZE: usize = 32;
/// How many requests go to one doorbell.
pub(crate) const BATCH: usize = 32;
/// How many requests go to one completion.
pub(crate) const RUN: usize = 16;
