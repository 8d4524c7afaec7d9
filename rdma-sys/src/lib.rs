//! Raw bindings to librdmacm and libibverbs.
