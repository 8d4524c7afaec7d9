use super::context::Context;

/// Where the datagrams of a ring come in.
#[derive(Debug)]
pub(super) struct Arrivals {
    pub(super) context: Context,
    pub(super) port_num: u8,
}
