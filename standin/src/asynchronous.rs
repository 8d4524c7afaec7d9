#![expect(unsafe_code, reason = "exports C symbols and reads a union of theirs")]
//! Asynchronous events of devices and their objects, with the accounting of libibverbs.
//!
//! An event that was read counts on its object, whose end waits until it is acknowledged. What nobody has read is dropped
//! with the object.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::time::Instant;

use crate::arg;
use crate::c::{
    ibv_async_event, ibv_async_event__bindgen_ty_1, ibv_context, ibv_event_type, ibv_qp_state,
};
use crate::channel::Signal;
use crate::doom::doom;
use crate::world::{Guard, World, changed, wait, wait_for_ever, world};

/// What an event is of, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Cq(usize),
    Qp(usize),
    Srq(usize),
    /// A port with its number, or the device itself.
    Device(usize),
}

/// The events of something that were handed out and acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    out: u32,
    acknowledged: u32,
}

/// The events of an open device.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// The descriptor; none while the device is closed.
    pub(crate) signal: Option<Signal>,
    queue: VecDeque<(ibv_event_type, Element)>,
    told: Told,
}

impl Notices {
    pub(crate) fn close(&mut self) {
        if let Some(mut signal) = self.signal.take() {
            signal.close();
        }
        self.forget();
    }

    /// Forgets what nobody has read, and what was not acknowledged.
    pub(crate) fn forget(&mut self) {
        self.queue.clear();
        self.told = Told::default();
        self.show();
    }

    fn show(&mut self) {
        let more = !self.queue.is_empty();
        if let Some(signal) = &mut self.signal {
            signal.set(more);
        }
    }
}

/// What an event of this type is of, when its element has this value.
fn element_of(code: ibv_event_type, value: usize) -> Element {
    match code {
        ibv_event_type::IBV_EVENT_CQ_ERR => Element::Cq(value),
        ibv_event_type::IBV_EVENT_QP_FATAL
        | ibv_event_type::IBV_EVENT_QP_REQ_ERR
        | ibv_event_type::IBV_EVENT_QP_ACCESS_ERR
        | ibv_event_type::IBV_EVENT_COMM_EST
        | ibv_event_type::IBV_EVENT_SQ_DRAINED
        | ibv_event_type::IBV_EVENT_PATH_MIG
        | ibv_event_type::IBV_EVENT_PATH_MIG_ERR
        | ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED => Element::Qp(value),
        ibv_event_type::IBV_EVENT_SRQ_ERR | ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED => {
            Element::Srq(value)
        }
        _ => Element::Device(value),
    }
}

impl World {
    /// Something happens that no call waits for. `device` counts for events of devices and ports only.
    pub(crate) fn happens(&mut self, device: usize, code: ibv_event_type, value: usize) {
        let element = element_of(code, value);
        let device = match element {
            Element::Cq(cq) => self.cq(cq).device,
            Element::Qp(qp) => self.pd(self.qp(qp).pd).device,
            Element::Srq(srq) => self.pd(self.srq(srq).pd).device,
            Element::Device(_) => device,
        };
        match code {
            ibv_event_type::IBV_EVENT_QP_FATAL
            | ibv_event_type::IBV_EVENT_QP_REQ_ERR
            | ibv_event_type::IBV_EVENT_QP_ACCESS_ERR => {
                self.set_state(value, ibv_qp_state::IBV_QPS_ERR);
            }
            ibv_event_type::IBV_EVENT_PORT_ERR => self.devices[device].port_down = true,
            ibv_event_type::IBV_EVENT_PORT_ACTIVE => self.devices[device].port_down = false,
            _ => {}
        }
        let notices = &mut self.devices[device].notices;
        // Nobody hears what happens to a device that is closed.
        if notices.signal.is_some() {
            notices.queue.push_back((code, element));
            notices.show();
            changed();
        }
    }

    fn told(&mut self, device: Option<usize>, element: Element) -> &mut Told {
        match (element, device) {
            (Element::Cq(cq), _) => &mut self.cq_mut(cq).told,
            (Element::Qp(qp), _) => &mut self.qp_mut(qp).told,
            (Element::Srq(srq), _) => &mut self.srq_mut(srq).told,
            (Element::Device(_), Some(device)) => &mut self.devices[device].notices.told,
            (Element::Device(_), None) => doom!("an event of no device"),
        }
    }

    /// Which device an event without an object can be of: one that has told something. C does not say which.
    fn teller(&self) -> Option<usize> {
        self.devices.iter().position(|device| {
            let told = device.notices.told;
            told.out > told.acknowledged
        })
    }
}

/// Drops what nobody has read of an object, and waits until the rest is acknowledged.
pub(crate) fn acknowledged(mut world: Guard, kind: &str, element: Element) -> Guard {
    for device in &mut world.devices {
        device.notices.queue.retain(|event| event.1 != element);
        device.notices.show();
    }
    let since = Instant::now();
    loop {
        let told = *world.told(None, element);
        if told.acknowledged >= told.out {
            return world;
        }
        world = wait(world, since, || {
            format!(
                "{} asynchronous events of the {kind} were handed out and {} acknowledged",
                told.out, told.acknowledged
            )
        });
    }
}

fn c_element(element: Element) -> ibv_async_event__bindgen_ty_1 {
    let mut c = ibv_async_event__bindgen_ty_1::default();
    match element {
        Element::Cq(cq) => c.cq = std::ptr::with_exposed_provenance_mut(cq),
        Element::Qp(qp) => c.qp = std::ptr::with_exposed_provenance_mut(qp),
        Element::Srq(srq) => c.srq = std::ptr::with_exposed_provenance_mut(srq),
        Element::Device(port) => c.port_num = c_int::try_from(port).unwrap_or(0),
    }
    c
}

export! { rdma:
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
        let mut world = world();
        let device = world.device_of(context.addr());
        loop {
            let found = &mut world.devices[device];
            let removed = found.removed;
            let notices = &mut found.notices;
            if let Some((event_type, element)) = notices.queue.pop_front() {
                notices.show();
                world.told(Some(device), element).out += 1;
                let element = c_element(element);
                arg::write("the event", event, ibv_async_event { element, event_type });
                return Ok(());
            }
            if removed {
                return Err(libc::EIO);
            }
            let blocking = notices.signal.as_ref().map_or(Err(libc::EBADF), Signal::is_blocking);
            if !blocking? {
                return Err(libc::EAGAIN);
            }
            world = wait_for_ever(world);
        }
    }
}

export! { plain:
    fn ibv_ack_async_event(event: *mut ibv_async_event) {
        let event = arg::read("the event", event.cast_const());
        // SAFETY: every member is plain data, and the type says which was written. All lie at the start.
        let value = unsafe { event.element.cq }.addr();
        let element = element_of(event.event_type, value);
        let mut world = world();
        let device = match element {
            Element::Device(_) => world.teller(),
            _ => None,
        };
        if device.is_none() && matches!(element, Element::Device(_)) {
            doom!("acknowledges an asynchronous event of a device, and none was handed out");
        }
        let told = world.told(device, element);
        told.acknowledged += 1;
        if told.acknowledged > told.out {
            doom!(
                "{} asynchronous events were acknowledged and {} handed out",
                told.acknowledged, told.out
            );
        }
        changed();
    }
}
