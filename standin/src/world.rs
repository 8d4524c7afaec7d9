#![expect(unsafe_code, reason = "keeps pointers behind a lock")]
//! Everything that lives, behind one lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::Refusal;
use crate::ah::Ah;
use crate::channel::Channel;
use crate::comp::Comp;
use crate::cq::Cq;
use crate::device::Device;
use crate::doom::doom;
use crate::event::Event;
use crate::id::Id;
use crate::inject;
use crate::kernel::Bound;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::orders::{Orders, Target};
use crate::pd::Pd;
use crate::poison::{Graveyard, Obj};
use crate::qp::Qp;
use crate::record;
use crate::srq::Srq;
use crate::table::{Map, Table};

/// All objects, by the address of their C structure.
pub(crate) struct World {
    pub(crate) channels: Table<Channel>,
    pub(crate) ids: Table<Id>,
    pub(crate) events: Table<Event>,
    pub(crate) pds: Table<Pd>,
    pub(crate) mrs: Table<Mr>,
    pub(crate) cqs: Table<Cq>,
    pub(crate) comps: Table<Comp>,
    pub(crate) qps: Table<Qp>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) ahs: Table<Ah>,
    pub(crate) mws: Table<Mw>,
    pub(crate) devices: Vec<Device>,
    pub(crate) graves: Graveyard,
    /// Ids by the port that they have taken.
    pub(crate) ports: Map<u32, Vec<Bound>>,
    pub(crate) last_port: u16,
    /// Queue pairs by number, memory regions by key.
    pub(crate) numbers: Map<u32, usize>,
    pub(crate) keys: Map<u32, usize>,
    pub(crate) last_number: u32,
    /// How long a call may wait for what the program owes it.
    pub(crate) patience: Duration,
    /// What is asked of queues that are made from now on.
    pub(crate) orders: Orders,
    /// The posts to be refused: where, on which side, how.
    pub(crate) refusals: Vec<(Target, usize, Refusal)>,
    /// Whether something is to be done while time goes by.
    pub(crate) ticking: bool,
    /// With what the pattern in posted receives begins.
    pub(crate) scribbled: u8,
}

// SAFETY: the pointers in it are addresses of objects that live here, and what programs gave; they are followed with the lock
// held, and C lets every thread do that.
unsafe impl Send for World {}

/// The world, locked.
pub(crate) type Guard = MutexGuard<'static, World>;

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));
static CHANGED: Condvar = Condvar::new();
/// How many threads wait for a change: with none, nobody is woken, which would take a system call.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Locks the world.
pub(crate) fn world() -> Guard {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes everybody who waits for a change. The caller has the world locked.
pub(crate) fn changed() {
    if WAITING.load(Ordering::SeqCst) > 0 {
        CHANGED.notify_all();
    }
}

/// Waits for a change; ends the process when it does not come for as long as the world is patient.
pub(crate) fn wait(world: Guard, since: Instant, complaint: impl FnOnce() -> String) -> Guard {
    let left = world.patience.saturating_sub(since.elapsed());
    if left.is_zero() {
        doom!("would wait for ever: {}", complaint());
    }
    WAITING.fetch_add(1, Ordering::SeqCst);
    let world = CHANGED
        .wait_timeout(world, left)
        .unwrap_or_else(PoisonError::into_inner)
        .0;
    WAITING.fetch_sub(1, Ordering::SeqCst);
    world
}

/// Waits for a change, for ever.
pub(crate) fn wait_for_ever(world: Guard) -> Guard {
    WAITING.fetch_add(1, Ordering::SeqCst);
    let world = CHANGED.wait(world).unwrap_or_else(PoisonError::into_inner);
    WAITING.fetch_sub(1, Ordering::SeqCst);
    world
}

impl World {
    fn new() -> Self {
        Self {
            channels: Table::new("event channel"),
            ids: Table::new("id"),
            events: Table::new("event"),
            pds: Table::new("protection domain"),
            mrs: Table::new("memory region"),
            cqs: Table::new("completion queue"),
            comps: Table::new("completion channel"),
            qps: Table::new("queue pair"),
            srqs: Table::new("shared receive queue"),
            ahs: Table::new("address handle"),
            mws: Table::new("memory window"),
            devices: Device::all(),
            graves: Graveyard::default(),
            ports: Map::default(),
            last_port: 32_767,
            numbers: Map::default(),
            keys: Map::default(),
            last_number: 16,
            patience: Duration::from_secs(10),
            orders: Orders::default(),
            refusals: Vec::new(),
            ticking: false,
            scribbled: 0,
        }
    }

    /// A number that no queue pair, key or handle has had.
    pub(crate) fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// How many objects live, in the order of `abi::KINDS`. What the library made for itself does not count.
    pub(crate) fn living(&self) -> [usize; 11] {
        [
            self.channels.len(),
            self.ids.iter().filter(|(_, id)| !id.automatic).count(),
            self.events.len(),
            self.pds.iter().filter(|(_, pd)| !pd.librarys).count(),
            self.mrs.len(),
            self.cqs.len(),
            self.comps.len(),
            self.qps.len(),
            self.srqs.len(),
            self.ahs.len(),
            self.mws.len(),
        ]
    }

    /// Ends the process: `address` is no living `kind`.
    #[cold]
    pub(crate) fn missing(&self, kind: &str, address: usize) -> ! {
        match self.graves.kind(address) {
            Some(dead) => doom!("use of a destroyed {dead} ({address:#x})"),
            None if address == 0 => doom!("would follow a null pointer to the {kind}"),
            None => doom!("{address:#x} is no {kind} and never was"),
        }
    }

    /// Poisons the C structure of an object that is gone.
    pub(crate) fn bury<T>(&mut self, kind: &'static str, object: Obj<T>) {
        self.graves.bury(kind, object);
    }
}

macro_rules! lookups {
    ($($table:ident: $get:ident $get_mut:ident $ty:ty;)*) => {
        impl World {$(
            /// The living object at this address, which the caller claims to be one.
            pub(crate) fn $get(&self, address: usize) -> &$ty {
                match self.$table.find(address) {
                    Some(found) => found,
                    None => self.missing(self.$table.kind, address),
                }
            }

            /// The same, to be changed.
            pub(crate) fn $get_mut(&mut self, address: usize) -> &mut $ty {
                if self.$table.find(address).is_none() {
                    self.missing(self.$table.kind, address);
                }
                match self.$table.find_mut(address) {
                    Some(found) => found,
                    None => doom!("lost {address:#x}"),
                }
            }
        )*}
    };
}

lookups! {
    channels: channel channel_mut Channel;
    ids: id id_mut Id;
    pds: pd pd_mut Pd;
    cqs: cq cq_mut Cq;
    comps: comp comp_mut Comp;
    qps: qp qp_mut Qp;
    srqs: srq srq_mut Srq;
}

/// What a thread that is held in a call is about to do with an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) call: &'static str,
    pub(crate) thread: u64,
    /// Whether it has read `id->qp`, or will, without a lock.
    pub(crate) reads_qp: bool,
    /// Whether it is reading an event, which the id's destruction waits for.
    pub(crate) reads_event: bool,
}

/// The dangerous place of a call: where the C library has begun to work on an id and holds no lock.
///
/// Nothing happens here unless a test holds threads at it. While one is held, others may come; what they must not do
/// meanwhile is checked in their calls.
pub(crate) fn window(
    world: Guard,
    id: usize,
    call: &'static str,
    reads_qp: bool,
    reads_event: bool,
) -> Guard {
    if !inject::is_delayed(call) {
        return world;
    }
    let mut held = world;
    let window = Window {
        call,
        thread: record::thread(),
        reads_qp,
        reads_event,
    };
    held.id_mut(id).windows.push(window);
    drop(held);
    inject::hold(call);
    let mut held = self::world();
    let windows = &mut held.id_mut(id).windows;
    if let Some(place) = windows.iter().position(|other| *other == window) {
        windows.remove(place);
    }
    held
}
