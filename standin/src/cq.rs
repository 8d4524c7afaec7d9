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
    entries: VecDeque<Reported>,
    /// How many of them take no room.
    extra: usize,
    /// What was reported last.
    last: Option<ibv_wc>,
    room: usize,
    armed: bool,
    /// Queue pairs and shared receive queues that complete here.
    pub(crate) users: u32,
    /// Events of its channel that were handed out and acknowledged.
    pub(crate) handed_out: u32,
    pub(crate) acknowledged: u32,
}

/// A completion that nobody has polled yet.
struct Reported {
    wc: ibv_wc,
    /// A test has put it there, and no request: it takes no room.
    extra: bool,
}

impl Cq {
    /// Takes the completions of a queue pair out. What a test has put there stays.
    pub(crate) fn remove(&mut self, qp_num: u32) {
        self.entries
            .retain(|entry| entry.extra || entry.wc.qp_num != qp_num);
    }
}

impl World {
    /// Reports a finished request.
    pub(crate) fn report(&mut self, cq: usize, entry: ibv_wc) {
        let found = self.cq_mut(cq);
        if found.entries.len() - found.extra >= found.room {
            doom!(
                "the completion queue {cq:#x} has room for {} completions and gets one more",
                found.room
            );
        }
        found.last = Some(entry);
        self.put(
            cq,
            Reported {
                wc: entry,
                extra: false,
            },
        );
    }

    /// Reports what no request has led to.
    pub(crate) fn invent(&mut self, cq: usize, wc: ibv_wc) {
        self.cq_mut(cq).extra += 1;
        self.put(cq, Reported { wc, extra: true });
    }

    /// Reports the last completion again; false when there was none.
    pub(crate) fn repeat(&mut self, cq: usize, times: u32) -> bool {
        let Some(last) = self.cq(cq).last else {
            return false;
        };
        for _ in 0..times {
            self.invent(cq, last);
        }
        true
    }

    fn put(&mut self, cq: usize, entry: Reported) {
        let found = self.cq_mut(cq);
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
            extra: 0,
            last: None,
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
        world.tick();
        let found = world.cq_mut(cq.addr());
        let wanted = usize::try_from(num_entries).unwrap_or(0);
        let count = wanted.min(found.entries.len());
        for (place, entry) in found.entries.drain(..count).enumerate() {
            found.extra -= usize::from(entry.extra);
            arg::write("the completions", wc.wrapping_add(place), entry.wc);
        }
        c_int::try_from(count).unwrap_or(0)
    })
}

/// `ibv_req_notify_cq`, in the device's table.
pub(crate) extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let args = [cq.addr(), call::word(&solicited_only)];
    call::verbs("ibv_req_notify_cq", &args, || {
        let mut world = world();
        world.tick();
        world.cq_mut(cq.addr()).armed = true;
        Ok(())
    })
}
