#![expect(unsafe_code, reason = "makes a Context of an id's device")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::channel::EventChannel;
use super::handle::{Handle, Verbs};
use super::id::CmId;
use crate::error::{Error, Result};
use crate::verbs::{Context, WeakContext};

/// The devices that this process has a [`Context`] of.
static CONTEXTS: Mutex<Vec<(Verbs, WeakContext)>> = Mutex::new(Vec::new());

/// The device of an id.
///
/// librdmacm owns `id->verbs` and keeps it open only while an id is bound to it. So a `Context` holds an id of its own, the
/// anchor, bound to the same device. There is one per device, shared by all ids on it.
pub(super) fn context_of(handle: &Arc<Handle>) -> Result<Context> {
    let view = handle.view();
    let Some(verbs) = view.verbs else {
        return Err(Error::state(
            "rdma_cm_id.verbs",
            "an id that is bound to a device",
            "the id is new, or bound to every address",
        ));
    };
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.retain(|(_, context)| context.upgrade().is_some());
    // An entry that is alive keeps its device open, so an equal pointer is the same device.
    let known = contexts.iter().find(|(open, _)| *open == verbs);
    if let Some(context) = known.and_then(|(_, context)| context.upgrade()) {
        return Ok(context);
    }
    let keeper: Box<dyn Send + Sync> = match view.local.and_then(|local| anchor(local, verbs)) {
        Some(anchor) => Box::new(anchor),
        None => Box::new(Arc::clone(handle)),
    };
    // SAFETY: `verbs` is the open device of `handle`, and of the anchor. While either is bound to it, librdmacm keeps it open.
    let context = unsafe { Context::from_raw(verbs.0, keeper) }?;
    contexts.push((verbs, context.downgrade()));
    Ok(context)
}

/// An id on the same device, on a channel that nobody reads; `None` if none can be had.
fn anchor(local: SocketAddr, verbs: Verbs) -> Option<CmId> {
    let anchor = CmId::new(&EventChannel::new().ok()?).ok()?;
    let mut local = local;
    local.set_port(0);
    anchor.bind_addr(local).ok()?;
    (anchor.handle().view().verbs == Some(verbs)).then_some(anchor)
}
