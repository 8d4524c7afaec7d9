#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use crate::abi::Posts;
use crate::arg;
use crate::asynchronous::{Element, Told, acknowledged};
use crate::c::{
    ibv_event_type, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
    rdma_cm_id,
};
use crate::call::Errno;
use crate::doom::doom;
use crate::orders::Orders;
use crate::poison::{Obj, zeroed};
use crate::qp::Receive;
use crate::world::{Guard, World, world};

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) c: Obj<ibv_srq>,
    pub(crate) pd: usize,
    pub(crate) queue: VecDeque<Receive>,
    pub(crate) attr: ibv_srq_attr,
    pub(crate) users: u32,
    /// Its asynchronous events.
    pub(crate) told: Told,
    /// What a test asks of it, and what was posted.
    pub(crate) orders: Orders,
    pub(crate) posts: Posts,
    /// How many slots are taken, until a completion is polled.
    pub(crate) used: u32,
}

impl World {
    fn create_srq(
        &mut self,
        pd: *mut ibv_pd,
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    ) -> Result<*mut ibv_srq, Errno> {
        let limits = &self.devices[self.pd(pd.addr()).device].attr;
        let (most, pieces) = (limits.max_srq_wr, limits.max_srq_sge);
        let above = |asked: u32, most: i32| u32::try_from(most).is_ok_and(|most| asked > most);
        if attr.max_wr == 0 || above(attr.max_wr, most) || above(attr.max_sge, pieces) {
            return Err(libc::EINVAL);
        }
        let found = self.pd_mut(pd.addr());
        found.users += 1;
        let context = found.c.look(|c| c.context);
        let mut c: ibv_srq = zeroed();
        c.context = context;
        c.srq_context = srq_context;
        c.pd = pd;
        let c = Obj::new(c);
        let raw = c.raw();
        let srq = Srq {
            c,
            pd: pd.addr(),
            queue: VecDeque::new(),
            attr,
            users: 0,
            told: Told::default(),
            orders: self.orders.clone(),
            posts: Posts::default(),
            used: 0,
        };
        self.srqs.insert(raw.addr(), srq);
        Ok(raw)
    }

    /// A receive was taken off a shared queue: below the limit, that is told once.
    pub(crate) fn took_shared(&mut self, srq: usize) {
        let found = self.srq_mut(srq);
        let left = u32::try_from(found.queue.len()).unwrap_or(u32::MAX);
        if left < found.attr.srq_limit {
            found.attr.srq_limit = 0;
            self.happens(0, ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED, srq);
        }
    }
}

/// Destroys a shared receive queue, once its events are acknowledged.
fn destroy_srq(world: Guard, address: usize) -> Result<(), Errno> {
    if world.srq(address).users > 0 {
        return Err(libc::EBUSY);
    }
    let mut world = acknowledged(world, "shared receive queue", Element::Srq(address));
    if let Some(srq) = world.srqs.remove(address) {
        world.pd_mut(srq.pd).users -= 1;
        world.bury("shared receive queue", srq.c);
    }
    Ok(())
}

export! { pointer:
    fn ibv_create_srq(pd: *mut ibv_pd, srq_init_attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
        let init = arg::read("the attributes", srq_init_attr.cast_const());
        world().create_srq(pd, init.srq_context, init.attr)
    }
}

export! { verbs:
    fn ibv_modify_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr, srq_attr_mask: c_int) -> c_int {
        let attr = arg::read("the attributes", srq_attr.cast_const());
        let mut world = world();
        let found = world.srq_mut(srq.addr());
        if srq_attr_mask & 2 != 0 {
            if attr.srq_limit > found.attr.max_wr {
                return Err(libc::EINVAL);
            }
            found.attr.srq_limit = attr.srq_limit;
        }
        Ok(())
    }

    fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int {
        arg::write("the attributes", srq_attr, world().srq(srq.addr()).attr);
        Ok(())
    }

    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
        destroy_srq(world(), srq.addr())
    }
}

export! { rdma:
    fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int {
        let init = arg::read("the attributes", attr.cast_const());
        let mut world = world();
        let own = world.id(id.addr()).c.look(|c| c.pd);
        let pd = if pd.is_null() { own } else { pd };
        let raw = world.create_srq(pd, init.srq_context, init.attr)?;
        world.id(id.addr()).c.edit(|c| c.srq = raw);
        Ok(())
    }

    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
        let init = arg::read("the attributes", attr.cast_const());
        let mut world = world();
        let own = world.id(id.addr()).c.look(|c| c.pd);
        let pd = if init.pd.is_null() { own } else { init.pd };
        let raw = world.create_srq(pd, init.srq_context, init.attr)?;
        world.id(id.addr()).c.edit(|c| c.srq = raw);
        Ok(())
    }
}

export! { plain:
    fn rdma_destroy_srq(id: *mut rdma_cm_id) {
        let world = world();
        let srq = world.id(id.addr()).c.look(|c| c.srq.addr());
        if srq == 0 {
            doom!("there is no shared receive queue on the id: would follow a null pointer");
        }
        let _ = destroy_srq(world, srq);
        crate::world::world().id(id.addr()).c.edit(|c| c.srq = std::ptr::null_mut());
    }
}
