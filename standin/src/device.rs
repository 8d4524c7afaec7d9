#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::arg;
use crate::asynchronous::Notices;
use crate::c::{
    IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_ODP_SUPPORT, ibv_atomic_cap,
    ibv_context, ibv_context_ops, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_node_type,
    ibv_pd, ibv_query_device_ex_input, ibv_transport_type, verbs_context,
};
use crate::call::{self, Errno};
use crate::calls::{self, Skill};
use crate::channel::Signal;
use crate::doom::doom;
use crate::pd::Pd;
use crate::poison::{Obj, zeroed};
use crate::world::{World, world};
use crate::{cq, mw, post};

/// How librdmacm finds a device for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// It finds it.
    No,
    /// It finds none and says so, as new versions do.
    Reported,
    /// It finds none and hands the event out, as old versions do.
    Silent,
}

/// A device of the machine.
pub(crate) struct Device {
    pub(crate) c: Obj<ibv_device>,
    /// The open device; librdmacm opens each once, and keeps it open until it is removed.
    context: Option<Obj<verbs_context>>,
    /// The domain that librdmacm has on each device.
    domain: Option<usize>,
    /// How many ids and lists hold the device.
    pub(crate) holders: u32,
    pub(crate) removed: bool,
    pub(crate) addresses: Vec<IpAddr>,
    own_transport: ibv_transport_type,
    own_atomics: ibv_atomic_cap,
    pub(crate) attr: ibv_device_attr,
    pub(crate) hidden: Hidden,
    pub(crate) on_demand: bool,
    /// What its provider can do by calls.
    pub(crate) skill: Skill,
    pub(crate) notices: Notices,
    pub(crate) port_down: bool,
}

/// Both depths of every device, as rxe and siw have them.
const DEPTH: i32 = 128;

fn v4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 9, last, 1))
}

impl Device {
    /// The devices of the project's virtual machine: two soft-RoCE, one soft-iWARP.
    pub(crate) fn all() -> Vec<Self> {
        let v6 = IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1));
        vec![
            Self::new(
                "rxe0",
                ibv_transport_type::IBV_TRANSPORT_IB,
                vec![v4(0), v6],
            ),
            Self::new("rxe1", ibv_transport_type::IBV_TRANSPORT_IB, vec![v4(1)]),
            Self::new("siw0", ibv_transport_type::IBV_TRANSPORT_IWARP, vec![v4(2)]),
        ]
    }

    fn new(name: &str, transport: ibv_transport_type, addresses: Vec<IpAddr>) -> Self {
        let mut device: ibv_device = zeroed();
        device.node_type = ibv_node_type::IBV_NODE_CA;
        device.transport_type = transport;
        for (to, from) in device.name.iter_mut().zip(name.bytes()) {
            *to = c_char::try_from(from).unwrap_or_default();
        }
        let mut attr: ibv_device_attr = zeroed();
        attr.max_mr_size = 1 << 40;
        attr.max_qp = 1 << 16;
        attr.max_qp_wr = 1 << 20;
        attr.max_sge = 32;
        attr.max_cq = 1 << 20;
        attr.max_cqe = 32_767;
        attr.max_mr = 1 << 20;
        attr.max_pd = 1 << 20;
        attr.max_qp_rd_atom = DEPTH;
        attr.max_qp_init_rd_atom = DEPTH;
        attr.max_srq = 1 << 10;
        attr.max_srq_wr = 1 << 20;
        attr.max_srq_sge = 27;
        attr.max_ah = 1 << 15;
        attr.max_pkeys = 1;
        attr.phys_port_cnt = 1;
        if transport == ibv_transport_type::IBV_TRANSPORT_IB {
            attr.max_mw = 1 << 16;
            attr.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_HCA;
            attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW;
            // The second has windows of type 1 only, as old devices.
            if name == "rxe0" {
                attr.device_cap_flags |= IBV_DEVICE_MEM_WINDOW_TYPE_2B;
            }
        }
        Self {
            c: Obj::new(device),
            context: None,
            domain: None,
            holders: 0,
            removed: false,
            addresses,
            own_transport: transport,
            own_atomics: attr.atomic_cap,
            attr,
            hidden: Hidden::No,
            on_demand: true,
            skill: Skill::default(),
            notices: Notices::default(),
            port_down: false,
        }
    }

    /// Undoes what a test has changed.
    pub(crate) fn reset(&mut self) {
        let transport = self.own_transport;
        self.c.edit(|c| c.transport_type = transport);
        self.attr.max_qp_rd_atom = DEPTH;
        self.attr.max_qp_init_rd_atom = DEPTH;
        self.hidden = Hidden::No;
        self.on_demand = true;
        self.skill = Skill::default();
        self.attr.atomic_cap = self.own_atomics;
        self.port_down = false;
        self.notices.forget();
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.c.look(|c| c.transport_type) == ibv_transport_type::IBV_TRANSPORT_IWARP
    }

    /// Whether memory may be registered without being pinned: over iWARP it never may.
    pub(crate) fn pages_on_demand(&self) -> bool {
        self.on_demand && !self.is_iwarp()
    }

    /// The depths as librdmacm keeps them: in 8 bits, by a cast.
    pub(crate) fn depths(&self) -> (u8, u8) {
        let kept =
            |limit: i32| limit.to_ne_bytes()[if cfg!(target_endian = "little") { 0 } else { 3 }];
        (
            kept(self.attr.max_qp_rd_atom),
            kept(self.attr.max_qp_init_rd_atom),
        )
    }
}

impl World {
    /// The device that has a local address.
    pub(crate) fn device_at(&self, address: IpAddr) -> Option<usize> {
        self.devices
            .iter()
            .position(|device| !device.removed && device.addresses.contains(&address))
    }

    /// The device whose network a remote address is in.
    pub(crate) fn device_towards(&self, address: IpAddr) -> Option<usize> {
        self.devices.iter().position(|device| {
            !device.removed
                && device
                    .addresses
                    .iter()
                    .any(|own| network(*own) == network(address))
        })
    }

    /// The number of the open device at this address.
    pub(crate) fn device_of(&self, context: usize) -> usize {
        let open = |device: &Device| {
            device.context.as_ref().map(inner).map(<*mut _>::addr) == Some(context)
        };
        match self.devices.iter().position(open) {
            Some(device) => device,
            None => self.missing("open device", context),
        }
    }

    /// The open device, opened if need be.
    pub(crate) fn context(&mut self, device: usize) -> *mut ibv_context {
        let device = &mut self.devices[device];
        let c = device.c.raw();
        let context = device.context.get_or_insert_with(|| {
            let mut extended: verbs_context = zeroed();
            extended.sz = size_of::<verbs_context>();
            extended.query_device_ex = Some(query_device_ex);
            extended.create_qp_ex = Some(calls::create_qp_ex);
            let context = &mut extended.context;
            context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
            context.device = c;
            context.ops = ibv_context_ops {
                poll_cq: Some(cq::poll_cq),
                req_notify_cq: Some(cq::req_notify_cq),
                post_send: Some(post::post_send),
                post_recv: Some(post::post_recv),
                post_srq_recv: Some(post::post_srq_recv),
                alloc_mw: Some(mw::alloc_mw),
                bind_mw: Some(mw::bind_mw),
                dealloc_mw: Some(mw::dealloc_mw),
                ..ibv_context_ops::default()
            };
            context.cmd_fd = -1;
            device.notices.signal = Signal::new().ok();
            let signal = device.notices.signal.as_ref();
            context.async_fd = signal.map_or(-1, Signal::fd);
            context.num_comp_vectors = 1;
            Obj::new(extended)
        });
        inner(context)
    }

    /// What librdmacm gives an id that is bound to a device.
    pub(crate) fn hold_device(&mut self, device: usize) -> (*mut ibv_context, *mut ibv_pd) {
        let context = self.context(device);
        self.devices[device].holders += 1;
        let domain = match self.devices[device].domain {
            Some(domain) => domain,
            None => {
                let pd = Pd::new(context, device, self.number(), true);
                let address = pd.c.address();
                self.pds.insert(address, pd);
                self.devices[device].domain = Some(address);
                address
            }
        };
        (context, self.pd(domain).c.raw())
    }

    /// Gives that back. A removed device is closed with its last holder, if the list was compared since.
    pub(crate) fn put_device(&mut self, device: usize) {
        let device_kept = &mut self.devices[device];
        device_kept.holders -= 1;
        self.close_removed();
    }

    /// Closes removed devices that nobody holds.
    pub(crate) fn close_removed(&mut self) {
        for number in 0..self.devices.len() {
            let device = &mut self.devices[number];
            if !device.removed || device.holders > 0 {
                continue;
            }
            let (domain, context) = (device.domain.take(), device.context.take());
            device.notices.close();
            if let Some(domain) = domain.and_then(|domain| self.pds.remove(domain)) {
                self.bury("protection domain", domain.c);
            }
            if let Some(context) = context {
                self.bury("device", context);
            }
        }
    }

    /// Which device an `ibv_device` is.
    fn device_by_address(&self, address: usize) -> usize {
        let found = self
            .devices
            .iter()
            .position(|device| device.c.address() == address);
        found.unwrap_or_else(|| self.missing("device", address))
    }
}

/// The part of an open device that is handed out.
fn inner(context: &Obj<verbs_context>) -> *mut ibv_context {
    context
        .raw()
        .wrapping_byte_add(std::mem::offset_of!(verbs_context, context))
        .cast()
}

/// `ibv_query_device_ex`.
extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let args = [context.addr(), input.addr(), attr.addr(), attr_size];
    call::verbs("ibv_query_device_ex", &args, || {
        let world = world();
        let device = world.device_of(context.addr());
        present(&world, device)?;
        if attr_size < size_of::<ibv_device_attr_ex>() {
            doom!("the structure for the attributes has {attr_size} bytes");
        }
        let device = &world.devices[device];
        let mut answer = ibv_device_attr_ex {
            orig_attr: device.attr,
            ..ibv_device_attr_ex::default()
        };
        if device.pages_on_demand() {
            answer.odp_caps.general_caps = IBV_ODP_SUPPORT.into();
        }
        arg::write("the attributes", attr, answer);
        Ok(())
    })
}

/// What stands for the network of an address here: all but the host.
fn network(address: IpAddr) -> [u8; 8] {
    let mut network = [0; 8];
    match address {
        IpAddr::V4(v4) => network[..3].copy_from_slice(&v4.octets()[..3]),
        IpAddr::V6(v6) => network.copy_from_slice(&v6.octets()[..8]),
    }
    network
}

/// A list of pointers with a null at its end, from `malloc`, as the libraries make them and programs may free them.
fn list<T>(entries: Vec<*mut T>) -> Result<*mut *mut T, Errno> {
    let length = (entries.len() + 1) * size_of::<*mut T>();
    // SAFETY: `malloc` may be called with any length.
    let list = unsafe { libc::malloc(length) }.cast::<*mut T>();
    if list.is_null() {
        return Err(libc::ENOMEM);
    }
    let ended = entries.into_iter().chain([std::ptr::null_mut()]);
    for (place, entry) in ended.enumerate() {
        arg::write("the list", list.wrapping_add(place), entry);
    }
    Ok(list)
}

fn free<T>(list: *mut *mut T) {
    // SAFETY: a list from `malloc`, which the caller gives up.
    unsafe { libc::free(list.cast()) };
}

fn living(world: &World) -> Vec<usize> {
    (0..world.devices.len())
        .filter(|&device| !world.devices[device].removed)
        .collect()
}

fn tell(pointer: *mut c_int, count: usize) {
    if !pointer.is_null() {
        arg::write("the count", pointer, c_int::try_from(count).unwrap_or(0));
    }
}

export! { pointer:
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
        let world = world();
        let living = living(&world);
        tell(num_devices, living.len());
        list(living.into_iter().map(|device| world.devices[device].c.raw()).collect())
    }

    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
        let mut world = world();
        let living = living(&world);
        if living.is_empty() {
            tell(num_devices, 0);
            return Err(libc::ENODEV);
        }
        world.close_removed();
        tell(num_devices, living.len());
        let mut open = Vec::new();
        for device in living {
            open.push(world.hold_device(device).0);
        }
        list(open)
    }

    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
        let mut world = world();
        let number = world.device_by_address(device.addr());
        Ok(world.hold_device(number).0)
    }
}

export! { plain:
    fn ibv_free_device_list(list: *mut *mut ibv_device) {
        free(list);
    }

    fn rdma_free_devices(list: *mut *mut ibv_context) {
        let mut world = world();
        let mut place = list;
        loop {
            let context = arg::read("a list of devices", place);
            if context.is_null() {
                break;
            }
            let device = world.device_of(context.addr());
            world.put_device(device);
            place = place.wrapping_add(1);
        }
        free(list);
    }

    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
        let world = world();
        let number = world.device_by_address(device.addr());
        world.devices[number].c.look(|c| c.name.as_ptr())
    }

    fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
        let world = world();
        let number = world.device_by_address(device.addr());
        c_int::try_from(number).unwrap_or(-1)
    }

    fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
        let world = world();
        let number = world.device_by_address(device.addr());
        match world.devices[number].hidden {
            Hidden::No => (0x0200_0000_0000_0001 + number as u64).to_be(),
            Hidden::Reported | Hidden::Silent => 0,
        }
    }
}

export! { verbs:
    fn ibv_close_device(context: *mut ibv_context) -> c_int {
        let mut world = world();
        let device = world.device_of(context.addr());
        if world.devices[device].holders == 0 {
            doom!("closes a device that belongs to librdmacm");
        }
        world.put_device(device);
        Ok(())
    }

    fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int {
        let world = world();
        let device = &world.devices[world.device_of(context.addr())];
        if device.removed {
            return Err(libc::EIO);
        }
        arg::write("the attributes", device_attr, device.attr);
        Ok(())
    }
}

/// `EIO` for a device that is gone.
pub(crate) fn present(world: &World, device: usize) -> Result<(), Errno> {
    if world.devices[device].removed {
        return Err(libc::EIO);
    }
    Ok(())
}
