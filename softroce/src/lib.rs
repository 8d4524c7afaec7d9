//! A micro-VM with soft-RoCE devices.
