#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::time::Instant;

use crate::arg;
use crate::asynchronous::{Element, Told, acknowledged};
use crate::c::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc, ibv_wc_status};
use crate::call;
use crate::device::present;
use crate::doom::doom;
use crate::orders::{RECV, SEND};
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
    armed: Option<Wanted>,
    /// Its asynchronous events.
    pub(crate) told: Told,
    /// Queue pairs and shared receive queues that complete here.
    pub(crate) users: u32,
    /// Events of its channel that were handed out and acknowledged.
    pub(crate) handed_out: u32,
    pub(crate) acknowledged: u32,
}

/// What a queue that is armed waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A message whose sender asks for it, or a failure.
    Solicited,
    Any,
}

/// A completion that nobody has polled yet.
struct Reported {
    wc: ibv_wc,
    /// What comes free when it is polled. `None`: a test has put it there, and no request. It takes no room.
    frees: Option<Slots>,
}

/// Slots of a queue of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slots {
    /// So many on one side of the queue pair with this number.
    Of(u32, usize, u32),
    /// One of a shared receive queue.
    Shared(usize),
}

impl Cq {
    /// Takes the completions of a queue pair out, and gives what comes free with them. What a test has put there stays.
    pub(crate) fn remove(&mut self, qp_num: u32) -> Vec<Slots> {
        let gone = |entry: &Reported| entry.frees.is_some() && entry.wc.qp_num == qp_num;
        let freed = self.entries.iter().filter(|entry| gone(entry));
        let freed = freed.filter_map(|entry| entry.frees).collect();
        self.entries.retain(|entry| !gone(entry));
        freed
    }

    /// Lets the completions of a queue pair free nothing: its slots are free already.
    pub(crate) fn free_nothing(&mut self, qp_num: u32) {
        for entry in &mut self.entries {
            if let Some(Slots::Of(number, _, count)) = &mut entry.frees {
                if *number == qp_num {
                    *count = 0;
                }
            }
        }
    }
}

impl World {
    /// Reports a finished send.
    pub(crate) fn report_send(&mut self, qp: usize, entry: ibv_wc) {
        let found = self.qp_mut(qp);
        let (cq, number) = (found.send_cq, found.number);
        let count = 1 + std::mem::take(&mut found.silent);
        self.report(cq, entry, Slots::Of(number, SEND, count), false);
    }

    /// Reports a finished receive, which was on the shared queue if the pair has one; `solicited`: the sender asks that the
    /// receiver hears of it.
    pub(crate) fn report_receive(&mut self, qp: usize, entry: ibv_wc, solicited: bool) {
        let found = self.qp(qp);
        let frees = match found.srq {
            Some(srq) => Slots::Shared(srq),
            None => Slots::Of(found.number, RECV, 1),
        };
        self.report(found.recv_cq, entry, frees, solicited);
    }

    /// Gives slots back.
    pub(crate) fn free(&mut self, slots: Slots) {
        match slots {
            Slots::Of(number, side, count) => {
                let Some(qp) = self.numbers.get(&number).copied() else {
                    return;
                };
                let used = &mut self.qp_mut(qp).used[side];
                *used = used.saturating_sub(count);
            }
            Slots::Shared(srq) => {
                if let Some(srq) = self.srqs.find_mut(srq) {
                    srq.used = srq.used.saturating_sub(1);
                }
            }
        }
    }

    /// Reports a finished request.
    fn report(&mut self, cq: usize, entry: ibv_wc, frees: Slots, solicited: bool) {
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
                frees: Some(frees),
            },
            solicited,
        );
    }

    /// Reports what no request has led to.
    pub(crate) fn invent(&mut self, cq: usize, wc: ibv_wc) {
        self.cq_mut(cq).extra += 1;
        self.put(cq, Reported { wc, frees: None }, true);
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

    fn put(&mut self, cq: usize, entry: Reported, solicited: bool) {
        let found = self.cq_mut(cq);
        let failed = entry.wc.status != ibv_wc_status::IBV_WC_SUCCESS;
        found.entries.push_back(entry);
        match found.armed {
            Some(Wanted::Any) => {}
            Some(Wanted::Solicited) if solicited || failed => {}
            _ => return,
        }
        found.armed = None;
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
            armed: None,
            told: Told::default(),
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
        let mut world = acknowledged(world, "completion queue", Element::Cq(address));
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
        let mut freed = Vec::new();
        for (place, entry) in found.entries.drain(..count).enumerate() {
            found.extra -= usize::from(entry.frees.is_none());
            freed.extend(entry.frees);
            arg::write("the completions", wc.wrapping_add(place), entry.wc);
        }
        for slots in freed {
            world.free(slots);
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
        let found = world.cq_mut(cq.addr());
        if solicited_only == 0 {
            found.armed = Some(Wanted::Any);
        } else {
            found.armed.get_or_insert(Wanted::Solicited);
        }
        Ok(())
    })
}
