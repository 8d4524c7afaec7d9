//! Private data of connect, accept and reject, on soft-RoCE (rxe), where every message has a field of a fixed length.

mod common;

use common::cm::{End, Listening, Parts, assert_too_large, established, event, rejected, request};
use common::{any_port, device, in_time};
use rdmacm::{ConnParam, Connection, Connector, EventKind, Listener, Options};

/// What fits into a request, an answer and a rejection: InfiniBand's fields, of which the first loses 36 bytes to the
/// connection manager's own header.
const CONNECT: usize = 56;
const ACCEPT: usize = 196;
const REJECT: usize = 148;

/// `data` as it arrives: followed by zeros up to the whole field.
fn padded(data: &[u8], field: usize) -> Vec<u8> {
    let mut padded = data.to_vec();
    padded.resize(field, 0);
    padded
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_arrives_is_the_whole_field_padded_with_zeros() {
    device();
    in_time("padding", || {
        let listening = Listening::new();
        // The last one ends in zeros of its own: nothing is trimmed.
        for sent in [&b""[..], b"abc", b"a\0\0"] {
            let client = End::client(listening.addr());
            client
                .id
                .connect(ConnParam::new().private_data(sent))
                .unwrap();
            let request = listening.request();
            assert_eq!(request.private_data(), padded(sent, CONNECT));
            let server = End::accept(request, &ConnParam::new().private_data(sent));
            let answer = established(&client.channel);
            assert_eq!(answer.private_data(), padded(sent, ACCEPT));
            drop(server);

            let client = End::connecting(listening.addr());
            listening.request().reject(sent).unwrap();
            let rejection = rejected(&client.channel);
            assert_eq!(rejection.private_data(), padded(sent, REJECT));
            assert_eq!(rejection.reason().as_raw(), 28);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn private_data_of_57_bytes_is_refused_and_56_work() {
    device();
    in_time("private data of a request", || {
        let listening = Listening::new();
        let client = End::client(listening.addr());
        // 300 and 312 would wrap to 44 and 56 in C's eight bits.
        for above in [57, 255, 256, 300, 312] {
            let error = client
                .id
                .connect(ConnParam::new().private_data(vec![9; above]))
                .unwrap_err();
            assert_too_large(
                &error,
                "rdma_connect",
                "private_data_len",
                above as u64,
                CONNECT as u64,
            );
        }
        let fits: Vec<u8> = (1..=56).collect();
        client
            .id
            .connect(ConnParam::new().private_data(&fits[..]))
            .unwrap();
        assert_eq!(listening.request().private_data(), fits);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_answer_of_197_bytes_is_refused_and_196_work() {
    device();
    in_time("private data of an answer", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let mut request = listening.request();
        let _parts = Parts::of_request(&request);
        for above in [197, 255, 256, 300, 452] {
            let param = ConnParam::new().private_data(vec![9; above]);
            let failed = request.accept_with(&param).unwrap_err();
            assert_too_large(
                failed.error(),
                "rdma_accept",
                "private_data_len",
                above as u64,
                ACCEPT as u64,
            );
            request = failed.into_inner().expect("the peer was not answered");
        }
        let fits: Vec<u8> = (1..=196).collect();
        let _id = request
            .accept_with(&ConnParam::new().private_data(&fits[..]))
            .unwrap();
        assert_eq!(established(&client.channel).private_data(), fits);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_rejection_of_149_bytes_rejects_without_them_and_148_work() {
    device();
    in_time("private data of a rejection", || {
        let listening = Listening::new();
        for above in [149, 256, 300, 404] {
            let client = End::connecting(listening.addr());
            let error = listening.request().reject(&vec![9; above]).unwrap_err();
            assert_too_large(
                &error,
                "rdma_reject",
                "private_data_len",
                above as u64,
                REJECT as u64,
            );
            let rejection = rejected(&client.channel);
            assert_eq!(rejection.private_data(), [0; REJECT]);
            assert_eq!(rejection.reason().as_raw(), 28);
        }
        let client = End::connecting(listening.addr());
        let fits: Vec<u8> = (1..=148).collect();
        listening.request().reject(&fits).unwrap();
        assert_eq!(rejected(&client.channel).private_data(), fits);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_blocking_layer_has_the_same_limits() {
    device();
    in_time("private data of the blocking layer", || {
        let listener = Listener::bind(any_port()).unwrap();
        let addr = listener.local_addr();
        let error = Connector::with(Options::new().private_data([1; 57]))
            .connect(addr)
            .map(drop)
            .unwrap_err();
        assert_too_large(&error, "rdma_connect", "private_data_len", 57, 56);

        let client = std::thread::spawn(move || {
            let connector = Connector::with(Options::new().private_data([5; 56]));
            let refused = connector.connect(addr).map(drop).unwrap_err();
            let accepted: Connection = connector.connect(addr).unwrap();
            (refused, accepted.private_data().to_vec())
        });
        // Too much for an answer: the client is rejected, and not left waiting.
        let request = listener.request().unwrap();
        assert_eq!(request.private_data(), [5; 56]);
        let error = request
            .accept_with(&Options::new().private_data([1; 197]))
            .map(drop)
            .unwrap_err();
        assert_too_large(&error, "rdma_accept", "private_data_len", 197, 196);
        let server = listener
            .request()
            .unwrap()
            .accept_with(&Options::new().private_data([6; 196]))
            .unwrap();
        assert!(server.private_data().is_empty(), "the request had it");
        let (refused, answer) = client.join().unwrap();
        assert_eq!(refused.rejection().unwrap().reason().as_raw(), 28);
        assert_eq!(answer, [6; 196]);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_event_without_private_data_has_an_empty_slice() {
    device();
    in_time("events without data", || {
        let listening = Listening::new();
        // Nobody listens there: the rejection comes from the kernel and not from a program.
        let nobody = End::connecting(any_port_without_listener());
        let rejection = rejected(&nobody.channel);
        assert_eq!(rejection.reason().as_raw(), 8);
        assert!(
            rejection.private_data().iter().all(|&byte| byte == 0),
            "{:?}",
            rejection.private_data()
        );

        let client = End::client(listening.addr());
        let param = ConnParam::new().private_data(&b"request"[..]);
        client.id.connect(param).unwrap();
        let server = End::accept(
            listening.request(),
            &ConnParam::new().private_data(&b"answer"[..]),
        );
        established(&client.channel);
        let passive = established(&server.channel);
        assert_eq!(passive.private_data(), b"");
        client.id.disconnect().unwrap();
        let event = event(&server.channel);
        assert!(
            matches!(event.kind, EventKind::Disconnected(status) if status.errno().is_none()),
            "{event:?}"
        );
    });
}

/// The address of a listener that is gone.
fn any_port_without_listener() -> std::net::SocketAddr {
    Listening::new().addr()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn private_data_is_copied_by_the_call() {
    device();
    in_time("buffers of the caller", || {
        let listening = Listening::new();
        let client = End::client(listening.addr());
        {
            let mut buffer = b"first".to_vec();
            let param = ConnParam::new().private_data(&buffer[..]);
            client.id.connect(param).unwrap();
            buffer.fill(b'x');
        }
        let request = request(&listening.channel);
        assert!(request.private_data().starts_with(b"first\0"));
        let _parts = Parts::of_request(&request);
        let mut buffer = b"second".to_vec();
        let _id = request
            .accept_with(&ConnParam::new().private_data(&buffer[..]))
            .unwrap();
        buffer.fill(b'x');
        assert!(
            established(&client.channel)
                .private_data()
                .starts_with(b"second\0")
        );
    });
}
