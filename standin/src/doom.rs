#![expect(unsafe_code, reason = "ends the process")]

use crate::call;

/// Ends the process with one line that says what the caller did wrong.
///
/// Written past the test harness, which would keep it to itself.
#[cold]
pub(crate) fn die(message: &str) -> ! {
    let line = format!("standin: {}: {message}\n", call::current());
    // SAFETY: `write` wants a readable buffer of the length given.
    let _ = unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    // SAFETY: takes nothing, and does not return.
    unsafe { libc::abort() }
}

/// [`die`] with a formatted message.
macro_rules! doom {
    ($($arg:tt)*) => {
        $crate::doom::die(&format!($($arg)*))
    };
}
pub(crate) use doom;
