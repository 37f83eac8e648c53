//! A leader that sleeps past the end of its reign.

use duolog_engine::append::Expect;
use duolog_net::wire::{Copies, ErrorCode, ReadStream};
use duolog_tests::pair::{Pair, PairOptions, Role};
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
