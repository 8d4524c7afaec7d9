#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_char, c_int};

use crate::arg;
use crate::c::{rdma_cm_event, rdma_cm_event_type, rdma_event_channel};
use crate::doom::doom;
use crate::poison::Obj;
use crate::world::{World, wait_for_ever, world};

/// An event that was handed out, with the private data that it points to.
pub(crate) struct Event {
    pub(crate) c: Obj<Whole>,
    /// The channel that it was read from.
    pub(crate) channel: usize,
    /// The id that it counts on, and the group.
    pub(crate) id: usize,
    pub(crate) group: Option<u64>,
}

#[repr(C)]
pub(crate) struct Whole {
    pub(crate) event: rdma_cm_event,
    pub(crate) private_data: [u8; 256],
}

impl World {
    /// One event is acknowledged.
    fn acknowledge(&mut self, address: usize) {
        let Some(event) = self.events.remove(address) else {
            match self.graves.kind(address) {
                Some("event") => doom!("the event {address:#x} was acknowledged before"),
                _ => doom!("{address:#x} is no event and never was"),
            }
        };
        if let Some(number) = event.group {
            self.complete_group(event.id, number);
        }
        self.complete(event.id);
        self.bury("event", event.c);
    }
}

export! { rdma:
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
        if event.is_null() {
            return Err(libc::EINVAL);
        }
        let address = channel.addr();
        let mut world = world();
        world.channel_mut(address).readers += 1;
        let result = loop {
            let queue = &mut world.channel_mut(address).queue;
            if let Some(queued) = queue.pop_front() {
                let more = !queue.is_empty();
                world.channel_mut(address).signal.set(more);
                let read;
                (world, read) = crate::process::read(world, address, queued);
                match read {
                    Some(raw) => {
                        arg::write("the event", event, raw);
                        break Ok(());
                    }
                    None => continue,
                }
            }
            match world.channel(address).signal.is_blocking() {
                Ok(true) => world = wait_for_ever(world),
                Ok(false) => break Err(libc::EAGAIN),
                Err(errno) => break Err(errno),
            }
        };
        world.channel_mut(address).readers -= 1;
        result
    }

    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
        if event.is_null() {
            return Err(libc::EINVAL);
        }
        world().acknowledge(event.addr());
        Ok(())
    }
}

export! { plain:
    fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
        let name = match event.0 {
            0 => c"RDMA_CM_EVENT_ADDR_RESOLVED",
            1 => c"RDMA_CM_EVENT_ADDR_ERROR",
            2 => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
            3 => c"RDMA_CM_EVENT_ROUTE_ERROR",
            4 => c"RDMA_CM_EVENT_CONNECT_REQUEST",
            5 => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
            6 => c"RDMA_CM_EVENT_CONNECT_ERROR",
            7 => c"RDMA_CM_EVENT_UNREACHABLE",
            8 => c"RDMA_CM_EVENT_REJECTED",
            9 => c"RDMA_CM_EVENT_ESTABLISHED",
            10 => c"RDMA_CM_EVENT_DISCONNECTED",
            11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
            12 => c"RDMA_CM_EVENT_MULTICAST_JOIN",
            13 => c"RDMA_CM_EVENT_MULTICAST_ERROR",
            14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
            15 => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
            _ => c"UNKNOWN EVENT",
        };
        name.as_ptr()
    }
}
