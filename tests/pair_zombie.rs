//! A leader that sleeps past the end of its reign.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_engine::ids::{Generation, LeaseEpoch, NodeId};
use duolog_engine::segment::SegmentHeader;
use duolog_lease::ids::parse_uuid;
use duolog_net::peer::{PeerHello, PeerMessage, PeerReader, PeerReason, Purpose};
use duolog_net::wire::{Copies, ErrorCode, NodeRole, ReadStream};
use duolog_tests::pair::{Pair, PairOptions, Role};
use duolog_tests::process::log_files::shard_dir;
use duolog_tests::process::{Answer, Operation, Wire, quiet};

/// Promised: a leader that wakes after another one has begun to lead acknowledges nothing, serves
/// no linearizable read, demotes itself and follows; nothing is written by two, acknowledged twice
/// or lost.
/// Provoked: SIGSTOP of the leader under load until the follower leads and has acknowledged a few
/// hundred appends; an append and a read wait in the sleeper's sockets; SIGCONT. Twice.
/// Broken: the sleeper answers either of them by more than a refusal; it goes on leading; an append
/// lost or doubled; logs that differ.
#[test]
fn a_leader_that_wakes_too_late_acknowledges_nothing() {
    let _alone = quiet();
    let pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    for round in 0_u128..2 {
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
        let zombie = pair.healed_under_load();
        let epoch = pair.status(zombie).expect("it answers").epoch();
        let address = pair.options[zombie].address;
        let mut appends = Wire::connect(address).expect("the leader takes clients");
        let mut reads = Wire::connect(address).expect("the leader takes clients");
        pair.freeze(zombie, true);
        let late = Operation::single((round + 1) << 120, "late", Expect::Any, b"too late");
        appends.send_append(&late.request()).expect("the socket takes it");
        reads.send_read(&ReadStream::new("shared-0")).expect("the socket takes it");
        let successor = pair.other(zombie);
        let taken = pair.until_leads(successor).epoch();
        assert!(taken > epoch, "a later reign");
        pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 200);
        pair.freeze(zombie, false);
        let answer = appends.receive().expect("it is answered").1;
        let Answer::Refused(refused) = &answer else { panic!("a late ack: {answer:?}") };
        let fitting = [ErrorCode::NotLeader, ErrorCode::Unknown].contains(&refused.code);
        assert!(fitting, "{refused:?}");
        let answer = reads.receive().expect("it is answered").1;
        let Answer::Refused(refused) = &answer else { panic!("a stale read: {answer:?}") };
        assert_eq!(refused.code, ErrorCode::NotLeader);
        pair.until("the sleeper follows", |pair| {
            (pair.status(zombie)?.role() == Role::Follower).then_some(())
        });
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
        assert_eq!(pair.status(successor).map(|status| status.role()), Some(Role::Leader));
    }
    let mut ledger = crowd.finish();
    for round in 0_u128..2 {
        let late = Operation::single((round + 1) << 120, "late", Expect::Any, b"too late");
        ledger.unknown(late);
    }
    pair.reckon(&ledger);
}

/// Promised: a hello of an older reign that comes late, on a connection of its own, costs the
/// leader nothing.
/// Provoked: after a handover, a hello of the first reign is sent to the follower, again and again.
/// Broken: the leader's connection is closed for it.
#[test]
fn a_late_hello_of_an_older_reign_costs_the_leader_nothing() {
    let _alone = quiet();
    let pair = Pair::found(PairOptions::default());
    pair.hand_over(0);
    pair.until_leads(1);
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let status = pair.status(1).expect("it answers");
    assert!(status.epoch() > 1);
    let address = status.0["peer"]["address"].as_str().expect("it has a follower").to_owned();
    let file = shard_dir(&pair.options[0].dir, 0).segment(Generation(1));
    let mut page = [0; 512];
    File::open(file).and_then(|mut file| file.read_exact(&mut page)).expect("a segment");
    let segment = SegmentHeader::decode(&page).expect("a segment's header");
    let end = segment.base;
    let (shard, marks, complete) = (segment.shard, Vec::new(), true);
    let hello = PeerHello {
        epoch: LeaseEpoch(1),
        cluster: segment.cluster,
        from: parse_uuid(&status.node()).map(NodeId).expect("a node id"),
        shard_count: 1,
        segment_size_bytes: segment.size_bytes,
        align_bytes: segment.align_bytes,
        purpose: Purpose::Shard { shard, end, marks, complete },
        client_address: String::new(),
    };
    let mut frame = Vec::new();
    hello.encode(&mut frame);
    let lost = pair.logged(1, "follower_unlinked");
    for _ in 0..5 {
        let mut socket = TcpStream::connect(&address).expect("the follower's port");
        socket.write_all(&frame).expect("it takes a hello");
        let mut reader = PeerReader::of_dialled();
        let refused = loop {
            if let Some(message) = reader.next_message().expect("a message of the pair") {
                let PeerMessage::Refused(refused) = message else { panic!("{message:?}") };
                break refused;
            }
            let count = socket.read(reader.space()).expect("it is answered");
            assert!(count > 0, "an answer before the end");
            reader.filled(count);
        };
        assert_eq!(refused.reason(), Some(PeerReason::Promised), "{refused}");
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 20);
    }
    assert_eq!(pair.logged(1, "follower_unlinked"), lost, "{}", pair.story());
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// A leader whose grant had run out, with its follower and the bucket out of reach, still
/// introduced itself to new clients as the leader, and told those it had nothing: they asked it
/// again and again for half a minute, while the other node led. The chaos suite found it
/// (`leader_isolated`).
/// Promised: L8, a node whose grant has run out is no leader to its clients, and says so unasked.
/// Provoked: the bucket away, then kill -9 of the follower.
/// Broken: a hello answered as a leader's; a connected client that is not told.
#[test]
fn a_leader_without_a_grant_does_not_call_itself_one() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let address = pair.options[0].address;
    let hello = || Wire::connect_within(address, None, Duration::from_secs(2));
    let (mut client, accepted) = hello().expect("the leader takes clients");
    assert_eq!(accepted.role, NodeRole::Leader);
    pair.s3.faults().outage(true);
    pair.kill(1);
    pair.until("it says that it leads no more", |_| {
        let (_, accepted) = hello().ok()?;
        (!accepted.role.serves()).then_some(())
    });
    pair.until("a client that is there already is told", |_| {
        let heard = client.standings().expect("the node answers");
        heard.ends_with(&[NodeRole::Other]).then_some(())
    });
    pair.s3.faults().outage(false);
    pair.start(1);
    let leader = pair.healed();
    pair.until_serves();
    assert_eq!(pair.status(leader).map(|status| status.role()), Some(Role::Leader));
}
