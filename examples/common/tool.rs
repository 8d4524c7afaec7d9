//! What the tools with a twin in rdma-core share: their options, addresses and exit statuses are those of the twins.

#![allow(dead_code, reason = "each tool uses a part of it")]

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use clap::Parser;
use rdmacm::ErrorKind;

/// How a tool, or a part of it, ends.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The exit status of what a function in C returns as -1.
const FAILED: u8 = 255;
/// The exit status of a name that leads to no address: `EAI_NONAME`, -2.
const NO_NAME: u8 = 254;

/// An error with an exit status of its own.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Failure {}

/// An error that ends the program with `status`.
pub(crate) fn failure(status: u8, text: impl Into<String>) -> Box<dyn Error> {
    let text = text.into();
    Box::new(Failure { status, text })
}

/// Reads the options, and runs the tool with them. Options that make no sense end it with the status `bad_usage`, no RDMA
/// device with `no_device`.
pub(crate) fn main<A: Parser>(
    bad_usage: u8,
    no_device: u8,
    run: impl FnOnce(&A) -> Outcome,
) -> ExitCode {
    let args = match A::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // There is nobody to be told that it cannot be told.
            let _ = error.print();
            let status = if error.use_stderr() { bad_usage } else { 0 };
            return ExitCode::from(status);
        }
    };
    let Err(error) = run(&args) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    let device = error.downcast_ref::<rdmacm::Error>();
    if device.is_some_and(|error| error.kind() == ErrorKind::NoDevice) {
        eprintln!("to see it with a software device, in a virtual machine: cargo xtask demo");
        return ExitCode::from(no_device);
    }
    let own = error.downcast_ref::<Failure>();
    ExitCode::from(own.map_or(FAILED, |failure| failure.status))
}

/// The exit status of a number that a function in C returns.
pub(crate) fn status(returned: i32) -> u8 {
    returned.to_le_bytes()[0]
}

/// The address that a name or a text stands for, with `port`.
pub(crate) fn host(name: &str, port: u16) -> Outcome<SocketAddr> {
    let found = (name, port).to_socket_addrs();
    let reason = match found.map(|mut all| all.next()) {
        Ok(Some(addr)) => return Ok(addr),
        Ok(None) => "it has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(failure(NO_NAME, format!("no address for {name}: {reason}")))
}

/// The address that a text is, with `port`.
pub(crate) fn numeric(text: &str, port: u16) -> Outcome<SocketAddr> {
    let ip: Result<IpAddr, _> = text.parse();
    let ip = ip.map_err(|_| failure(FAILED, format!("{text} is no IP address")))?;
    Ok(SocketAddr::new(ip, port))
}

/// A number of one byte: decimal, with `0x` hexadecimal, with another zero before it octal.
pub(crate) fn byte(text: &str) -> Result<u8, String> {
    let number = if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        u8::from_str_radix(digits, 16)
    } else if let Some(digits @ [_, ..]) = text.strip_prefix('0').map(str::as_bytes) {
        u8::from_str_radix(&String::from_utf8_lossy(digits), 8)
    } else {
        text.parse()
    };
    number.map_err(|_| "a number from 0 to 255 is needed, such as 32 or 0x20".to_owned())
}
