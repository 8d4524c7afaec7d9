//! What a measurement has found wrong.

use std::process::ExitCode;

/// Tells each on standard error. The status is 0 when there are none.
pub(crate) fn tell(faults: &[String]) -> ExitCode {
    for fault in faults {
        eprintln!("error: {fault}");
    }
    if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
