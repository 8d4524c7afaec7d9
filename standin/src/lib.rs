//! A strict stand-in for librdmacm and libibverbs.
//!
//! One shared object with the symbols of both, to be put on the library path under both real names (`librdmacm.so.1`, and
//! `libibverbs.so.1` as a link to it). It works without a device: ids connect to ids of the same process, and sends complete
//! into posted receives. It keeps librdmacm's accounting of events and its waits, poisons what is destroyed, and ends the
//! process with one line on every call on which the real libraries would crash, wait for ever or read freed memory.
//!
//! Tests steer it by the functions `standin_*` (`control.rs`; `provider.rs` for what becomes of posted requests), found by
//! `dlsym`: the state is in this object only.

#[macro_use]
mod call;

mod abi;
mod addr;
mod addrinfo;
mod ah;
mod arg;
mod asynchronous;
mod c;
mod calls;
mod channel;
mod cm_qp;
mod comp;
mod connect;
mod control;
mod cq;
mod datagram;
mod deliver;
mod device;
mod doom;
mod event;
mod gid;
mod id;
mod inject;
mod kernel;
mod message;
mod mr;
mod multicast;
mod mw;
mod option;
mod orders;
mod pd;
mod peer;
mod poison;
mod post;
mod process;
mod provider;
mod qp;
mod qp_state;
mod record;
mod remote;
mod resolve;
mod srq;
mod stub;
mod table;
mod wire;
mod world;
mod wr;
