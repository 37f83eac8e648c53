//! What the service manager is told.

use std::net::TcpListener;
use std::time::Duration;

use duolog_s3dev::{DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY};
use duolog_tests::pair::{Pair, PairOptions};
use duolog_tests::process::{
    HeldThread, Manager, Server, ServerOptions, Wire, free_port, pause, scratch, skip, until,
};

/// How long something that is expected may take.
const PATIENCE: Duration = Duration::from_secs(40);
/// Interval of the watchdog in these tests, and its value as the manager gives it.
const INTERVAL_USEC: &str = "2000000";
/// As many signs of life would come in this time if they came.
const SILENCE: Duration = Duration::from_secs(4);

fn managed(options: ServerOptions, manager: &Manager) -> ServerOptions {
    options.env("NOTIFY_SOCKET", &manager.address).env("WATCHDOG_USEC", INTERVAL_USEC)
}

/// Promised: the manager hears of the start, once that the node serves, again and again that it is
/// alive, and of the stop; after that nothing that keeps it alive.
/// Provoked: a standalone server with a manager at a path and at an abstract name, stopped by a
/// signal after some signs of life.
/// Broken: no or two READY; a READY before clients are served; a sign of life after the stop began;
/// a status that does not say what the node is.
#[test]
fn a_manager_hears_how_a_node_begins_lives_and_ends() {
    let scratch = scratch();
    let path = scratch.path().join("notify");
    for (name, manager) in [("path", Manager::at_path(&path)), ("abstract", Manager::at_name())] {
        let options = ServerOptions::new(scratch.path().join(name)).shards(2);
        let server = managed(options, &manager).launch();
        manager.await_word("READY=1", 1);
        let mut wire = Wire::connect(server.address()).expect("a node that is ready takes clients");
        wire.ping().expect("and answers them");
        manager.await_word("WATCHDOG=1", 3);
        manager.await_word("STATUS=standalone, serving", 1);
        assert_eq!(server.stop().code, Some(0));
        let told = manager.told();
        assert_eq!(manager.count("READY=1"), 1, "{told:?}");
        assert_eq!(manager.count("STOPPING=1"), 1, "{told:?}");
        assert!(told[0].starts_with("EXTEND_TIMEOUT_USEC="), "{told:?}");
        let stopping = manager.position("STOPPING=1").expect("it was counted");
        assert!(told[stopping..].iter().all(|word| word != "WATCHDOG=1"), "{told:?}");
        assert!(told.contains(&"STATUS=stopping: finishing requests".to_owned()), "{told:?}");
    }
}

/// Promised: a shard that stands still ends the signs of life although everything else runs, and
/// the manager is told which one; they come again when it runs.
/// Provoked: the thread of one of two shards held by a debugger's means.
/// Broken: signs of life meanwhile; none afterwards; a status that does not name the shard.
#[test]
fn a_shard_that_stands_still_ends_the_signs_of_life() {
    let name = "a_shard_that_stands_still_ends_the_signs_of_life";
    let scratch = scratch();
    let manager = Manager::at_name();
    let server = managed(ServerOptions::new(scratch.path()).shards(2), &manager).start();
    manager.await_word("WATCHDOG=1", 2);
    let held = match HeldThread::hold(server.process(), "shard-1") {
        Ok(held) => held,
        Err(why) => return skip(name, &why),
    };
    manager.await_word("STATUS=standalone, serving; shard 1 stands still", 1);
    let before = manager.count("WATCHDOG=1");
    pause(SILENCE);
    assert_eq!(manager.count("WATCHDOG=1"), before, "{:?}", manager.told());
    drop(held);
    manager.await_word("WATCHDOG=1", before + 2);
    assert_eq!(server.stop().code, Some(0));
}

/// Promised: without `WATCHDOG_USEC`, or with one that is meant for another process, there are no
/// signs of life; READY comes all the same.
/// Provoked: both.
/// Broken: a WATCHDOG=1.
#[test]
fn signs_of_life_are_given_only_to_who_wants_them() {
    let scratch = scratch();
    for (name, pid) in [("none", None), ("another", Some("1"))] {
        let manager = Manager::at_name();
        let options = ServerOptions::new(scratch.path().join(name));
        let options = options.env("NOTIFY_SOCKET", &manager.address);
        let options = match pid {
            Some(pid) => options.env("WATCHDOG_USEC", "400000").env("WATCHDOG_PID", pid),
            None => options,
        };
        let server = options.start();
        manager.await_word("READY=1", 1);
        pause(Duration::from_secs(1));
        assert_eq!(manager.count("WATCHDOG=1"), 0, "{:?}", manager.told());
        assert_eq!(server.stop().code, Some(0));
    }
}

/// Promised: a node that cannot start tells the manager why, and never that it is ready.
/// Provoked: a port that is taken.
/// Broken: a READY, no reason.
#[test]
fn a_start_that_fails_tells_the_manager_why() {
    let scratch = scratch();
    let manager = Manager::at_name();
    let options = managed(ServerOptions::new(scratch.path()), &manager);
    let _taken = TcpListener::bind(options.address).expect("the port is free");
    assert_eq!(options.start_refused().code, Some(15));
    assert_eq!(manager.count("READY=1"), 0, "{:?}", manager.told());
    let told = manager.told();
    let last = told.iter().rfind(|word| word.starts_with("STATUS=")).expect("a status");
    assert!(last.contains("listen.client"), "{told:?}");
}

/// Promised: a node of a pair whose bucket is away takes clients that look for it but is not ready;
/// its start is given more time meanwhile, and it is ready when it leads.
/// Provoked: a blank node whose store begins to answer only after a while.
/// Broken: a READY without a leader; a start that would be given up; a READY without a status that
/// says what the node is.
#[test]
fn a_node_that_waits_for_its_bucket_is_given_time_and_is_ready_when_it_leads() {
    let scratch = scratch();
    let manager = Manager::at_name();
    let store = free_port();
    let options = ServerOptions::of_pair(scratch.path())
        .env("DUOLOG_S3_SECRET_ACCESS_KEY", DEFAULT_SECRET_ACCESS_KEY)
        .flag("s3-allow-http", "true")
        .flag("s3-bucket", "duolog")
        .flag("s3-endpoint", &format!("http://{store}"))
        .flag("s3-access-key-id", DEFAULT_ACCESS_KEY_ID)
        .flag("listen-peer", &free_port().to_string());
    let server: Server = managed(options, &manager).launch();
    manager.await_word("STATUS=looking for the cluster in the bucket", 1);
    manager.await_word("EXTEND_TIMEOUT_USEC=", 3);
    assert_eq!(manager.count("READY=1"), 0, "{:?}", manager.told());
    let settings = duolog_s3dev::Settings { listen: store, ..Default::default() };
    let _s3 = duolog_s3dev::Server::start(&settings).expect("the embedded S3 starts");
    manager.await_word("READY=1", 1);
    assert_eq!(status_after_ready(&manager), "STATUS=leader of epoch 1");
    assert_eq!(server.stop().code, Some(0));
    assert!(manager.position("STATUS=stopping: handing over").is_some(), "{:?}", manager.told());
}

/// The first status behind READY; signs of life may come between.
fn status_after_ready(manager: &Manager) -> String {
    let ready = manager.position("READY=1").expect("it has come");
    until(PATIENCE, "the node says what it is", || {
        let told = manager.told();
        told[ready..].iter().find(|word| word.starts_with("STATUS=")).cloned()
    })
}

/// Promised: the second node is ready when it follows, and each status follows the lead.
/// Provoked: a pair with a manager each; the leader is stopped.
/// Broken: a READY while the node still copies; a status that stays behind.
#[test]
fn a_second_node_is_ready_when_it_follows_and_tells_when_it_leads() {
    let managers = [Manager::at_name(), Manager::at_name()];
    let mut pair = Pair::unfounded(PairOptions::default());
    for (options, manager) in pair.options.iter_mut().zip(&managers) {
        *options = managed(options.clone(), manager);
    }
    let mut pair = pair.founded();
    managers[1].await_word("READY=1", 1);
    let status = status_after_ready(&managers[1]);
    assert!(status.starts_with("STATUS=follower at epoch "), "{status}");
    pair.stop(0);
    until(PATIENCE, "the second node tells that it leads", || {
        managers[1].position("STATUS=leader of epoch ")
    });
    assert_eq!(managers[1].count("READY=1"), 1, "{:?}", managers[1].told());
}
