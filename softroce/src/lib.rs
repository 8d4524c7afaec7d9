//! A micro-VM with soft-RoCE devices: runs a command on an x86-64 Linux machine as if it had RDMA hardware.
//!
//! The guest's root is the machine's own file system under an overlay in memory, the command is root in it, and finds `rxe0` (10.9.0.1 and fd09::1)
//! and `rxe1` (10.9.1.1) active. No root is needed outside. The README describes the whole.
//!
//! ```no_run
//! # fn main() -> Result<(), softroce::Error> {
//! let outcome = softroce::Vm::new().run(["rdma", "link"])?;
//! println!("exit status {}", outcome.code);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Vm`]: the machine, as a builder; [`Vm::run`] runs a command in it, [`Vm::run_with`] with other streams ([`Stdio`]), [`Vm::diagnose`] tells what is missing.
//! - [`packages`]: what a machine needs and how its distribution installs it.
//! - [`host`]: the machine's own RDMA devices.

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
