#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::time::Instant;

use crate::addr::store;
use crate::arg;
use crate::c::{
    ibv_ece, ibv_qp_type, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel, rdma_port_space,
};
use crate::call::{self, Errno};
use crate::doom::doom;
use crate::kernel::State;
use crate::message::Param;
use crate::multicast::Group;
use crate::poison::{Obj, zeroed};
use crate::record;
use crate::world::{Guard, Window, World, changed, wait, window, world};

/// An id: the library's structure, and what the kernel knows.
pub(crate) struct Id {
    pub(crate) c: Obj<rdma_cm_id>,
    pub(crate) ps: rdma_port_space,
    /// The channel that the kernel has it on. The library's own idea is in `c`.
    pub(crate) file: usize,
    pub(crate) state: State,
    /// The device, by its number, that the kernel has bound it to.
    pub(crate) device: Option<usize>,
    /// The same as the library knows it.
    pub(crate) held: Option<usize>,
    pub(crate) reported: u32,
    pub(crate) acknowledged: u32,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer_address: Option<SocketAddr>,
    pub(crate) port_taken: bool,
    pub(crate) reuse: bool,
    /// The other end, while both know each other.
    pub(crate) peer: Option<usize>,
    /// What the peer has said: the offer, then the answer.
    pub(crate) heard: Param,
    /// What this end has said.
    pub(crate) said: Param,
    /// The depths as the library keeps them.
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) connect_error: bool,
    /// Handed out to the program, which is false for the new id of a request that nobody has read.
    pub(crate) delivered: bool,
    /// No program's: a test's other end, which answers by itself.
    pub(crate) automatic: bool,
    /// What an automatic one has seen.
    pub(crate) seen: Vec<(u32, i32)>,
    pub(crate) windows: Vec<Window>,
    pub(crate) writes_addresses: bool,
    pub(crate) destroying: bool,
    pub(crate) groups: Vec<Group>,
    pub(crate) path: Option<Obj<ibv_sa_path_rec>>,
    pub(crate) local_ece: ibv_ece,
    pub(crate) remote_ece: ibv_ece,
}

impl Id {
    pub(crate) fn new(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: rdma_port_space,
    ) -> Self {
        let mut c: rdma_cm_id = zeroed();
        c.channel = channel;
        c.context = context;
        c.ps = ps;
        c.qp_type = if ps == rdma_port_space::RDMA_PS_UDP || ps == rdma_port_space::RDMA_PS_IPOIB {
            ibv_qp_type::IBV_QPT_UD
        } else {
            ibv_qp_type::IBV_QPT_RC
        };
        Self {
            c: Obj::new(c),
            ps,
            file: channel.addr(),
            state: State::Idle,
            device: None,
            held: None,
            reported: 0,
            acknowledged: 0,
            local: None,
            peer_address: None,
            port_taken: false,
            reuse: false,
            peer: None,
            heard: Param::default(),
            said: Param::default(),
            responder_resources: 0,
            initiator_depth: 0,
            connect_error: false,
            delivered: true,
            automatic: false,
            seen: Vec::new(),
            windows: Vec::new(),
            writes_addresses: false,
            destroying: false,
            groups: Vec::new(),
            path: None,
            local_ece: ibv_ece::default(),
            remote_ece: ibv_ece::default(),
        }
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.c.look(|c| c.qp_type) == ibv_qp_type::IBV_QPT_UD
    }

    /// The queue pair that the library finds on the id.
    pub(crate) fn qp(&self) -> usize {
        self.c.look(|c| c.qp.addr())
    }

    /// Writes the kernel's addresses into the library's structure.
    pub(crate) fn show_addresses(&self) {
        let (local, peer) = (self.local, self.peer_address);
        self.c.edit(|c| {
            let addr = &mut c.route.addr;
            store!(addr.__bindgen_anon_1, src_sin, src_sin6, src_storage, local);
            store!(addr.__bindgen_anon_2, dst_sin, dst_sin6, dst_storage, peer);
        });
    }
}

impl World {
    /// The id at this address, if the kernel finds it on the channel that the library asks through.
    pub(crate) fn kernel_id(&mut self, address: usize) -> Result<&mut Id, Errno> {
        let id = self.id_mut(address);
        if id.destroying {
            // Its destruction waits for who reads an event of it; the kernel has forgotten it already.
            if call::current() == "rdma_get_cm_event" {
                return Err(libc::ENOENT);
            }
            doom!("use of an id that another thread is destroying ({address:#x})");
        }
        if id.c.look(|c| c.channel.addr()) != id.file {
            return Err(libc::EINVAL);
        }
        Ok(id)
    }

    /// Counts an event of `id` as acknowledged.
    pub(crate) fn complete(&mut self, id: usize) {
        self.id_mut(id).acknowledged += 1;
        changed();
    }

    /// Frees an id that nobody uses any more.
    pub(crate) fn free_id(&mut self, address: usize) {
        let Some(id) = self.ids.remove(address) else {
            return;
        };
        if let Some(device) = id.held {
            self.put_device(device);
        }
        if let Some(path) = id.path {
            self.bury("path record", path);
        }
        self.bury("id", id.c);
    }
}

/// Waits until `done` says that everything reported was acknowledged.
fn wait_for_acks(mut world: Guard, address: usize, reported: u32) -> Guard {
    let since = Instant::now();
    loop {
        let acknowledged = world.id(address).acknowledged;
        if acknowledged >= reported {
            return world;
        }
        world = wait(world, since, || {
            format!(
                "{reported} events of the id {address:#x} were handed out and {acknowledged} acknowledged"
            )
        });
    }
}

export! { rdma:
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: rdma_port_space,
    ) -> c_int {
        if channel.is_null() {
            doom!("makes a synchronous id, which waits inside the library");
        }
        let mut world = world();
        world.channel(channel.addr());
        let new = Id::new(channel, context, ps);
        let raw = new.c.raw();
        world.ids.insert(raw.addr(), new);
        arg::write("the new id", id, raw);
        Ok(())
    }

    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
        let mut world = world();
        let address = id.addr();
        let channel = world.kernel_id(address)?.file;
        let c_qp = world.id(address).qp();
        if let Some(qp) = world.qps.iter().find(|(_, qp)| qp.id == Some(address)) {
            let number = qp.1.number;
            doom!("the id is destroyed before its queue pair {number:#x}");
        }
        if c_qp != 0 && world.qps.find(c_qp).is_some() {
            doom!("the id is destroyed with a queue pair on it");
        }
        if let Some(window) = world.id(address).windows.iter().find(|window| !window.reads_event) {
            doom!("the id is destroyed while another thread is in {} on it", window.call);
        }
        // The command goes through the channel's descriptor.
        world.channel(channel).signal.is_blocking()?;
        world.id_mut(address).destroying = true;
        let reported = world.end_in_kernel(address);
        let mut world = wait_for_acks(world, address, reported);
        world.free_id(address);
        Ok(())
    }

    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
        if channel.is_null() {
            doom!("migrates to a channel of the library's own, which makes the id synchronous");
        }
        let mut world = world();
        let (address, new) = (id.addr(), channel.addr());
        world.channel(new);
        let old = world.kernel_id(address)?.file;
        // The kernel moves the id and what is queued for it,
        let moved = world.withdraw(old, |queued| queued.id == address);
        world.id_mut(address).file = new;
        for queued in moved {
            world.push(queued);
        }
        let reported = world.id(address).reported;
        // and only then does the library say where the id is.
        let world = window(world, address, "rdma_migrate_id", false, false);
        world.id(address).c.edit(|c| c.channel = channel);
        let thread = record::thread();
        let other = |window: &&Window| !window.reads_event && window.thread != thread;
        if let Some(window) = world.id(address).windows.iter().find(other) {
            doom!("the id is migrated while another thread is in {} on it", window.call);
        }
        drop(wait_for_acks(world, address, reported));
        Ok(())
    }
}
