//! The three conventions by which the C libraries report failure, in three helpers and nowhere else.

use std::io;
use std::ptr::NonNull;

/// The errno that the last failing C call of this thread left.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `rdma_*`, and what reads events in libibverbs (`ibv_get_cq_event`, `ibv_get_async_event`): 0 for success, -1 and errno for
/// failure.
pub(crate) fn errno_of_rdma(returned: i32) -> Result<(), i32> {
    if returned == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Most of `ibv_*`: 0 for success, otherwise the errno itself. Some providers return it negative.
pub(crate) fn errno_of_verbs(returned: i32) -> Result<(), i32> {
    match returned {
        0 => Ok(()),
        errno => Err(errno.saturating_abs()),
    }
}

/// Functions that return a pointer: null and errno for failure.
pub(crate) fn pointer_of<T>(returned: *mut T) -> Result<NonNull<T>, i32> {
    NonNull::new(returned).ok_or_else(last_errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_return_the_errno_and_never_read_it() {
        assert_eq!(errno_of_verbs(0), Ok(()));
        assert_eq!(errno_of_verbs(22), Err(22));
        assert_eq!(errno_of_verbs(-12), Err(12));
        assert_eq!(errno_of_verbs(i32::MIN), Err(i32::MAX));
    }

    #[test]
    fn zero_is_success_whatever_errno_says() {
        let missing = std::fs::File::open("/nonexistent/file");
        assert!(missing.is_err());
        assert_eq!(errno_of_rdma(0), Ok(()));
        assert!(pointer_of(&raw mut *Box::new(1_u8)).is_ok());
    }

    #[test]
    fn a_null_pointer_and_minus_one_read_errno() {
        let missing = std::fs::File::open("/nonexistent/file");
        assert!(missing.is_err());
        assert_eq!(errno_of_rdma(-1), Err(libc::ENOENT));
        assert_eq!(pointer_of::<u8>(std::ptr::null_mut()), Err(libc::ENOENT));
    }
}
