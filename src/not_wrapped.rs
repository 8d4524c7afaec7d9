//! The functions of librdmacm that have no safe form here, and why.
//!
//! | function | why |
//! |---|---|
//! | `rdma_create_ep`, `rdma_get_request`, `rdma_destroy_ep` | synchronous ids: their calls wait inside the library, for ever if the peer wills, and a failed `rdma_get_request` loses the new id. [`Listener`](crate::Listener) and [`Connector`](crate::Connector) are what they are for |
//! | `rdma_create_id` without a channel, `rdma_migrate_id` to none | the same |
//! | `rdma_destroy_qp` | returns nothing and forgets a queue pair that is still alive; [`QueuePair::close`](crate::QueuePair::close) and [`destroy`](crate::QueuePair::destroy) report the error |
//! | `rdma_create_srq`, `rdma_destroy_srq` | keep the shared receive queue in the id, whose end then depends on it; [`ProtectionDomain::create_srq`](crate::ProtectionDomain::create_srq) makes one |
//! | `rdma_get_devices`, `rdma_free_devices` | open every device of the machine and keep it from being removed |
//! | `rdma_reg_msgs`, `rdma_post_send` and the other inlines of `rdma_verbs.h` | take bare pointers; [`Pool`](crate::Pool), [`SendQueue`](crate::SendQueue) and [`ReceiveQueue`](crate::ReceiveQueue) are what they are for |
//! | `rsocket` and its family | sockets in all but name, with file descriptors that the library does not check |
//! | `rdma_getaddrinfo` | [`std::net::ToSocketAddrs`] does the job, without results that an IP listener cannot match |
//! | `ibv_rereg_mr` | changes a registration under the requests that use it; [`Exposed::revoke`](crate::Exposed::revoke) and [`Pool::into_owner`](crate::Pool::into_owner) give the memory back to be registered anew |
//! | `IBV_ACCESS_ZERO_BASED`, implicit on-demand regions | another address for memory that a [`RemoteMemory`](crate::RemoteMemory) names anyway; a key for all of the process's memory |
//!
//! Not wrapped yet: what came with rdma-core 60 (`rdma_resolve_addrinfo`, `rdma_query_addrinfo`, `rdma_write_cm_event`). The raw
//! symbols are in `rdmacm-sys`.
