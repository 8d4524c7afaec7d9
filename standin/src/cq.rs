#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::time::Instant;

use crate::arg;
use crate::c::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};
use crate::call;
use crate::device::present;
use crate::doom::doom;
use crate::poison::{Obj, zeroed};
use crate::world::{World, changed, wait, world};

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) c: Obj<ibv_cq>,
    pub(crate) device: usize,
    comp: Option<usize>,
    entries: VecDeque<ibv_wc>,
    room: usize,
    armed: bool,
    /// Queue pairs and shared receive queues that complete here.
    pub(crate) users: u32,
    /// Events of its channel that were handed out and acknowledged.
    pub(crate) handed_out: u32,
    pub(crate) acknowledged: u32,
}

impl World {
    /// Reports a finished request.
    pub(crate) fn report(&mut self, cq: usize, entry: ibv_wc) {
        let found = self.cq_mut(cq);
        if found.entries.len() >= found.room {
            doom!(
                "the completion queue {cq:#x} has room for {} completions and gets one more",
                found.room
            );
        }
        found.entries.push_back(entry);
        if !found.armed {
            return;
        }
        found.armed = false;
        if let Some(comp) = found.comp {
            let comp = self.comp_mut(comp);
            comp.events.push_back(cq);
            comp.signal.set(true);
            changed();
        }
    }
}

export! { pointer:
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq {
        let mut world = world();
        let device = world.device_of(context.addr());
        present(&world, device)?;
        let room = usize::try_from(cqe).unwrap_or(0);
        if room == 0 || cqe > world.devices[device].attr.max_cqe || comp_vector != 0 {
            return Err(libc::EINVAL);
        }
        let mut c: ibv_cq = zeroed();
        c.context = context;
        c.channel = channel;
        c.cq_context = cq_context;
        c.cqe = cqe;
        c.handle = world.number();
        let comp = (!channel.is_null()).then(|| channel.addr());
        if let Some(comp) = comp {
            world.comp(comp).c.edit(|c| c.refcnt += 1);
        }
        let c = Obj::new(c);
        let raw = c.raw();
        let cq = Cq {
            c,
            device,
            comp,
            entries: VecDeque::new(),
            room,
            armed: false,
            users: 0,
            handed_out: 0,
            acknowledged: 0,
        };
        world.cqs.insert(raw.addr(), cq);
        Ok(raw)
    }
}

export! { verbs:
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
        let mut world = world();
        let address = cq.addr();
        if world.cq(address).users > 0 {
            return Err(libc::EBUSY);
        }
        if let Some(comp) = world.cq(address).comp {
            let comp = world.comp_mut(comp);
            comp.events.retain(|queue| *queue != address);
            let more = !comp.events.is_empty();
            comp.signal.set(more);
        }
        let since = Instant::now();
        loop {
            let (out, acknowledged) = (world.cq(address).handed_out, world.cq(address).acknowledged);
            if acknowledged >= out {
                break;
            }
            world = wait(world, since, || {
                format!("{out} events of the completion queue were handed out and {acknowledged} acknowledged")
            });
        }
        if let Some(cq) = world.cqs.remove(address) {
            if let Some(comp) = cq.comp {
                world.comp(comp).c.edit(|c| c.refcnt -= 1);
            }
            world.bury("completion queue", cq.c);
        }
        Ok(())
    }

    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
        let mut world = world();
        let room = usize::try_from(cqe).unwrap_or(0);
        let found = world.cq_mut(cq.addr());
        if room == 0 || room < found.entries.len() {
            return Err(libc::EINVAL);
        }
        found.room = room;
        found.c.edit(|c| c.cqe = cqe);
        Ok(())
    }
}

/// `ibv_poll_cq`, in the device's table.
pub(crate) extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let args = [cq.addr(), call::word(&num_entries), wc.addr()];
    call::count("ibv_poll_cq", &args, || {
        let mut world = world();
        let found = world.cq_mut(cq.addr());
        let wanted = usize::try_from(num_entries).unwrap_or(0);
        let count = wanted.min(found.entries.len());
        for (place, entry) in found.entries.drain(..count).enumerate() {
            arg::write("the completions", wc.wrapping_add(place), entry);
        }
        c_int::try_from(count).unwrap_or(0)
    })
}

/// `ibv_req_notify_cq`, in the device's table.
pub(crate) extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let args = [cq.addr(), call::word(&solicited_only)];
    call::verbs("ibv_req_notify_cq", &args, || {
        world().cq_mut(cq.addr()).armed = true;
        Ok(())
    })
}
