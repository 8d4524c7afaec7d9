//! The system calls that the standard library lacks.
//!
//! The init is compiled by `build.rs` without any crate, so the C functions are declared here, for 64-bit Linux.

#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

unsafe extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn sethostname(name: *const c_char, length: usize) -> c_int;
    fn reboot(command: c_int) -> c_int;
    fn setrlimit(resource: c_int, limit: *const [u64; 2]) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn setsid() -> c_int;
    fn sync();
    fn umask(mask: c_uint) -> c_uint;
}

pub(crate) const MS_RDONLY: c_ulong = 1;
pub(crate) const MS_BIND: c_ulong = 0x1000;
pub(crate) const MS_MOVE: c_ulong = 0x2000;
pub(crate) const NETLINK_ROUTE: c_int = 0;
pub(crate) const NETLINK_RDMA: c_int = 20;
pub(crate) const RLIMIT_NOFILE: c_int = 7;
pub(crate) const RLIMIT_MEMLOCK: c_int = 8;
pub(crate) const UNLIMITED: u64 = u64::MAX;

#[cfg(target_arch = "x86_64")]
const SYS_FINIT_MODULE: c_long = 313;
#[cfg(not(target_arch = "x86_64"))]
const SYS_FINIT_MODULE: c_long = 273;
const AF_NETLINK: c_int = 16;
const SOCK_RAW_CLOEXEC: c_int = 3 | 0o2_000_000;
const POWER_OFF: c_int = 0x4321_fedc;
const TIOCSPTLCK: c_ulong = 0x4004_5431;
const TIOCGPTN: c_ulong = 0x8004_5430;
const TIOCSCTTY: c_ulong = 0x540e;
const TIOCSWINSZ: c_ulong = 0x5414;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Mounts a file system.
pub(crate) fn mount_fs(
    source: &str,
    target: &str,
    kind: &str,
    flags: c_ulong,
    data: &str,
) -> io::Result<()> {
    let (source, target, kind, data) = (
        c_string(source)?,
        c_string(target)?,
        c_string(kind)?,
        c_string(data)?,
    );
    // SAFETY: mount(2) reads four NUL-terminated strings; the four `CString`s above own them until after the call.
    check(unsafe {
        mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    })
    .map(drop)
}

/// Sets the machine's name.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: sethostname(2) reads `length` bytes from `name`, which the borrowed string holds.
    check(unsafe { sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Stops the machine. Returns only if that failed.
pub(crate) fn power_off() {
    // SAFETY: reboot(2) takes a number and touches no memory of this process.
    unsafe { reboot(POWER_OFF) };
}

/// Writes every file system's cached data back.
pub(crate) fn sync_all() {
    // SAFETY: sync(2) has no arguments and no failure.
    unsafe { sync() };
}

/// Clears the file mode creation mask's group and other read bits, as a login does.
pub(crate) fn set_umask(mask: c_uint) {
    // SAFETY: umask(2) takes a number and cannot fail.
    unsafe { umask(mask) };
}

/// Sets a resource limit, soft and hard.
pub(crate) fn set_limit(resource: c_int, value: u64) -> io::Result<()> {
    // SAFETY: on 64-bit Linux `struct rlimit` is two 64-bit numbers, read during the call from the array that lives
    // until the end of the statement.
    check(unsafe { setrlimit(resource, &[value, value]) }).map(drop)
}

/// Loads a kernel module from an open file.
pub(crate) fn load_module(file: &File, parameters: &CStr) -> io::Result<()> {
    // SAFETY: finit_module(2) takes a descriptor, which `file` keeps open, a NUL-terminated string, which
    // `parameters` keeps alive, and flags; the registers are passed as the 64-bit values that syscall(2) expects.
    let result = unsafe {
        syscall(
            SYS_FINIT_MODULE,
            c_long::from(file.as_raw_fd()),
            parameters.as_ptr(),
            0 as c_long,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Waits for any child to end, which also takes in orphans. Returns its process id and its raw status.
pub(crate) fn wait_any() -> io::Result<(i32, c_int)> {
    let mut status = 0;
    // SAFETY: waitpid(2) writes one int to the status pointer, which points to a live local.
    let pid = check(unsafe { waitpid(-1, &raw mut status, 0) })?;
    Ok((pid, status))
}

/// Sends a signal to a process group.
pub(crate) fn signal_group(group: i32, signal: c_int) {
    // SAFETY: kill(2) takes two numbers; a group that is gone is an error that nobody needs.
    unsafe { kill(-group, signal) };
}

/// Opens a netlink socket; what is written goes to the kernel.
pub(crate) fn netlink(protocol: c_int) -> io::Result<File> {
    // SAFETY: socket(2) takes three numbers.
    let fd = check(unsafe { socket(AF_NETLINK, SOCK_RAW_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor is new, valid, and owned by nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Opens a pseudo-terminal of the given size: the controlling side, and the other side for the command.
pub(crate) fn open_terminal(size: (u16, u16)) -> io::Result<(File, File)> {
    let open = |path: &str| File::options().read(true).write(true).open(path);
    let control = open("/dev/ptmx")?;
    let (mut number, unlocked): (c_uint, c_int) = (0, 0);
    // SAFETY: TIOCSPTLCK reads one int through the pointer, which points to a live local; zero unlocks the other side.
    check(unsafe { ioctl(control.as_raw_fd(), TIOCSPTLCK, &raw const unlocked) })?;
    // SAFETY: TIOCGPTN writes one unsigned int through the pointer, which points to a live local.
    check(unsafe { ioctl(control.as_raw_fd(), TIOCGPTN, &raw mut number) })?;
    resize_terminal(&control, size)?;
    let command = open(&format!("/dev/pts/{number}"))?;
    Ok((control, command))
}

/// Sets the size (rows, columns) of a pseudo-terminal.
pub(crate) fn resize_terminal(control: &File, (rows, columns): (u16, u16)) -> io::Result<()> {
    let size = [rows, columns, 0, 0];
    // SAFETY: TIOCSWINSZ reads a `struct winsize`, four 16-bit numbers, which the array holds.
    check(unsafe { ioctl(control.as_raw_fd(), TIOCSWINSZ, size.as_ptr()) }).map(drop)
}

/// Makes the command the leader of a new session whose controlling terminal is its standard input.
pub(crate) fn lead_session(command: &mut Command) {
    let prepare = || {
        // SAFETY: setsid(2) has no arguments.
        check(unsafe { setsid() })?;
        // SAFETY: TIOCSCTTY takes a number. Descriptor 0 is the terminal: std has set it up before this runs.
        check(unsafe { ioctl(0, TIOCSCTTY, 0 as c_int) }).map(drop)
    };
    // SAFETY: the closure runs in the child between fork and exec: it allocates nothing, takes no lock and makes two
    // system calls, which are async-signal-safe.
    unsafe { command.pre_exec(prepare) };
}
