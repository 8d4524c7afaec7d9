//! The stand-in is what is loaded, under both names, and carries a connection from end to end.

mod standin;

use std::fs;
use std::thread;

use rdmacm::{Connector, Listener, Options};
use standin::Standin;

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn no_real_library_is_mapped() {
    let _standin = Standin::start();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut files: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains("rdmacm.so") || path.contains("ibverbs"))
        .collect();
    files.dedup();
    let [file] = files[..] else {
        panic!("mapped: {files:?}");
    };
    // Of the file that is mapped under the one name, the symbols that only the stand-in has.
    let bytes = fs::read(file).unwrap();
    let marker = b"standin_version";
    assert!(
        bytes.windows(marker.len()).any(|part| part == marker),
        "{file}"
    );
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_probes_for_newer_functions_find_the_stand_in() {
    let _standin = Standin::start();
    assert!(rdma_sys::probe::rdma_write_cm_event().is_some());
    assert!(rdma_sys::probe::ibv_create_comp_cntr().is_none());
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_message_goes_to_the_other_end_and_back() {
    let standin = Standin::start();
    let listener = Listener::bind("10.9.0.1:0").unwrap();
    let to = listener.local_addr();
    let server = thread::spawn(move || {
        let mut connection = listener.accept().unwrap();
        while let Some(message) = connection.recv().unwrap() {
            connection.send_buf(message).unwrap();
        }
    });
    let options = Options::new().private_data("hello");
    let mut client = Connector::with(options).connect(to).unwrap();
    for round in 0..100_u8 {
        client.send(&[round; 300]).unwrap();
        assert_eq!(&client.recv().unwrap().unwrap()[..], &[round; 300]);
    }
    client.close().unwrap();
    server.join().unwrap();
    standin.nothing_left();
}
