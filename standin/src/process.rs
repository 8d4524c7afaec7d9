//! What librdmacm does when it reads an event, before it hands it out.

use crate::c::{rdma_cm_event, rdma_cm_event_type, rdma_conn_param, rdma_ud_param};
use crate::call::{self, Errno};
use crate::device::Hidden;
use crate::doom::doom;
use crate::event::{Event, Whole};
use crate::kernel::{State, conn};
use crate::message::{Load, Param, Queued};
use crate::poison::{Obj, zeroed};
use crate::world::{Guard, World, window};

const ADDR_RESOLVED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED.0;
const ADDR_ERROR: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR.0;
const ROUTE_RESOLVED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED.0;
const CONNECT_REQUEST: u32 = rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST.0;
const CONNECT_RESPONSE: u32 = rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE.0;
const CONNECT_ERROR: u32 = rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR.0;
const REJECTED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_REJECTED.0;
const ESTABLISHED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED.0;
const DISCONNECTED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED.0;
const MULTICAST_JOIN: u32 = rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_JOIN.0;
const MULTICAST_ERROR: u32 = rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_ERROR.0;

/// Reads an event that the kernel has given out; nothing when the library keeps it to itself.
pub(crate) fn read(
    mut world: Guard,
    channel: usize,
    mut queued: Queued,
) -> (Guard, Option<*mut rdma_cm_event>) {
    let id = queued.id;
    world.id_mut(id).reported += 1;
    if let Some(number) = queued.group {
        world.report_group(id, number);
    }
    let reads_qp = matches!(queued.code, CONNECT_RESPONSE | REJECTED | MULTICAST_JOIN);
    let mut world = window(world, id, "rdma_get_cm_event", reads_qp, true);
    let read = if queued.raw {
        Some((queued.code, queued.status))
    } else {
        process(&mut world, &mut queued)
    };
    let Some((code, status)) = read else {
        world.complete(id);
        return (world, None);
    };
    let raw = hand_out(&mut world, channel, &queued, code, status);
    (world, Some(raw))
}

fn failed(errno: Errno) -> i32 {
    call::leave_behind(errno);
    -1
}

/// The event's number and status as the program will see them.
fn process(world: &mut World, queued: &mut Queued) -> Option<(u32, i32)> {
    let id = queued.id;
    let same = Some((queued.code, queued.status));
    match queued.code {
        ADDR_RESOLVED => {
            if world.id(id).writes_addresses {
                doom!(
                    "reads ADDR_RESOLVED while another thread is in rdma_resolve_addr: both write the addresses"
                );
            }
            if let Err(errno) = world.query(id) {
                return Some((ADDR_ERROR, failed(errno)));
            }
            let hidden = world.id(id).c.look(|c| c.verbs.is_null());
            let reported = world
                .id(id)
                .device
                .is_none_or(|device| world.devices[device].hidden == Hidden::Reported);
            if hidden && reported {
                return Some((ADDR_ERROR, failed(libc::ENODEV)));
            }
            same
        }
        ROUTE_RESOLVED => {
            if world.id(id).c.look(|c| c.verbs.is_null()) {
                doom!(
                    "ROUTE_RESOLVED for an id without a device: would follow the null pointer id->verbs"
                );
            }
            world.give_path(id);
            same
        }
        CONNECT_REQUEST => {
            // Without one, a test has invented the request: its peer is gone.
            let child = match queued.child {
                Some(child) => child,
                None => world.orphan(id),
            };
            queued.child = Some(child);
            if world.deliver_child(id, child).is_err() {
                world.drop_child(child);
                return None;
            }
            same
        }
        CONNECT_RESPONSE => {
            if world.id(id).qp() == 0 {
                return same;
            }
            match world.respond(id) {
                Ok(()) => Some((ESTABLISHED, 0)),
                Err(errno) => {
                    world.id_mut(id).connect_error = true;
                    Some((CONNECT_ERROR, failed(errno)))
                }
            }
        }
        REJECTED => {
            if world.id(id).connect_error {
                return None;
            }
            world.qp_to_error(id);
            same
        }
        DISCONNECTED if world.id(id).connect_error => None,
        MULTICAST_JOIN if queued.group.is_some() => match world.joined(queued) {
            Ok(()) => same,
            Err(errno) => Some((MULTICAST_ERROR, failed(errno))),
        },
        _ => same,
    }
}

impl World {
    /// Asks the kernel for addresses and device, and writes them into the id.
    pub(crate) fn query(&mut self, id: usize) -> Result<(), Errno> {
        self.kernel_id(id)?.show_addresses();
        let found = self.id(id);
        let (None, Some(device)) = (found.held, found.device) else {
            return Ok(());
        };
        if self.devices[device].hidden != Hidden::No {
            return Ok(());
        }
        if self.devices[device].removed {
            return Err(libc::ENODEV);
        }
        let (verbs, pd) = self.hold_device(device);
        let found = self.id_mut(id);
        found.held = Some(device);
        found.c.edit(|c| {
            c.verbs = verbs;
            c.pd = pd;
            c.port_num = 1;
        });
        Ok(())
    }

    /// Over InfiniBand and RoCE the library fetches the path.
    fn give_path(&mut self, id: usize) {
        if self.is_iwarp(id) || self.id(id).path.is_some() {
            return;
        }
        let mut path: crate::c::ibv_sa_path_rec = zeroed();
        path.mtu = 3;
        path.hop_limit = 64;
        path.packet_life_time = 16;
        let path = Obj::new(path);
        let raw = path.raw();
        let found = self.id_mut(id);
        found.path = Some(path);
        found.c.edit(|c| {
            c.route.path_rec = raw;
            c.route.num_paths = 1;
        });
    }

    /// The library makes its part of the new id of a request.
    fn deliver_child(&mut self, listener: usize, child: usize) -> Result<(), Errno> {
        let (context, channel) = self.id(listener).c.look(|c| (c.context, c.channel));
        let found = self.id_mut(child);
        found.delivered = true;
        found.file = channel.addr();
        found.responder_resources = found.heard.responder_resources;
        found.initiator_depth = found.heard.initiator_depth;
        found.c.edit(|c| {
            c.context = context;
            c.channel = channel;
        });
        self.query(child)?;
        self.give_path(child);
        Ok(())
    }

    /// The library makes the queue pair ready and confirms.
    fn respond(&mut self, id: usize) -> Result<(), Errno> {
        let done = self
            .qp_to_rtr(id, None)
            .and_then(|()| self.qp_to_rts(id, None))
            .and_then(|()| self.confirm(id));
        if done.is_err() {
            self.qp_to_error(id);
            if self.id(id).state == State::Responded {
                // The kernel times out on the other side; nothing more is said.
                self.id_mut(id).state = State::Ended;
            }
        }
        done
    }
}

fn conn_param(param: &Param, data: *const u8) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.cast(),
        private_data_len: u8::try_from(param.private_data.len()).unwrap_or(u8::MAX),
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        srq: param.srq,
        qp_num: param.qp_num,
    }
}

/// Parameters that nobody may look at: who does ends with a signal.
fn garbage() -> rdma_conn_param {
    rdma_conn_param {
        private_data: std::ptr::without_provenance(0x77),
        private_data_len: 200,
        responder_resources: 0x77,
        initiator_depth: 0x77,
        flow_control: 0x77,
        retry_count: 0x77,
        rnr_retry_count: 0x77,
        srq: 0x77,
        qp_num: 0x7777_7777,
    }
}

/// Makes the structure that the program gets.
fn hand_out(
    world: &mut World,
    channel: usize,
    queued: &Queued,
    code: u32,
    status: i32,
) -> *mut rdma_cm_event {
    let mut event: rdma_cm_event = zeroed();
    event.event = rdma_cm_event_type(code);
    event.status = status;
    let subject = world.id(queued.id).c.raw();
    match queued.child.and_then(|child| world.ids.find(child)) {
        Some(child) => {
            event.listen_id = subject;
            event.id = child.c.raw();
        }
        None => event.id = subject,
    }
    let whole = Obj::new(Whole {
        event,
        private_data: [0; 256],
    });
    let context = queued
        .group
        .and_then(|number| world.group_context(queued.id, number));
    whole.edit(|whole| {
        let data = match &queued.load {
            Load::Conn(param) => &param.private_data,
            Load::Datagram(datagram) => &datagram.private_data,
        };
        let length = data.len().min(255);
        whole.private_data[..length].copy_from_slice(&data[..length]);
        let start = if length == 0 {
            std::ptr::null()
        } else {
            whole.private_data.as_ptr()
        };
        match &queued.load {
            Load::Conn(_) => whole.event.param.conn = conn_param(&conn(queued), start),
            Load::Datagram(datagram) => {
                whole.event.param.ud = rdma_ud_param {
                    private_data: context.unwrap_or(start.cast()),
                    private_data_len: u8::try_from(length).unwrap_or(u8::MAX),
                    ah_attr: datagram.ah_attr,
                    qp_num: datagram.qp_num,
                    qkey: datagram.qkey,
                };
            }
        }
    });
    if queued.garbage {
        whole.edit(|whole| whole.event.param.conn = garbage());
    }
    let raw = whole.raw().cast::<rdma_cm_event>();
    let event = Event {
        c: whole,
        channel,
        id: queued.id,
        group: queued.group,
    };
    world.events.insert(raw.addr(), event);
    raw
}
