//! Connections of the blocking layer.

use std::thread;

use rdmacm::{Connection, Connector, Listener, Options};

use super::any_port;

/// The two ends of a connection, the client's first.
pub(crate) fn connected(options: &Options) -> (Connection, Connection) {
    let listener = Listener::bind(any_port()).expect("bind");
    let (addr, options) = (listener.local_addr(), options.clone());
    let ours = options.clone();
    let client = thread::spawn(move || Connector::with(ours).connect(addr).expect("connect"));
    let request = listener.request().expect("a request");
    let server = request.accept_with(&options).expect("accept");
    (client.join().expect("no panic"), server)
}
