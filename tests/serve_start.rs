//! Starts that are refused, each with its exit code and remedy, and starts that must work.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_tests::process::log_files::copy;
use duolog_tests::process::{
    Ended, Operation, ServerOptions, Wire, free_port, run, scratch, skip, until,
};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

fn assert_refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let told = ended.words();
    for word in words {
        assert!(told.contains(word), "{word:?} is not in {told:?}");
    }
    assert!(!told.contains("panicked"), "{told:?}");
}

/// A log with one event, of a server that is stopped.
fn stopped(dir: &Path) -> ServerOptions {
    let server = ServerOptions::new(dir).shards(2).tiny_segments().start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    let operation = Operation::single(1 << 32, "first", Expect::NoStream, b"data");
    wire.append(&operation.request()).receipt();
    let options = server.options().clone();
    assert_eq!(server.stop().code, Some(0));
    options
}

fn in_memory(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mount = format!(" {} tmpfs ", place.display());
    mounts.lines().any(|line| line.contains(&mount))
}

/// Promised: a file system without direct I/O is refused, whatever it says about `O_DIRECT`.
/// Provoked: a data directory on tmpfs.
/// Broken: a start, a weaker mode, another exit code than 12.
#[test]
fn a_data_directory_in_memory_is_refused() {
    let place = Path::new("/dev/shm");
    if !in_memory(place) {
        return skip("a_data_directory_in_memory_is_refused", "/dev/shm is no tmpfs here");
    }
    let dir = tempfile::tempdir_in(place).expect("tmpfs takes a directory");
    let ended = ServerOptions::new(dir.path()).start_refused();
    assert_refused(&ended, 12, &["tmpfs", "ext4 or XFS"]);
}

/// Promised: one process per data directory; the second one is told who holds it.
/// Provoked: a second server on another port, and offline tools, while the first one serves.
/// Broken: two servers, another exit code than 10, a text without the holder's number.
#[test]
fn a_data_directory_in_use_is_refused_by_its_holders_number() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let holder = format!("process {}", server.process());
    let ended = ServerOptions::new(scratch.path()).start_refused();
    assert_refused(&ended, 10, &[&holder]);
    let verified = run(&["verify", &scratch.path().display().to_string()]);
    assert_eq!(verified.code, Some(10), "{verified:?}");
    assert!(verified.errors.contains(&holder), "{verified:?}");
    // A kill lets go of it at once.
    let server = server.kill().start();
    Wire::connect(server.address()).expect("the server takes clients").ping().expect("it lives");
}

/// Promised: a directory of another shard count or cluster, or whose identity is damaged or lost,
/// is not touched.
/// Provoked: each of these on a copy of a log with one event.
/// Broken: a start, another exit code than 11, a text without the remedy.
#[test]
fn a_directory_with_another_identity_is_refused() {
    let scratch = scratch();
    let whole = scratch.path().join("whole");
    let options = stopped(&whole);
    assert_refused(&options.shards(3).start_refused(), 11, &["2 shards", "shards.count = 2"]);
    let other = scratch.path().join("other");
    stopped(&other);
    let identity = |dir: &Path| fs::read(dir.join("identity.json")).expect("it has an identity");
    let foreign = identity(&other);
    let own = identity(&whole);
    let newer = String::from_utf8_lossy(&own).replace("\"format\": 1", "\"format\": 9");
    assert_ne!(newer.as_bytes(), own, "the format's number is in the file");
    let garbage = b"\0\xff\xfe".to_vec();
    let half = own[..own.len() / 2].to_vec();
    let cases = [
        ("another cluster", Some(foreign), "cluster"),
        ("a newer format", Some(newer.into_bytes()), "format 9"),
        ("garbage", Some(garbage), "identity.json"),
        ("half of it", Some(half), "identity.json"),
        ("nothing in it", Some(Vec::new()), "identity.json"),
        ("lost", None, "identity.json"),
    ];
    for (what, bytes, word) in cases {
        let dir = scratch.path().join("data");
        copy(&whole, &dir);
        match &bytes {
            Some(bytes) => fs::write(dir.join("identity.json"), bytes).expect("it can be written"),
            None => fs::remove_file(dir.join("identity.json")).expect("it can be removed"),
        }
        let ended = ServerOptions::new(&dir).shards(2).tiny_segments().start_refused();
        println!("{what}: {}", ended.words());
        assert_refused(&ended, 11, &[word]);
        // Nothing was made instead: with the right identity everything is there.
        fs::write(dir.join("identity.json"), &own).expect("it can be written");
        let server = ServerOptions::new(&dir).shards(2).tiny_segments().start();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        assert_eq!(wire.stream("first").len(), 1, "{what}");
        drop(server);
        fs::remove_dir_all(&dir).expect("the copy can be removed");
    }
}

/// Promised: a data directory that is none is a clear refusal.
/// Provoked: a file where the directory should be.
/// Broken: another exit code than 19.
#[test]
fn a_data_directory_that_cannot_be_made_is_refused() {
    let scratch = scratch();
    let file = scratch.path().join("file");
    fs::write(&file, "").expect("it can be written");
    let ended = ServerOptions::new(&file).start_refused();
    assert_refused(&ended, 19, &["data directory"]);
}

/// Promised: shards share their port among themselves, but not with another program: one that
/// listens there already is found, also when it shares its port.
/// Provoked: a listener without and with `SO_REUSEPORT`, and another server.
/// Broken: a start, another exit code than 15.
#[test]
fn a_port_in_use_is_refused() {
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path());
    let plain = TcpListener::bind(options.address).expect("the port is free");
    let words = ["listen.client", "--listen-client"];
    assert_refused(&options.start_refused(), 15, &words);
    drop(plain);
    let sharing = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseport(&sharing, true).expect("it can share its port");
    bind(&sharing, &options.address).expect("the port is free");
    listen(&sharing, 1).expect("it can listen");
    assert_refused(&options.start_refused(), 15, &words);
    drop(sharing);
    let _server = options.start();
    let mut second = ServerOptions::new(scratch.path().join("second"));
    second.address = options.address;
    assert_refused(&second.start_refused(), 15, &words);
}

/// Sockets of the loopback port in the state `TIME_WAIT`.
fn in_time_wait(address: SocketAddr) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let local = format!("0100007F:{:04X}", address.port());
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|line| line.get(1) == Some(&&*local) && line.get(3) == Some(&"06")).count()
}

/// Promised: an immediate restart on the same port works although connections of the stopped
/// server are still in `TIME_WAIT` there.
/// Provoked: a server stopped while clients are connected, so that its side closes first.
/// Broken: "port in use" with nobody listening.
#[test]
fn a_restart_passes_over_connections_in_time_wait() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let address = server.address();
    let mut clients: Vec<Wire> =
        (0..20).map(|_| Wire::connect(address).expect("the server takes clients")).collect();
    for client in &mut clients {
        client.ping().expect("the server answers");
    }
    let options = server.options().clone();
    assert_eq!(server.stop().code, Some(0));
    for client in &mut clients {
        // The kernel may close a server's sockets a moment after its end.
        client.await_close().expect("the server's side is closed first");
    }
    drop(clients);
    until(Duration::from_secs(5), "a connection in TIME_WAIT", || {
        (in_time_wait(address) > 0).then_some(())
    });
    let server = options.start();
    Wire::connect(server.address()).expect("the server takes clients").ping().expect("it lives");
}

/// Promised: too little locked memory is found before anything is started, with the value needed.
/// Provoked: a limit of 64 KiB.
/// Broken: a start, a panic, another exit code than 14.
#[test]
fn too_little_locked_memory_is_refused() {
    let scratch = scratch();
    let ended = ServerOptions::new(scratch.path()).shards(2).ulimit("-l 64").start_refused();
    assert_refused(&ended, 14, &["65536 bytes", "ulimit -l", "LimitMEMLOCK"]);
    assert!(!scratch.path().join("identity.json").exists(), "nothing was begun");
}

/// Promised: a kernel that forbids io_uring is told apart from all other trouble.
/// Provoked: a seccomp filter that answers `io_uring_setup` with EPERM, as container run-times
/// have it; it holds for the thread that starts the server, and the server inherits it.
/// Broken: a panic, another exit code than 13, a text without the cause.
#[test]
fn forbidden_io_uring_is_refused() {
    const IO_URING_SETUP: i64 = 425;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return skip("forbidden_io_uring_is_refused", "no filter for this processor");
    };
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path());
    let refused = std::thread::spawn(move || {
        let rules = std::iter::once((IO_URING_SETUP, Vec::new())).collect();
        let permitted = rustix::io::Errno::PERM.raw_os_error().unsigned_abs();
        let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(permitted));
        let filter = SeccompFilter::new(rules, others, these, arch);
        let program: BpfProgram =
            filter.and_then(TryInto::try_into).expect("the filter is well-formed");
        match seccompiler::apply_filter(&program) {
            Ok(()) => Some(options.start_refused()),
            Err(error) => {
                skip("forbidden_io_uring_is_refused", &format!("no filter is allowed: {error}"));
                None
            }
        }
    });
    if let Some(ended) = refused.join().expect("the thread does not panic") {
        assert_refused(&ended, 13, &["seccomp", "io_uring_setup"]);
    }
}

/// Promised: impossible settings are one line each, with the setting, the value and what is
/// allowed, and exit code 2.
/// Provoked: shard counts of 0 and 100000, a host name, a segment too small for the largest event,
/// an unknown key in a file, no data directory.
/// Broken: a panic, a start, a restart loop.
#[test]
fn impossible_settings_are_refused_in_one_line_each() {
    let scratch = scratch();
    let file = scratch.path().join("duolog.toml");
    fs::write(&file, "[shards]\ncuont = 2\n").expect("it can be written");
    let (dir, file) = (scratch.path().display().to_string(), file.display().to_string());
    let cases: [(&[&str], &str); 7] = [
        (&["--data-dir", &dir, "--shards-count", "0"], "shards.count"),
        (&["--data-dir", &dir, "--shards-count", "100000"], "shards.count"),
        (&["--data-dir", &dir, "--listen-client", "localhost"], "listen.client"),
        (&["--data-dir", &dir, "--log-segment-size-bytes", "1MiB"], "limits.event_max_bytes"),
        (&["--data-dir", &dir, "--config", &file], "did you mean shards.count?"),
        (&[], "data_dir"),
        (&["--data-dir", "", "--shards-count", "1"], "data_dir"),
    ];
    for (arguments, word) in cases {
        let ran = run(&[&["serve", "--standalone"], arguments].concat());
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.errors.contains(word), "{word:?} is not in {ran:?}");
        assert_eq!(ran.errors.trim().lines().count(), 1, "{arguments:?}: {ran:?}");
    }
}

/// Promised: `doctor` says what a start would meet, with the remedy, and leaves with 1 when this
/// machine cannot run a server.
/// Provoked: a fit machine, a port in use (by a server that runs already, perhaps: only a warning),
/// a data directory in memory.
/// Broken: another exit code, no remedy.
#[test]
fn doctor_finds_what_a_start_would_meet() {
    let scratch = scratch();
    let address = free_port();
    let examine = |dir: &Path| {
        let (dir, address) = (dir.display().to_string(), address.to_string());
        let flags = ["--data-dir", &dir, "--listen-client", &address, "--shards-count", "1"];
        run(&[&["doctor", "--json"], &flags[..]].concat())
    };
    let fit = examine(scratch.path());
    assert_eq!(fit.code, Some(0), "{fit:?}");
    let taken = TcpListener::bind(address).expect("the port is free");
    let warned = examine(scratch.path());
    assert_eq!(warned.code, Some(0), "{warned:?}");
    assert!(warned.output.contains("another program listens"), "{warned:?}");
    drop(taken);
    if in_memory(Path::new("/dev/shm")) {
        let unfit = examine(Path::new("/dev/shm"));
        assert_eq!(unfit.code, Some(1), "{unfit:?}");
        assert!(unfit.output.contains("ext4 or XFS"), "{unfit:?}");
    }
}
