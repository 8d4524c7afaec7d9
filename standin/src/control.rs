#![expect(
    unsafe_code,
    reason = "exports the symbols by which tests steer the stand-in"
)]

use std::ffi::c_int;
use std::time::Duration;

use crate::abi::{DevicePlan, Entry, KINDS, Planned, VERSION};
use crate::arg;
use crate::c::{ibv_event_type, ibv_transport_type};
use crate::device::Hidden;
use crate::doom::doom;
use crate::inject::{self, Answer, Failure};
use crate::message::{Param, Queued};
use crate::record;
use crate::world::world;
use libc::sockaddr;

fn answer(planned: *const Planned) -> Answer {
    let planned = arg::read("the plan", planned);
    Answer {
        event: u32::try_from(planned.event).ok(),
        status: planned.status,
        raw: planned.raw != 0,
        garbage: planned.raw == 2,
        responder_resources: planned.responder_resources,
        initiator_depth: planned.initiator_depth,
        private_data: arg::bytes(planned.private_data, planned.private_data_len),
    }
}

control! {
    /// The version of what tests and stand-in agree on.
    fn standin_version() -> u32 {
        VERSION
    }

    /// Forgets every plan, and what was recorded; devices are as they were.
    fn standin_reset() {
        inject::reset();
        record::switch(false);
        let mut world = world();
        world.patience = Duration::from_secs(10);
        world.forget_orders();
        for device in &mut world.devices {
            device.reset();
        }
    }

    /// Starts or ends the record.
    fn standin_record(on: c_int) {
        record::switch(on != 0);
    }

    /// Reads entry number `place` of the record: 1, or 0 when there is none.
    fn standin_entry(place: usize, entry: *mut Entry) -> c_int {
        match record::entry(place) {
            Some(found) => {
                arg::write("the entry", entry, found);
                1
            }
            None => 0,
        }
    }

    /// The number of the calling thread in the record.
    fn standin_thread() -> u64 {
        record::thread()
    }

    /// Lets calls of a function fail: after `skip` good ones, `times` times.
    fn standin_fail(name: *const u8, length: usize, skip: u32, times: u32, returned: i64, errno: c_int) {
        inject::plan_failure(arg::text(name, length), skip, times, Failure { returned, errno });
    }

    /// Replaces the event that answers the next call of a function.
    fn standin_answer(name: *const u8, length: usize, planned: *const Planned) {
        inject::plan_answer(arg::text(name, length), answer(planned));
    }

    /// Puts an event onto the channel of an id.
    fn standin_event(id: usize, planned: *const Planned) {
        if let Some(queued) = Queued::planned(id, answer(planned)) {
            let mut world = world();
            world.id(id);
            world.push(queued);
        }
    }

    /// Holds threads at the dangerous place of a function for so long; 0 ends that.
    fn standin_delay(name: *const u8, length: usize, microseconds: u64) {
        inject::plan_delay(arg::text(name, length), Duration::from_micros(microseconds));
    }

    /// How many threads are held there.
    fn standin_inside(name: *const u8, length: usize) -> usize {
        inject::inside(&arg::text(name, length))
    }

    /// Changes a device.
    fn standin_device(number: usize, plan: *const DevicePlan) {
        let plan = arg::read("the plan", plan);
        let mut world = world();
        let device = &mut world.devices[number];
        if plan.transport >= 0 {
            device.c.edit(|c| c.transport_type = ibv_transport_type(plan.transport));
        }
        if plan.max_qp_rd_atom >= 0 {
            device.attr.max_qp_rd_atom = plan.max_qp_rd_atom;
        }
        if plan.max_qp_init_rd_atom >= 0 {
            device.attr.max_qp_init_rd_atom = plan.max_qp_init_rd_atom;
        }
        if plan.on_demand >= 0 {
            device.on_demand = plan.on_demand != 0;
        }
        match plan.hidden {
            0 => device.hidden = Hidden::No,
            1 => device.hidden = Hidden::Reported,
            2 => device.hidden = Hidden::Silent,
            _ => {}
        }
    }

    /// Something happens to a device or an object on it: `code` is an `ibv_event_type`, `element` the address of the object or
    /// the number of the port. The state of queue pair and port follows.
    fn standin_async_event(device: usize, code: u32, element: usize) {
        world().happens(device, ibv_event_type(code), element);
    }

    /// Takes a device away.
    fn standin_remove_device(number: usize) {
        world().remove_device(number);
    }

    /// Puts a device that was taken away back, as a new one.
    fn standin_restore_device(number: usize) {
        let mut world = world();
        world.devices[number].removed = true;
        world.close_removed();
        if world.devices[number].holders > 0 {
            doom!("the device is still held");
        }
        world.devices[number].removed = false;
    }

    /// How many objects of each kind live, for `count` kinds.
    fn standin_living(counts: *mut u64, count: usize) {
        let living = world().living();
        for (place, number) in living.into_iter().take(count.min(KINDS.len())).enumerate() {
            arg::write("the counts", counts.wrapping_add(place), number as u64);
        }
    }

    /// How long a call may wait for what the program owes it.
    fn standin_patience(milliseconds: u64) {
        world().patience = Duration::from_millis(milliseconds);
    }

    /// Looks whether anybody has written to a destroyed object.
    fn standin_check() {
        world().graves.check_all();
    }

    /// Another end asks for a connection to `to` and answers by itself; 0 when nobody listens there.
    fn standin_peer(to: *const sockaddr, planned: *const Planned) -> usize {
        let Ok(to) = arg::address(to) else { return 0 };
        let asked = answer(planned);
        let said = Param {
            private_data: asked.private_data,
            responder_resources: asked.responder_resources,
            initiator_depth: asked.initiator_depth,
            retry_count: 7,
            rnr_retry_count: 7,
            ..Param::default()
        };
        world().automatic_peer(to, said).unwrap_or(0)
    }

    /// What such an end has seen: entry `place` as number of the event and status; 1, or 0 when there is none.
    fn standin_peer_saw(peer: usize, place: usize, code: *mut u32, status: *mut c_int) -> c_int {
        let world = world();
        match world.id(peer).seen.get(place) {
            Some((saw, with)) => {
                arg::write("the number", code, *saw);
                arg::write("the status", status, *with);
                1
            }
            None => 0,
        }
    }

    /// Such an end goes away.
    fn standin_peer_end(peer: usize) {
        world().automatic_end(peer);
    }

    /// Counts an event as handed out that nobody was given, as librdmacm does when it does not know one.
    fn standin_lose_event(id: usize) {
        let mut world = world();
        world.id_mut(id).reported += 1;
    }
}
