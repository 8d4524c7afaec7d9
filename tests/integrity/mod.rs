//! Messages of every kind, agreed on by a seed and checked byte for byte.

pub(crate) mod end;
pub(crate) mod runner;
pub(crate) mod script;
