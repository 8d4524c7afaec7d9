#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_int;

use crate::c::{ibv_context, ibv_pd};
use crate::device::present;
use crate::poison::Obj;
use crate::world::world;

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) c: Obj<ibv_pd>,
    /// The number of its device.
    pub(crate) device: usize,
    /// How many objects are in it.
    pub(crate) users: u32,
    /// Made by librdmacm for itself.
    pub(crate) librarys: bool,
}

impl Pd {
    pub(crate) fn new(
        context: *mut ibv_context,
        device: usize,
        handle: u32,
        librarys: bool,
    ) -> Self {
        Self {
            c: Obj::new(ibv_pd { context, handle }),
            device,
            users: 0,
            librarys,
        }
    }
}

export! { pointer:
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
        let mut world = world();
        let device = world.device_of(context.addr());
        present(&world, device)?;
        let handle = world.number();
        let pd = Pd::new(context, device, handle, false);
        let raw = pd.c.raw();
        world.pds.insert(raw.addr(), pd);
        Ok(raw)
    }
}

export! { verbs:
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
        let mut world = world();
        if world.pd(pd.addr()).users > 0 {
            return Err(libc::EBUSY);
        }
        if let Some(pd) = world.pds.remove(pd.addr()) {
            world.bury("protection domain", pd.c);
        }
        Ok(())
    }
}
