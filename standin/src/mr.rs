#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::c::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_OPTIONAL_FIRST,
    IBV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd, ibv_sge,
};
use crate::call::Errno;
use crate::device::present;
use crate::doom::doom;
use crate::poison::Obj;
use crate::qp::Receive;
use crate::world::{World, world};

/// A memory region.
pub(crate) struct Mr {
    pub(crate) c: Obj<ibv_mr>,
    pub(crate) pd: usize,
    start: u64,
    length: u64,
    /// Where the memory is, when the device knows it under another address.
    offset: u64,
    access: c_uint,
    key: u32,
    /// Where a dma-buf is mapped, and for how many bytes.
    mapping: Option<(usize, usize)>,
}

const PAGE: u64 = 4096;

impl World {
    fn register(
        &mut self,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> Result<*mut ibv_mr, Errno> {
        let device = self.pd(pd.addr()).device;
        present(self, device)?;
        let remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        if access & remote != 0 && access & IBV_ACCESS_LOCAL_WRITE == 0 {
            return Err(libc::EINVAL);
        }
        if (addr.is_null() && length > 0) || length == 0 {
            return Err(libc::EINVAL);
        }
        if access & IBV_ACCESS_ON_DEMAND != 0 && !self.devices[device].pages_on_demand() {
            return Err(libc::EOPNOTSUPP);
        }
        let key = self.number();
        let context = self.pd(pd.addr()).c.look(|c| c.context);
        let c = Obj::new(ibv_mr {
            context,
            pd,
            addr,
            length,
            handle: key,
            lkey: key,
            rkey: key,
        });
        let raw = c.raw();
        let mr = Mr {
            c,
            pd: pd.addr(),
            start: iova,
            length: length as u64,
            offset: (addr.expose_provenance() as u64).wrapping_sub(iova),
            access: access & (IBV_ACCESS_OPTIONAL_FIRST - 1),
            key,
            mapping: None,
        };
        self.mrs.insert(raw.addr(), mr);
        self.keys.insert(key, raw.addr());
        self.pd_mut(pd.addr()).users += 1;
        Ok(raw)
    }

    /// Registers a file in place of a dma-buf: what the device reaches is the file.
    fn register_dmabuf(
        &mut self,
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_uint,
    ) -> Result<*mut ibv_mr, Errno> {
        let known = IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC
            | IBV_ACCESS_RELAXED_ORDERING;
        if access & !known != 0 || iova % PAGE != offset % PAGE {
            return Err(libc::EINVAL);
        }
        let device = self.pd(pd.addr()).device;
        if self.devices[device].is_iwarp() {
            return Err(libc::EOPNOTSUPP);
        }
        let end = usize::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_add(length));
        // SAFETY: takes a number and nothing else.
        let size = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
        let end = end.filter(|&end| usize::try_from(size).is_ok_and(|size| end <= size));
        let end = end.ok_or(libc::EINVAL)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of bytes that the file has.
        let base = unsafe { libc::mmap(ptr::null_mut(), end, rights, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(libc::EINVAL);
        }
        let addr = base.wrapping_byte_add(end - length);
        let raw = self.register(pd, addr, length, iova, access)?;
        if let Some(mr) = self.mrs.find_mut(raw.addr()) {
            mr.mapping = Some((base.expose_provenance(), end));
        }
        Ok(raw)
    }

    /// The memory that a device reaches by a key, if it may: its address in the process.
    pub(crate) fn reach(
        &self,
        key: u32,
        pd: usize,
        address: u64,
        length: u64,
        access: c_uint,
    ) -> Option<u64> {
        let mr = self.mrs.find(*self.keys.get(&key)?)?;
        let end = address.checked_add(length)?;
        let inside = address >= mr.start && end <= mr.start.checked_add(mr.length)?;
        let allowed = mr.access & access == access;
        (mr.pd == pd && inside && allowed).then(|| address.wrapping_add(mr.offset))
    }

    /// The pieces of a request in the process's memory, if all are registered for `access`.
    pub(crate) fn reach_all(
        &self,
        pieces: &[ibv_sge],
        pd: usize,
        access: c_uint,
    ) -> Option<Vec<(u64, u32)>> {
        let reach = |sge: &ibv_sge| {
            let address = self.reach(sge.lkey, pd, sge.addr, sge.length.into(), access)?;
            Some((address, sge.length))
        };
        pieces
            .iter()
            .filter(|sge| sge.length > 0)
            .map(reach)
            .collect()
    }
}

export! { pointer:
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr {
        world().register(pd, addr, length, iova, access)
    }
}

export_extra! { pointer:
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        let access = c_uint::from_ne_bytes(access.to_ne_bytes());
        world().register(pd, addr, length, addr.expose_provenance() as u64, access)
    }
}

export! { pointer:
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut ibv_mr {
        let access = c_uint::from_ne_bytes(access.to_ne_bytes());
        world().register_dmabuf(pd, offset, length, iova, fd, access)
    }
}

export! { verbs:
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
        let mut world = world();
        let Some(found) = world.mrs.find(mr.addr()) else {
            world.missing("memory region", mr.addr());
        };
        let (key, pd) = (found.key, found.pd);
        let posted = world.qps.iter().find(|(_, qp)| qp.posts_with(key)).map(|(_, qp)| qp.number);
        if let Some(number) = posted {
            doom!("the memory region is ended while requests of the queue pair {number:#x} are posted on it");
        }
        let uses = |receive: &Receive| receive.pieces.iter().any(|sge| sge.lkey == key);
        if world.srqs.iter().any(|(_, srq)| srq.queue.iter().any(uses)) {
            doom!("the memory region is ended while receives of a shared receive queue are posted on it");
        }
        if world.windows_on(mr.addr()) > 0 {
            return Err(libc::EBUSY);
        }
        world.keys.remove(&key);
        world.pd_mut(pd).users -= 1;
        if let Some(mr) = world.mrs.remove(mr.addr()) {
            if let Some((base, length)) = mr.mapping {
                // SAFETY: mapped when it was registered, and nobody reaches it any more.
                unsafe { libc::munmap(ptr::with_exposed_provenance_mut(base), length) };
            }
            world.bury("memory region", mr.c);
        }
        Ok(())
    }
}
