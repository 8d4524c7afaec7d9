//! Safe RDMA connection manager and verbs.
