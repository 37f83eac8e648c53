//! Appends: expectations, races, several streams at once.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{IdempotencyKey, Revision};
use duolog_net::wire::ErrorCode;
use duolog_tests::process::{
    Answer, Ledger, Operation, Server, ServerOptions, StreamPart, Wire, one_event, scratch,
};

fn connect(server: &Server) -> Wire {
    Wire::connect(server.address()).expect("the server takes clients")
}

/// Promised: each expectation holds or is refused as documented, with the revision that the stream
/// has; check-only streams count too; one conflict refuses the whole append.
/// Provoked: every expectation against a stream that is missing, has one event, has three; as the
/// only stream, and as the second one of an append.
/// Broken: an append against its expectation; a refusal without reason; wrong numbers; half an
/// append.
#[test]
fn expectations_hold_or_refuse_as_documented() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut wire = connect(&server);
    let expectations = [
        Expect::Any,
        Expect::NoStream,
        Expect::StreamExists,
        Expect::Exact(Revision(0)),
        Expect::Exact(Revision(1)),
        Expect::Exact(Revision(2)),
        Expect::Exact(Revision(u64::MAX - 1)),
        Expect::Exact(Revision(u64::MAX)),
    ];
    let mut round = 0;
    for has in [0_u64, 1, 3] {
        for expect in expectations {
            for second in [false, true] {
                round += 1;
                let (name, other) = (format!("{{r}}{round}"), format!("{{r}}other{round}"));
                for _ in 0..has {
                    wire.append(&one_event(&name, "t", b"", b"x")).receipt();
                }
                let mut append = AppendBuilder::new();
                if second {
                    append.stream(&other, Expect::NoStream).expect("the name fits");
                    append.event(1, "t", b"", b"x").expect("the event fits");
                }
                append.stream(&name, expect).expect("the name fits");
                if !second {
                    append.event(1, "t", b"", b"x").expect("the event fits");
                }
                let (holds, own) = (expect.holds(Revision(has)), u64::from(!second));
                match wire.append(&append) {
                    Answer::Appended(_) => assert!(holds, "{expect:?} with {has} events"),
                    Answer::Refused(refused) => {
                        assert!(!holds, "{expect:?} with {has} events: {refused:?}");
                        assert_eq!(refused.code, ErrorCode::Conflict);
                        assert_eq!((refused.b, refused.stream_index), (has, Some(second.into())));
                    }
                    other => panic!("{other:?}"),
                }
                let expected = has + own * u64::from(holds);
                assert_eq!(wire.stream(&name).len() as u64, expected, "{expect:?}, {has}");
                assert_eq!(wire.stream(&other).len(), usize::from(second && holds));
            }
        }
    }
}

/// Promised: of several clients that want to be the first in a stream, one wins, and the others
/// are told the revision that it made.
/// Provoked: four clients, each on its own connection, append to a thousand new streams with "no
/// stream", all in flight at the same time.
/// Broken: no winner, two winners, a loser that is told something else.
#[test]
fn exactly_one_client_is_the_first_in_a_stream() {
    const STREAMS: usize = 1000;
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).start();
    let address = server.address();
    let clients: Vec<_> = (0..4_u128)
        .map(|client| {
            std::thread::spawn(move || {
                let mut wire = Wire::connect(address).expect("the server takes clients");
                let mut winners = Vec::new();
                for first in (0..STREAMS).step_by(100) {
                    let sent: Vec<(u64, usize)> = (first..first + 100)
                        .map(|number| {
                            let key = (client + 1) << 64 | (number as u128) << 8;
                            let name = format!("race-{number}");
                            let data = client.to_le_bytes();
                            let one = Operation::single(key, &name, Expect::NoStream, &data);
                            let sent = wire.send_append(&one.request());
                            (sent.expect("the socket takes it"), number)
                        })
                        .collect();
                    for _ in &sent {
                        let (correlation, answer) = wire.receive().expect("it is answered");
                        let number = sent.iter().find(|(known, _)| *known == correlation);
                        let (_, number) = number.expect("it was asked");
                        match answer {
                            Answer::Appended(_) => winners.push(*number),
                            Answer::Refused(refused) => {
                                let told = (refused.code, refused.a, refused.b);
                                assert_eq!(told, (ErrorCode::Conflict, 0, 1), "{refused:?}");
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
                (client, winners)
            })
        })
        .collect();
    let mut wire = connect(&server);
    let mut won = 0;
    for client in clients {
        let (client, winners) = client.join().expect("the client does not panic");
        won += winners.len();
        for number in winners {
            let events = wire.stream(&format!("race-{number}"));
            assert_eq!(events.len(), 1, "race-{number}");
            assert_eq!(events[0].data, client.to_le_bytes(), "race-{number}");
        }
    }
    assert_eq!(won, STREAMS);
}

/// Promised: appends that expect nothing are all accepted, and each receipt's place holds that
/// very event.
/// Provoked: twenty clients append to one stream at the same time.
/// Broken: fewer events than receipts; a place that holds another's event.
#[test]
fn parallel_appends_all_get_the_place_they_were_told() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).start();
    let address = server.address();
    let clients: Vec<_> = (0..20_u128)
        .map(|client| {
            std::thread::spawn(move || {
                let mut wire = Wire::connect(address).expect("the server takes clients");
                let mut ledger = Ledger::default();
                for number in 0..50_u128 {
                    let key = (client + 1) << 96 | number << 32;
                    let data = key.to_le_bytes();
                    let operation = Operation::single(key, "one stream", Expect::Any, &data);
                    let receipt = wire.append(&operation.request()).receipt();
                    ledger.acked(operation, receipt);
                }
                ledger
            })
        })
        .collect();
    let mut ledger = Ledger::default();
    for client in clients {
        ledger.join(client.join().expect("the client does not panic"));
    }
    let mut wire = connect(&server);
    assert_eq!(wire.stream("one stream").len(), 1000);
    ledger.check(&mut wire, 2);
}

/// Promised: the events of one append stand together in the log, in the order of the request, with
/// one stamp, whatever else is appended at the time; ids are stored as they were given.
/// Provoked: an append to three streams with several events each, and a key.
/// Broken: another order, another stamp, a gap, another id.
#[test]
fn an_append_to_several_streams_is_one_piece_of_the_log() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).start();
    let mut wire = connect(&server);
    let part = |name: &str, count: usize| {
        let events = (0..count).map(|index| vec![index as u8; 10]).collect();
        StreamPart { name: format!("{{order-7}}.{name}"), expect: Expect::NoStream, events }
    };
    let parts = vec![part("lines", 3), part("checked", 0), part("totals", 1), part("audit", 2)];
    let operation = Operation { key: 1 << 40, token: None, parts };
    let receipt = wire.append(&operation.request()).receipt();
    assert_eq!(receipt.spans.len(), 3, "{receipt:?}");
    let shard = receipt.head.shard.0;
    let log = wire.log(shard, 1);
    let found: Vec<(u64, &str, u64, u128)> = log
        .iter()
        .map(|event| {
            let (_, name) = event.stream.split_once('.').expect("the names have a dot");
            (event.lsn.0, name, event.revision.0, event.id.as_u128() - operation.key)
        })
        .collect();
    let expected = [
        (1, "lines", 0, 1),
        (2, "lines", 1, 2),
        (3, "lines", 2, 3),
        (4, "totals", 0, 4),
        (5, "audit", 0, 5),
        (6, "audit", 1, 6),
    ];
    assert_eq!(found, expected);
    assert!(log.iter().all(|event| event.hlc == receipt.head.hlc));
    let mut next = AppendBuilder::new();
    next.key(IdempotencyKey(99));
    next.stream("{order-7}.lines", Expect::Exact(Revision(2))).expect("the name fits");
    next.event(5, "t", b"", b"").expect("the event fits");
    let second = wire.append(&next).receipt();
    assert!(second.head.hlc > receipt.head.hlc, "stamps grow");
}
