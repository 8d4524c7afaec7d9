#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_int;

use crate::arg;
use crate::c::{ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_pd, ibv_qp_type, ibv_wc};
use crate::call::Errno;
use crate::doom::doom;
use crate::poison::{Obj, zeroed};
use crate::qp::Qp;
use crate::world::{World, world};

/// An address handle.
pub(crate) struct Ah {
    pub(crate) c: Obj<ibv_ah>,
    pub(crate) pd: usize,
    pub(crate) attr: ibv_ah_attr,
}

impl World {
    /// The living address handle at this address.
    pub(crate) fn ah(&self, address: usize) -> &Ah {
        match self.ahs.find(address) {
            Some(found) => found,
            None => self.missing("address handle", address),
        }
    }

    fn create_ah(&mut self, pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
        let handle = self.number();
        let found = self.pd_mut(pd.addr());
        // RoCE has global addresses only.
        if attr.is_global == 0 || attr.port_num != 1 {
            return Err(libc::EINVAL);
        }
        found.users += 1;
        let context = found.c.look(|c| c.context);
        let c = Obj::new(ibv_ah {
            context,
            pd,
            handle,
        });
        let raw = c.raw();
        let ah = Ah {
            c,
            pd: pd.addr(),
            attr: *attr,
        };
        self.ahs.insert(raw.addr(), ah);
        Ok(raw)
    }
}

fn from_wc(port_num: u8, wc: *mut ibv_wc, grh: *mut ibv_grh) -> Result<ibv_ah_attr, Errno> {
    let wc = arg::read("the completion", wc.cast_const());
    if wc.wc_flags & crate::c::IBV_WC_GRH == 0 {
        return Err(libc::EINVAL);
    }
    let mut attr: ibv_ah_attr = zeroed();
    attr.is_global = 1;
    attr.port_num = port_num;
    attr.grh.hop_limit = 64;
    // Back to where it came from.
    attr.grh.dgid = arg::read("the header", grh.cast_const()).sgid;
    Ok(attr)
}

export! { pointer:
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        let attr = arg::read("the attributes", attr.cast_const());
        world().create_ah(pd, &attr)
    }

    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah {
        let attr = from_wc(port_num, wc, grh)?;
        world().create_ah(pd, &attr)
    }
}

export! { verbs:
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port_num: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        ah_attr: *mut ibv_ah_attr,
    ) -> c_int {
        let _ = world().device_of(context.addr());
        arg::write("the attributes", ah_attr, from_wc(port_num, wc, grh)?);
        Ok(())
    }

    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
        let mut world = world();
        let sends = |qp: &Qp| qp.kind == ibv_qp_type::IBV_QPT_UD && qp.sends_to(ah);
        if let Some((_, qp)) = world.qps.iter().find(|(_, qp)| sends(qp)) {
            doom!("the address handle is destroyed while sends of the queue pair {:#x} are posted with it", qp.number);
        }
        let Some(found) = world.ahs.remove(ah.addr()) else {
            world.missing("address handle", ah.addr());
        };
        world.pd_mut(found.pd).users -= 1;
        world.bury("address handle", found.c);
        Ok(())
    }
}
