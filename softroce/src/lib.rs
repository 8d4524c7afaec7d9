//! A micro-VM with soft-RoCE devices.

mod cache;
mod child;
mod cpio;
mod doctor;
mod elf;
mod error;
pub mod host;
mod kernel;
pub mod packages;
mod progress;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the guest's half of the protocol")
)]
mod protocol;
mod signals;
mod tools;
mod unpack;
mod vm;

pub use doctor::{Finding, Level};
pub use error::Error;
pub use vm::{Outcome, Stdio, Vm};

/// The exit status when the time limit ran out.
pub const EXIT_TIME_LIMIT: i32 = 124;
/// The exit status when the virtual machine itself failed: it could not be started, or its kernel panicked.
pub const EXIT_VM_FAILED: i32 = 125;
/// The exit status when the command exists but cannot be executed.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// The exit status when the command does not exist.
pub const EXIT_NOT_FOUND: i32 = 127;
