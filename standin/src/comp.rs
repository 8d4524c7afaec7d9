#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};

use crate::arg;
use crate::c::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::channel::Signal;
use crate::doom::doom;
use crate::poison::Obj;
use crate::world::{changed, wait_for_ever, world};

/// A completion channel.
pub(crate) struct Comp {
    pub(crate) c: Obj<ibv_comp_channel>,
    pub(crate) signal: Signal,
    /// The queues that have something to report.
    pub(crate) events: VecDeque<usize>,
    pub(crate) readers: u32,
}

export! { pointer:
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
        let mut world = world();
        let _ = world.device_of(context.addr());
        let signal = Signal::new()?;
        let c = Obj::new(ibv_comp_channel { context, fd: signal.fd(), refcnt: 0 });
        let raw = c.raw();
        world.comps.insert(raw.addr(), Comp { c, signal, events: VecDeque::new(), readers: 0 });
        Ok(raw)
    }
}

export! { verbs:
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
        let mut world = world();
        let found = world.comp(channel.addr());
        if found.c.look(|c| c.refcnt) > 0 {
            return Err(libc::EBUSY);
        }
        if found.readers > 0 {
            doom!("the completion channel is destroyed while a thread reads events from it");
        }
        if let Some(mut comp) = world.comps.remove(channel.addr()) {
            comp.signal.close();
            world.bury("completion channel", comp.c);
        }
        Ok(())
    }
}

export! { rdma:
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int {
        let address = channel.addr();
        let mut world = world();
        world.comp_mut(address).readers += 1;
        let result = loop {
            let comp = world.comp_mut(address);
            if let Some(queue) = comp.events.pop_front() {
                let more = !comp.events.is_empty();
                comp.signal.set(more);
                let found = world.cq_mut(queue);
                found.handed_out += 1;
                let (raw, context) = (found.c.raw(), found.c.look(|c| c.cq_context));
                arg::write("the queue", cq, raw);
                arg::write("the context", cq_context, context);
                break Ok(());
            }
            match comp.signal.is_blocking() {
                Ok(true) => world = wait_for_ever(world),
                Ok(false) => break Err(libc::EAGAIN),
                Err(errno) => break Err(errno),
            }
        };
        world.comp_mut(address).readers -= 1;
        result
    }
}

export! { plain:
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
        let mut world = world();
        let found = world.cq_mut(cq.addr());
        found.acknowledged += nevents;
        if found.acknowledged > found.handed_out {
            doom!(
                "{} events of the completion queue were acknowledged and {} handed out",
                found.acknowledged, found.handed_out
            );
        }
        changed();
    }
}
