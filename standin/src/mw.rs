//! Memory windows: alloc and dealloc, binding, and who reaches what through them.

use std::ffi::{c_int, c_uint};

use crate::arg;
use crate::c::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_DEVICE_MEM_WINDOW_TYPE_2B, ibv_mw,
    ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp, ibv_send_wr, ibv_wr_opcode,
};
use crate::call::{self, Errno};
use crate::device::present;
use crate::poison::Obj;
use crate::post;
use crate::world::{World, world};
use crate::wr;

/// What tells keys of windows from those of regions.
const WINDOW: u32 = 1 << 31;
/// The part of a key that its owner chooses.
const OWN: u32 = 0xff;

/// A memory window.
pub(crate) struct Mw {
    pub(crate) c: Obj<ibv_mw>,
    pub(crate) pd: usize,
    kind: ibv_mw_type,
    /// The key under which it is known now.
    key: u32,
    bound: Option<Bound>,
}

/// What a window shows.
#[derive(Clone, Copy, Debug)]
struct Bound {
    mr: usize,
    /// The queue pair that a window of type 2 belongs to, by number.
    qp: Option<u32>,
    start: u64,
    length: u64,
    access: c_uint,
}

impl World {
    /// The living memory window at this address.
    fn mw(&self, address: usize) -> &Mw {
        match self.mws.find(address) {
            Some(found) => found,
            None => self.missing("memory window", address),
        }
    }

    /// The window whose key this is, whatever its owner's part of it.
    fn window_of(&self, key: u32) -> Option<usize> {
        let same = |mw: &Mw| mw.key & !OWN == key & !OWN;
        let mut windows = self.mws.iter();
        windows.find(|(_, mw)| same(mw)).map(|found| found.0)
    }

    /// How many windows show a part of a region.
    pub(crate) fn windows_on(&self, mr: usize) -> usize {
        let shows = |mw: &Mw| mw.bound.is_some_and(|bound| bound.mr == mr);
        self.mws.iter().filter(|(_, mw)| shows(mw)).count()
    }

    /// Whether a window belongs to a queue pair, by its number.
    pub(crate) fn has_window(&self, number: u32) -> bool {
        let own = |mw: &Mw| mw.bound.is_some_and(|bound| bound.qp == Some(number));
        self.mws.iter().any(|(_, mw)| own(mw))
    }

    /// The memory that a peer reaches by a key through a queue pair, if it may: its address in the process.
    pub(crate) fn reach_from_afar(
        &self,
        qp: usize,
        key: u32,
        address: u64,
        length: u64,
        access: c_uint,
    ) -> Option<u64> {
        let found = self.qp(qp);
        if found.attr.qp_access_flags & access != access {
            return None;
        }
        if key & WINDOW == 0 {
            return self.reach(key, found.pd, address, length, access);
        }
        let mw = self.mw(self.window_of(key)?);
        let bound = mw.bound?;
        let own = bound.qp.is_none_or(|number| number == found.number);
        if mw.key != key || mw.pd != found.pd || !own || bound.access & access != access {
            return None;
        }
        let zero_based = bound.access & IBV_ACCESS_ZERO_BASED != 0;
        let address = if zero_based {
            bound.start.checked_add(address)?
        } else {
            address
        };
        let end = address.checked_add(length)?;
        if address < bound.start || end > bound.start + bound.length {
            return None;
        }
        let lkey = self.mrs.find(bound.mr)?.c.look(|c| c.lkey);
        self.reach(lkey, found.pd, address, length, 0)
    }

    /// Takes the key of a window of type 2 back, which belongs to this queue pair; false when there is no such window.
    pub(crate) fn invalidate(&mut self, qp: usize, key: u32) -> bool {
        let (pd, number) = (self.qp(qp).pd, self.qp(qp).number);
        let Some(address) = self.window_of(key) else {
            return false;
        };
        let Some(mw) = self.mws.find_mut(address) else {
            return false;
        };
        let own = mw.bound.is_some_and(|bound| bound.qp == Some(number));
        if mw.kind != ibv_mw_type::IBV_MW_TYPE_2 || mw.key != key || mw.pd != pd || !own {
            return false;
        }
        mw.bound = None;
        true
    }

    /// Carries the binding of a window out; false when it may not be.
    pub(crate) fn bind_window(&mut self, qp: usize, request: &ibv_send_wr) -> bool {
        let (mw, key, info) = wr::binding_of(request);
        let (pd, number) = (self.qp(qp).pd, self.qp(qp).number);
        let Some(found) = self.mws.find(mw.addr()) else {
            return false;
        };
        let second = found.kind == ibv_mw_type::IBV_MW_TYPE_2;
        // A window of type 2 is bound once, and then its key is taken back.
        if found.pd != pd || (second && found.bound.is_some()) {
            return false;
        }
        let bound = if info.length == 0 && !second {
            None
        } else {
            match self.bound(pd, &info, second) {
                Some(bound) => Some(Bound {
                    qp: second.then_some(number),
                    ..bound
                }),
                None => return false,
            }
        };
        let Some(found) = self.mws.find_mut(mw.addr()) else {
            return false;
        };
        found.bound = bound;
        found.key = found.key & !OWN | key & OWN;
        true
    }

    fn bound(&self, pd: usize, info: &ibv_mw_bind_info, second: bool) -> Option<Bound> {
        let (changes, reads) = (
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
            IBV_ACCESS_REMOTE_READ,
        );
        let based = if second { IBV_ACCESS_ZERO_BASED } else { 0 };
        let access = info.mw_access_flags;
        let mr = self.mrs.find(info.mr.addr())?;
        let needed = if access & changes == 0 {
            IBV_ACCESS_MW_BIND
        } else {
            IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE
        };
        let known = access & !(changes | reads | based) == 0;
        let lkey = mr.c.look(|c| c.lkey);
        let inside = self.reach(lkey, pd, info.addr, info.length, needed);
        (known && info.length > 0 && inside.is_some()).then_some(Bound {
            mr: info.mr.addr(),
            qp: None,
            start: info.addr,
            length: info.length,
            access,
        })
    }
}

/// `ibv_alloc_mw`, in the device's table.
pub(crate) extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    let args = [pd.addr(), call::word(&kind)];
    call::pointer("ibv_alloc_mw", &args, || {
        let mut world = world();
        let (device, context) = {
            let pd = world.pd(pd.addr());
            (pd.device, pd.c.look(|c| c.context))
        };
        present(&world, device)?;
        if world.devices[device].is_iwarp() {
            return Err(libc::EOPNOTSUPP);
        }
        if !matches!(
            kind,
            ibv_mw_type::IBV_MW_TYPE_1 | ibv_mw_type::IBV_MW_TYPE_2
        ) {
            return Err(libc::EINVAL);
        }
        let flags = world.devices[device].attr.device_cap_flags;
        let second = kind == ibv_mw_type::IBV_MW_TYPE_2;
        if second && flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let key = WINDOW | (world.number() << OWN.count_ones());
        let c = Obj::new(ibv_mw {
            context,
            pd,
            rkey: key,
            handle: key,
            type_: kind,
        });
        let raw = c.raw();
        let mw = Mw {
            c,
            pd: pd.addr(),
            kind,
            key,
            bound: None,
        };
        world.mws.insert(raw.addr(), mw);
        world.pd_mut(pd.addr()).users += 1;
        Ok(raw)
    })
}

/// `ibv_dealloc_mw`, in the device's table.
pub(crate) extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    call::verbs("ibv_dealloc_mw", &[mw.addr()], || {
        let mut world = world();
        let pd = world.mw(mw.addr()).pd;
        world.pd_mut(pd).users -= 1;
        if let Some(mw) = world.mws.remove(mw.addr()) {
            world.bury("memory window", mw.c);
        }
        Ok(())
    })
}

/// `ibv_bind_mw`, in the device's table: for windows of type 1, whose next key the device chooses.
pub(crate) extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    mw_bind: *mut ibv_mw_bind,
) -> c_int {
    let args = [qp.addr(), mw.addr(), mw_bind.addr()];
    call::verbs("ibv_bind_mw", &args, || {
        let asked = arg::read("the binding", mw_bind.cast_const());
        let mut world = world();
        let found = world.mw(mw.addr());
        let key = found.c.look(|c| c.rkey);
        let next = key & !OWN | key.wrapping_add(1) & OWN;
        let based = asked.bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0;
        if found.kind != ibv_mw_type::IBV_MW_TYPE_1 || based {
            return Err(libc::EINVAL);
        }
        world.check_binding(&asked.bind_info)?;
        let mut request = ibv_send_wr {
            wr_id: asked.wr_id,
            send_flags: asked.send_flags,
            opcode: ibv_wr_opcode::IBV_WR_BIND_MW,
            ..ibv_send_wr::default()
        };
        wr::set_binding(&mut request, mw, next, asked.bind_info);
        post::one(&mut world, qp.addr(), request)?;
        if let Some(found) = world.mws.find(mw.addr()) {
            found.c.edit(|c| c.rkey = next);
        }
        Ok(())
    })
}

impl World {
    /// What a provider looks at while it posts: it follows the pointer to the region.
    fn check_binding(&self, info: &ibv_mw_bind_info) -> Result<(), Errno> {
        if info.mr.is_null() {
            return if info.length == 0 {
                Ok(())
            } else {
                Err(libc::EINVAL)
            };
        }
        match self.mrs.find(info.mr.addr()) {
            Some(_) => Ok(()),
            None => self.missing("memory region", info.mr.addr()),
        }
    }

    /// The same for a binding that is posted as a request: windows of type 2 only.
    pub(crate) fn check_bind_request(&self, request: &ibv_send_wr) -> Option<Errno> {
        let (mw, _, info) = wr::binding_of(request);
        if self.mw(mw.addr()).kind != ibv_mw_type::IBV_MW_TYPE_2 {
            return Some(libc::EINVAL);
        }
        self.check_binding(&info).err()
    }
}
