//! The rule for the extended table, on tables of every length that start right after a page nobody may touch.

use core::ffi::c_int;
use core::mem::{align_of, offset_of, size_of};
use core::ptr;

use super::verbs_get_ctx;
use crate::{
    ibv_context, ibv_create_cq_ex, ibv_dealloc_td, ibv_post_srq_ops, ibv_srq, ibv_td, verbs_context,
};

/// A context whose structure begins with a given member, as in a library of a given age. What lies before it faults.
struct OldContext {
    pages: *mut libc::c_void,
    page: usize,
    context: *mut ibv_context,
}

impl OldContext {
    /// `first` is the offset of the library's first member in today's structure.
    fn beginning_at(first: usize) -> Self {
        // SAFETY: takes no pointer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).expect("a page size");
        let size = size_of::<verbs_context>() - first;
        assert!(size <= page && first % align_of::<verbs_context>() == 0);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                2 * page,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(pages, libc::MAP_FAILED);
        let start = pages.wrapping_byte_add(page);
        // SAFETY: the second page of the mapping just made.
        let done = unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(done, 0);
        let whole = start.wrapping_byte_sub(first).cast::<verbs_context>();
        let context = whole
            .wrapping_byte_add(offset_of!(verbs_context, context))
            .cast::<ibv_context>();
        if first <= offset_of!(verbs_context, sz) {
            let sz = whole
                .wrapping_byte_add(offset_of!(verbs_context, sz))
                .cast::<usize>();
            // SAFETY: on the writable page, right before the context.
            unsafe { sz.write(size) };
        }
        // SAFETY: on the writable page; the rest of the context is zeroes.
        unsafe { (*context).abi_compat = ptr::without_provenance_mut(usize::MAX) };
        Self {
            pages,
            page,
            context,
        }
    }

    /// The address of today's structure. Its front may be missing.
    fn whole(&self) -> *mut verbs_context {
        self.context
            .wrapping_byte_sub(offset_of!(verbs_context, context))
            .cast()
    }
}

impl Drop for OldContext {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, which nothing uses any more.
        let done = unsafe { libc::munmap(self.pages, 2 * self.page) };
        debug_assert_eq!(done, 0);
    }
}

/// The members of `verbs_context` that are looked up, from the newest to the oldest.
macro_rules! for_each_entry {
    ($check:ident) => {
        $check!(
            free_buf alloc_buf dm_export_dmabuf_fd reg_mr_ex dealloc_dmah alloc_dmah query_port advise_mr
            alloc_null_mr read_counters attach_counters_point_flow create_counters destroy_counters reg_dm_mr
            alloc_dm free_dm destroy_flow_action modify_qp_rate_limit alloc_parent_domain dealloc_td alloc_td
            modify_cq post_srq_ops destroy_rwq_ind_table create_rwq_ind_table destroy_wq modify_wq create_wq
            query_rt_values create_cq_ex query_device_ex ibv_destroy_flow ibv_create_flow open_qp create_qp_ex
            get_srq_num create_srq_ex open_xrcd close_xrcd
        )
    };
}

macro_rules! offsets {
    ($($name:ident)*) => { [$(offset_of!(verbs_context, $name)),*] };
}

/// Which entries a context has, in the order of the list.
fn found(context: *mut ibv_context) -> Vec<bool> {
    macro_rules! look_up {
        ($($name:ident)*) => {
            vec![$({
                // SAFETY: a made-up context that keeps the rules of an open one.
                let entry = unsafe { entry!(context, $name) };
                entry.is_some()
            }),*]
        };
    }
    for_each_entry!(look_up)
}

/// What the tables are filled with: not null, and never called.
fn fill(old: &OldContext, first: usize) {
    let words = (offset_of!(verbs_context, sz) - first) / size_of::<usize>();
    for word in 0..words {
        let place = old
            .whole()
            .wrapping_byte_add(first)
            .cast::<usize>()
            .wrapping_add(word);
        // SAFETY: on the writable page, before `sz`.
        unsafe { place.write(fill as *const () as usize) };
    }
}

#[test]
fn a_table_of_any_age_gives_what_it_has_and_is_not_read_beyond() {
    let offsets = for_each_entry!(offsets);
    assert!(
        offsets.is_sorted(),
        "the list goes from the newest to the oldest"
    );
    for (index, first) in offsets.into_iter().enumerate() {
        let old = OldContext::beginning_at(first);
        fill(&old, first);
        let found = found(old.context);
        assert!(
            found[..index].iter().all(|there| !there),
            "newer than the table: {found:?}"
        );
        assert!(
            found[index..].iter().all(|there| *there),
            "in the table: {found:?}"
        );
    }
}

#[test]
fn an_empty_entry_is_not_there() {
    let old = OldContext::beginning_at(0);
    assert!(found(old.context).iter().all(|there| !there));
}

#[test]
fn nothing_is_read_before_a_context_that_is_not_extended() {
    let old = OldContext::beginning_at(offset_of!(verbs_context, context));
    // SAFETY: the context is on the writable page.
    unsafe { (*old.context).abi_compat = ptr::null_mut() };
    assert!(found(old.context).iter().all(|there| !there));
    // SAFETY: a made-up context that keeps the rules of an open one.
    assert!(unsafe { verbs_get_ctx(old.context) }.is_null());
}

#[test]
fn what_is_missing_is_said_in_the_way_of_each_function() {
    let old = OldContext::beginning_at(0);
    super::set_errno(0);
    // SAFETY: a made-up context; the attributes are not read, because there is no entry to call.
    let cq = unsafe { ibv_create_cq_ex(old.context, ptr::null_mut()) };
    assert!(cq.is_null());
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EOPNOTSUPP)
    );

    let mut td = ibv_td {
        context: old.context,
    };
    // SAFETY: a made-up domain of a made-up context.
    assert_eq!(unsafe { ibv_dealloc_td(&raw mut td) }, libc::EOPNOTSUPP);

    // SAFETY: plain data and pointers, for which zeroes are valid.
    let mut srq: ibv_srq = unsafe { core::mem::zeroed() };
    srq.context = old.context;
    let (op, mut bad) = (ptr::dangling_mut(), ptr::null_mut());
    // SAFETY: a made-up queue of a made-up context; the operation is not read.
    let result = unsafe { ibv_post_srq_ops(&raw mut srq, op, &raw mut bad) };
    assert_eq!(result, libc::EOPNOTSUPP);
    assert_eq!(bad, op);
}

#[test]
fn an_entry_is_called_with_the_arguments_as_they_are() {
    unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
        // SAFETY: the test passes its own.
        c_int::from(unsafe { (*td).context.is_null() }) + 41
    }
    let old = OldContext::beginning_at(0);
    // SAFETY: the whole structure is on the writable page.
    unsafe { (*old.whole()).dealloc_td = Some(dealloc_td) };
    let mut td = ibv_td {
        context: old.context,
    };
    // SAFETY: a made-up domain of a made-up context.
    assert_eq!(unsafe { ibv_dealloc_td(&raw mut td) }, 41);
    // SAFETY: a made-up context that keeps the rules of an open one.
    assert_eq!(unsafe { verbs_get_ctx(old.context) }, old.whole());
}
