#![expect(unsafe_code, reason = "makes a Context of an id's device")]

use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::ibv_context;

use super::channel::EventChannel;
use super::handle::{Handle, Verbs};
use super::id::CmId;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{Context, WeakContext};

/// The devices that this process has a [`Context`] of.
static CONTEXTS: Mutex<Vec<(Verbs, WeakContext)>> = Mutex::new(Vec::new());

/// The device of an id, which `op` needs.
///
/// librdmacm owns `id->verbs` and keeps it open only while an id is bound to it. So a `Context` holds an id of its own, the
/// anchor, bound to the same device. There is one per device, shared by all ids on it.
pub(super) fn context_of(op: &'static str, handle: &Arc<Handle>) -> Result<Context> {
    let view = handle.view();
    let Some(verbs) = view.verbs else {
        return Err(Error::state(
            op,
            "an id that is bound to a device",
            "the id is new, or bound to every address",
        ));
    };
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.retain(|(_, context)| context.is_alive());
    // An entry that is alive keeps its device open, so an equal pointer is the same device.
    let mut known = contexts.iter().filter(|(open, _)| *open == verbs);
    if let Some(context) = known.find_map(|(_, context)| context.upgrade()) {
        return Ok(context);
    }
    let anchor = match view.local {
        Some(local) => Anchor::new(local, verbs)?,
        None => None,
    };
    let keeper: Box<dyn Send + Sync> = match anchor {
        Some(anchor) => Box::new(anchor),
        // The address leads to another device now, or to none: the id itself must do, which lives as long as the context.
        None => Box::new(Arc::clone(handle)),
    };
    // SAFETY: `verbs` is the open device of `handle`, and of the anchor. While either is bound to it, librdmacm keeps it open.
    let context = unsafe { Context::from_raw(verbs.0, keeper) }?;
    contexts.push((verbs, context.downgrade()));
    drop(contexts);
    Ok(context)
}

/// Whether there is a [`Context`] of the device, whose anchor looks whether the device is gone. False where that cannot be said.
pub(super) fn is_anchored(verbs: Verbs) -> bool {
    // An anchor that turns out to be of no use is dropped with the lock held.
    CONTEXTS.try_lock().is_ok_and(|contexts| {
        contexts
            .iter()
            .any(|(open, context)| *open == verbs && context.is_alive())
    })
}

/// An id that keeps a device open, on a channel that nobody reads.
///
/// librdmacm counts ids from the moment when they are bound to a device until `rdma_destroy_id`. When it compares its list of
/// devices with the kernel's, it closes one that it misses and that has no ids, and only marks one that has: that one is closed
/// with its last id. This is the same in rdma-core 39 to 65. What is missed differs: 39 to 51 sort by differences of pointers that
/// do not fit into their type, and may miss a device that is there because another was added. The anchor holds that one too; ids
/// that are bound later are then on a second `ibv_context` of the device, which gets a `Context` and an anchor of its own.
struct Anchor {
    /// Dropped first: it needs the channel.
    _id: CmId,
    channel: EventChannel,
}

impl Anchor {
    /// Binds an id to `local`; `None` if that does not lead to the device `verbs`.
    fn new(mut local: SocketAddr, verbs: Verbs) -> Result<Option<Self>> {
        let channel = EventChannel::new()?;
        let id = CmId::new(&channel)?;
        local.set_port(0);
        match id.bind_addr(local) {
            // What there is too little of now is there later: no reason to hold up somebody's id for good.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(error),
            Err(_) => Ok(None),
            Ok(()) => {
                let same = id.handle().view().verbs == Some(verbs);
                Ok(same.then_some(Self { _id: id, channel }))
            }
        }
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        // Only by reading does the anchor learn that its device is gone; its own end, next, lets go of it.
        while let Ok(Some(_)) = self.channel.try_event() {}
    }
}

/// Has librdmacm close the devices that were removed and that nothing uses any more.
///
/// It does so only when it compares its list of devices again, which `rdma_get_devices` makes it do. Until then the removal
/// waits in the kernel. (The last RDMA device of the machine is not closed: the comparison fails first.)
pub(super) fn let_go_of_removed_devices() {
    // SAFETY: `rdma_get_devices` wants room for a number, or null.
    let list = unsafe { rdma_sys::rdma_get_devices(ptr::null_mut()) };
    if list.is_null() {
        return;
    }
    for place in 0.. {
        // SAFETY: the list ends with a null pointer, and the loop ends there.
        let entry = unsafe { list.add(place) };
        // SAFETY: as above.
        let device = unsafe { entry.read() };
        if device.is_null() {
            break;
        }
        give_back(device);
    }
    // SAFETY: the list came from `malloc`, and its entries were given back.
    unsafe { libc::free(list.cast()) };
}

/// Gives back one device of a list alone: with more than one in the list, `rdma_free_devices` reads a device that it has
/// just freed, when it was removed meanwhile.
fn give_back(device: *mut ibv_context) {
    // SAFETY: `calloc` may be called with any sizes.
    let list = unsafe { libc::calloc(2, size_of::<*mut ibv_context>()) };
    let list: *mut *mut ibv_context = list.cast();
    if list.is_null() {
        // The device stays counted, and open: a leak is all that is left to do.
        return;
    }
    // SAFETY: there is room for two pointers; the second is null, as the end of the list.
    unsafe { list.write(device) };
    // SAFETY: `rdma_free_devices` wants a list from `malloc` with devices that `rdma_get_devices` has counted.
    unsafe { rdma_sys::rdma_free_devices(list) };
}
