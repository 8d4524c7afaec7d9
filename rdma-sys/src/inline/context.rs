//! The extended table of a device, which lies in front of its `ibv_context`.
//!
//! `verbs_context` ends with an `ibv_context`, and the library hands out the address of that. New entries are added at
//! the *front*, so an entry keeps its distance to the end, and a library that is older than the bindings has a shorter
//! structure. Hence two rules: an entry is found by its distance back from the `ibv_context`, and it is read only after
//! `sz`, the structure's own size, has shown that it is there. A reference to a whole `verbs_context` is never formed.

use core::ffi::c_int;
use core::mem::{offset_of, size_of};

use crate::{ibv_context, verbs_context};

/// How far `sz` lies before the `ibv_context`.
const SIZE_BELOW: usize = offset_of!(verbs_context, context) - offset_of!(verbs_context, sz);

/// How `abi_compat` of a context marks that there is a `verbs_context` around it.
const EXTENDED: usize = usize::MAX;

/// The `verbs_context` around a context, or null if it has none.
///
/// The front of the structure may be missing: see the rules of this crate's [extended table](crate#the-extended-table).
///
/// # Safety
///
/// `context` is an open device context.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller passes an open context. `abi_compat` is written once, before the library hands it out.
    let mark = unsafe { (*context).abi_compat };
    if mark.addr() != EXTENDED {
        return core::ptr::null_mut();
    }
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

/// The entry that lies `below` bytes before a context; none if the library is older than the entry.
///
/// `_field` is never called: it is there so that the entry's type is the field's.
///
/// # Safety
///
/// `context` is an open device context, and `below` is the distance of the field that `_field` returns.
#[inline]
pub(super) unsafe fn find<T: Copy>(
    context: *mut ibv_context,
    below: usize,
    _field: fn(&verbs_context) -> Option<T>,
) -> Option<T> {
    // SAFETY: the caller passes an open context. `abi_compat` is written once, before the library hands it out.
    let mark = unsafe { (*context).abi_compat };
    if mark.addr() != EXTENDED {
        return None;
    }
    // SAFETY: the mark says that the context is the last member of a `verbs_context`, all versions of which have `sz`
    // at this distance. Both are in one allocation of the library.
    let size = unsafe { context.byte_sub(SIZE_BELOW) };
    // SAFETY: as above; the library has written it, and never does again.
    let size = unsafe { size.cast::<usize>().read() };
    if size < below + size_of::<ibv_context>() {
        return None;
    }
    // SAFETY: the library's structure is `size` bytes long and ends with the context, so it begins at or before the
    // entry, which is therefore in the same allocation.
    let entry = unsafe { context.byte_sub(below) };
    // SAFETY: as above. The type is the field's, by the caller, and an entry that a driver leaves out is null.
    unsafe { entry.cast::<Option<T>>().read() }
}

/// Looks an entry of the extended table up by its name.
macro_rules! entry {
    ($context:expr, $name:ident) => {
        $crate::inline::context::find(
            $context,
            const {
                ::core::mem::offset_of!($crate::verbs_context, context)
                    - ::core::mem::offset_of!($crate::verbs_context, $name)
            },
            |table| table.$name,
        )
    };
}
pub(super) use entry;

/// What a function returns when the library or the driver does not have it.
pub(super) trait Unsupported {
    fn unsupported() -> Self;
}

impl Unsupported for c_int {
    fn unsupported() -> Self {
        libc::EOPNOTSUPP
    }
}

impl<T> Unsupported for *mut T {
    fn unsupported() -> Self {
        set_errno(libc::EOPNOTSUPP);
        core::ptr::null_mut()
    }
}

/// Sets the thread's `errno`.
pub(super) fn set_errno(value: c_int) {
    #[cfg(target_os = "freebsd")]
    // SAFETY: takes nothing, and gives the address of the calling thread's `errno`.
    let errno = unsafe { libc::__error() };
    #[cfg(not(target_os = "freebsd"))]
    // SAFETY: takes nothing, and gives the address of the calling thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid while the thread lives, and nobody else writes to it.
    unsafe { errno.write(value) };
}

/// Declares functions that only look their entry up and call it.
///
/// `on context` takes the device context from that argument, `of object` from the member `context` of that argument.
macro_rules! through_context {
    ($(
        $(#[$doc:meta])*
        fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $entry:ident $how:ident $object:ident;
    )*) => {$(
        $(#[$doc])*
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            $crate::inline::context::context_of!($how $object context);
            // SAFETY: the object is live by the caller's promise, so its device is open; the macro pairs the entry's
            // distance with its type.
            let entry = unsafe { $crate::inline::context::entry!(context, $entry) };
            match entry {
                // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
                Some(call) => unsafe { call($($arg),*) },
                None => $crate::inline::context::Unsupported::unsupported(),
            }
        }
    )*};
}
pub(super) use through_context;

/// Binds the device context that a function of `through_context` works on.
macro_rules! context_of {
    (on $object:ident $context:ident) => {
        let $context = $object;
    };
    (of $object:ident $context:ident) => {
        // SAFETY: the caller passes a live object; its `context` never changes.
        let $context = unsafe { (*$object).context };
    };
}
pub(super) use context_of;
#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
