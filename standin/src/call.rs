#![expect(unsafe_code, reason = "reads arguments as numbers and sets errno")]

use std::cell::Cell;
use std::ffi::c_int;

use crate::calls;
use crate::inject::{self, Failure};
use crate::record;

thread_local! {
    static CURRENT: Cell<&'static str> = const { Cell::new("outside") };
    /// What a call that succeeded leaves in errno all the same.
    static LEFT_BEHIND: Cell<Option<i32>> = const { Cell::new(None) };
}

/// A C errno.
pub(crate) type Errno = i32;

/// Defines exported functions that record themselves, can be told to fail, and keep errno as C would.
///
/// `$how` is the function of this module that stands for the convention by which results are returned.
macro_rules! export {
    ($how:ident: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $(const _: unsafe extern "C" fn($($ty),*) $(-> $ret)? = $crate::c::$name;)*
        export_extra!($how: $(fn $name($($arg: $ty),*) $(-> $ret)? $body)*);
    };
}

/// [`export`] for functions that the bindings have not.
macro_rules! export_extra {
    ($how:ident: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            let args = [$($crate::call::word(&$arg)),*];
            $crate::call::$how(stringify!($name), &args, move || $body)
        }
    )*};
}

/// Defines functions for tests: not recorded, and not to be failed.
macro_rules! control {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) $(-> $ret)? $body
    )*};
}

/// The function that this thread is in.
pub(crate) fn current() -> &'static str {
    CURRENT.get()
}

/// The first bytes of an argument as a number, for the record.
pub(crate) fn word<T: Copy>(value: &T) -> usize {
    let mut word = [0_u8; size_of::<usize>()];
    let length = size_of::<T>().min(word.len());
    // SAFETY: `length` bytes of both are valid: it is the smaller of their sizes. Arguments have no padding.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast(), word.as_mut_ptr(), length);
    }
    usize::from_ne_bytes(word)
}

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_errno(value: Errno) {
    // SAFETY: takes nothing, and gives the address of the calling thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid while the thread lives.
    unsafe { errno.write(value) };
}

/// Makes the call that is running leave `value` in errno although it succeeds.
pub(crate) fn leave_behind(value: Errno) {
    LEFT_BEHIND.set(Some(value));
}

struct Call {
    name: &'static str,
    outer: &'static str,
    errno: Errno,
    entered: u64,
    args: [usize; 4],
}

impl Call {
    fn enter(name: &'static str, args: &[usize]) -> (Self, Option<Failure>) {
        let errno = errno();
        calls::expect_outside(name);
        let outer = CURRENT.replace(name);
        LEFT_BEHIND.set(None);
        let mut kept = [0; 4];
        for (kept, arg) in kept.iter_mut().zip(args) {
            *kept = *arg;
        }
        let call = Self {
            name,
            outer,
            errno,
            entered: record::number(),
            args: kept,
        };
        (call, inject::failure(name))
    }

    /// Ends the call; `errno` is what it sets, if it sets it.
    fn leave(self, returned: i64, errno: Option<Errno>) {
        record::add(self.name, self.entered, self.args, returned, errno);
        CURRENT.set(self.outer);
        let left = errno.or(LEFT_BEHIND.take()).unwrap_or(self.errno);
        set_errno(left);
    }
}

/// 0, or -1 and errno.
pub(crate) fn rdma(
    name: &'static str,
    args: &[usize],
    body: impl FnOnce() -> Result<(), Errno>,
) -> c_int {
    let (call, failure) = Call::enter(name, args);
    let (returned, errno) = match failure {
        Some(failure) => (failure.returned, Some(failure.errno)),
        None => match body() {
            Ok(()) => (0, None),
            Err(errno) => (-1, Some(errno)),
        },
    };
    call.leave(returned, errno);
    small(returned)
}

/// 0, or the errno, and errno itself untouched.
pub(crate) fn verbs(
    name: &'static str,
    args: &[usize],
    body: impl FnOnce() -> Result<(), Errno>,
) -> c_int {
    let (call, failure) = Call::enter(name, args);
    let (returned, errno) = match failure {
        Some(failure) => (failure.returned, Some(failure.errno)),
        None => match body() {
            Ok(()) => (0, None),
            Err(errno) => (i64::from(errno), None),
        },
    };
    call.leave(returned, errno);
    small(returned)
}

/// A pointer, or null and errno.
pub(crate) fn pointer<T>(
    name: &'static str,
    args: &[usize],
    body: impl FnOnce() -> Result<*mut T, Errno>,
) -> *mut T {
    let (call, failure) = Call::enter(name, args);
    let (pointer, errno) = match failure {
        Some(failure) => (std::ptr::null_mut(), Some(failure.errno)),
        None => match body() {
            Ok(pointer) => (pointer, None),
            Err(errno) => (std::ptr::null_mut(), Some(errno)),
        },
    };
    let shown = i64::try_from(pointer.addr()).unwrap_or(-1);
    call.leave(shown, errno);
    pointer
}

/// A number that is a count, or what a planned failure says.
pub(crate) fn count(name: &'static str, args: &[usize], body: impl FnOnce() -> c_int) -> c_int {
    let (call, failure) = Call::enter(name, args);
    let (returned, errno) = match failure {
        Some(failure) => (failure.returned, Some(failure.errno)),
        None => (i64::from(body()), None),
    };
    call.leave(returned, errno);
    small(returned)
}

/// Whatever the body gives: the call cannot fail.
pub(crate) fn plain<T>(name: &'static str, args: &[usize], body: impl FnOnce() -> T) -> T {
    let (call, _) = Call::enter(name, args);
    let value = body();
    call.leave(0, None);
    value
}

fn small(returned: i64) -> c_int {
    c_int::try_from(returned).unwrap_or(-1)
}
