//! The bare skeleton under the load generator, over real sockets and a real file.
#![expect(clippy::unwrap_used, reason = "a failure here ends the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use duolog_benches::generator::clock::pause;
use duolog_benches::generator::{self, Settings};
use duolog_benches::uring::skeleton::{self, SkeletonError, SkeletonSettings};

/// Starts a skeleton that lives as long as the test. `None`, with a message, where the system
/// does not allow what it needs.
fn start(dir: &std::path::Path, writes_in_flight: usize) -> Option<SocketAddr> {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings =
        SkeletonSettings { listen: addr.to_string(), dir: dir.to_owned(), writes_in_flight };
    let server = std::thread::spawn(move || skeleton::serve(&settings));
    while TcpStream::connect(addr).is_err() {
        if server.is_finished() {
            let error = server.join().unwrap().unwrap_err();
            assert!(matches!(error, SkeletonError::Runtime(_)), "{error}");
            eprintln!("SKIPPED: {error}");
            return None;
        }
        pause(Duration::from_millis(10));
    }
    Some(addr)
}

fn settings(addr: SocketAddr, connections: u32, in_flight: u32) -> Settings {
    Settings {
        in_flight,
        streams: 1000,
        warm_up: Duration::from_millis(100),
        drain: Duration::from_secs(20),
        run_id: 1,
        ..Settings::appends(addr, connections, 100, Duration::from_millis(400))
    }
}

/// Every request is answered, at every mix of hot and cold connections, also when the load ends
/// and all connections cool down. Broken if one is left without a sweep and without a poll: its
/// request would stay unanswered for the 20 s of the drain.
#[test]
fn no_request_is_left_unanswered() {
    let dir = tempfile::tempdir().unwrap();
    for writes_in_flight in [1, 3] {
        let dir = dir.path().join(writes_in_flight.to_string());
        std::fs::create_dir(&dir).unwrap();
        let Some(addr) = start(&dir, writes_in_flight) else { return };
        for (connections, in_flight) in [(1, 1), (3, 1), (5, 7), (200, 1), (100, 8)] {
            let report = generator::run(&settings(addr, connections, in_flight)).unwrap();
            assert!(report.acked > 0, "{report:?}");
            assert_eq!((report.errors, report.unanswered), (0, 0), "{report:?}");
        }
        // A rate far below capacity: hot connections find nothing and cool down again and again.
        let slow = Settings { rate_per_s: Some(2000), ..settings(addr, 50, 1) };
        let report = generator::run(&slow).unwrap();
        assert_eq!((report.errors, report.unanswered), (0, 0), "{report:?}");
    }
}

/// Bytes that are no frame end their own connection and no other.
#[test]
fn garbage_ends_only_its_own_connection() {
    let dir = tempfile::tempdir().unwrap();
    let Some(addr) = start(dir.path(), 1) else { return };
    let mut garbage = TcpStream::connect(addr).unwrap();
    garbage.write_all(&[0xa5; 100]).unwrap();
    garbage.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Closed or reset: both end the connection.
    match garbage.read(&mut [0; 10]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    let report = generator::run(&settings(addr, 2, 1)).unwrap();
    assert!(report.acked > 0 && report.errors == 0, "{report:?}");
}
