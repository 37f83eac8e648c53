//! Reading: what is asked for, how pages become a sequence, and slips that must not stay silent.

use duolog_engine::record::{EventParts, encode_event};
use duolog_net::client::{
    Consistency, Error, Hlc, LogTail, Lsn, RecordedEvent, Revision, ShardId, StreamTail, Uuid,
};
use duolog_net::wire::{
    Direction, ErrorCode, ErrorFrame, LogPage, Message, ReadLog, ReadStream, StreamPage,
};

use crate::fake::{Fake, Peer, message};

fn record(stream: &str, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_event(
        &mut out,
        &EventParts {
            lsn: Lsn(number + 1),
            revision: Revision(number),
            hlc: Hlc(5 << 16),
            id: u128::from(number),
            stream: stream.as_bytes(),
            type_length: 1,
            metadata_length: 2,
            body: b"tmmdata",
        },
    );
    out
}

fn tail(next: u64, end: bool) -> StreamTail {
    StreamTail { next: Revision(next), stream_next: Revision(10), committed: Lsn(10), end }
}

async fn answer_stream(peer: &mut Peer, correlation: u64, revisions: &[u64], tail: StreamTail) {
    let mut out = Vec::new();
    let mut page = StreamPage::begin(&mut out, correlation);
    for revision in revisions {
        page.push(&mut out, &record("s", *revision));
    }
    page.finish_stream(&mut out, &tail);
    peer.send(&out).await;
}

async fn answer_log(peer: &mut Peer, correlation: u64, lsns: &[u64], next: u64, end: bool) {
    let mut out = Vec::new();
    let mut page = LogPage::begin(&mut out, correlation);
    for lsn in lsns {
        page.push(&mut out, &record("s", lsn - 1));
    }
    page.finish_log(&mut out, &LogTail { next: Lsn(next), committed: Lsn(10), end });
    peer.send(&out).await;
}

/// Serves one stream page and returns what was asked: revision and number of events.
async fn serve(peer: &mut Peer, revisions: &[u64], tail: StreamTail) -> (u64, u32) {
    let request = peer.request().await;
    let Message::ReadStream(read) = message(&request) else { panic!("a read") };
    let asked = (read.from.0, read.events_max);
    answer_stream(peer, request.correlation, revisions, tail).await;
    asked
}

async fn all(mut read: duolog_net::client::StreamRead) -> Result<Vec<u64>, Error> {
    let mut revisions = Vec::new();
    while let Some(event) = read.next().await? {
        revisions.push(event.revision.0);
    }
    Ok(revisions)
}

#[tokio::test]
async fn a_read_says_what_was_asked_and_gives_whole_events() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let read = client
        .read("s")
        .from(Revision(3))
        .backwards()
        .of_type("t")
        .limit(2)
        .page_bytes(99)
        .any_consistency();
    let (page, ()) = tokio::join!(read.page(), async {
        let request = peer.request().await;
        let expected = ReadStream {
            from: Revision(3),
            events_max: 2,
            bytes_max: 99,
            direction: Direction::Backwards,
            consistency: Consistency::Any,
            stream: "s",
            kind: Some("t"),
        };
        assert_eq!(message(&request), Message::ReadStream(expected));
        answer_stream(&mut peer, request.correlation, &[3], tail(2, false)).await;
    });
    let page = page.unwrap();
    assert_eq!(page.tail, tail(2, false));
    let expected = RecordedEvent {
        stream: "s".into(),
        revision: Revision(3),
        lsn: Lsn(4),
        hlc: Hlc(5 << 16),
        timestamp_ms: 5,
        id: Uuid::from_u128(3),
        kind: "t".into(),
        metadata: b"mm".to_vec(),
        data: b"data".to_vec(),
    };
    assert_eq!(page.events, [expected]);
}

#[tokio::test]
async fn pages_become_one_sequence_without_gap_or_repeat() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let (got, asked) = tokio::join!(all(client.read("s").limit(6)), async {
        [
            serve(&mut peer, &[0, 1, 2], tail(3, false)).await,
            serve(&mut peer, &[3, 4], tail(5, false)).await,
            serve(&mut peer, &[5], tail(6, false)).await,
        ]
    });
    assert_eq!(got, Ok(vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(asked, [(0, 6), (3, 3), (5, 1)]);
}

#[tokio::test]
async fn empty_pages_of_a_filter_are_not_the_end() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let (got, asked) = tokio::join!(all(client.read("s").of_type("t")), async {
        [
            serve(&mut peer, &[], tail(4, false)).await,
            serve(&mut peer, &[6], tail(8, false)).await,
            serve(&mut peer, &[], tail(0, true)).await,
        ]
    });
    assert_eq!(got, Ok(vec![6]));
    assert_eq!(asked, [(0, 0), (4, 0), (8, 0)]);
}

#[tokio::test]
async fn backwards_starts_at_the_end_and_ends_at_the_first_event() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let mut read = client.read("s").backwards();
    let (got, asked) = tokio::join!(
        async {
            let mut revisions = Vec::new();
            while let Some(event) = read.next().await.unwrap() {
                revisions.push(event.revision.0);
            }
            assert_eq!(read.next().await, Ok(None), "nothing can come before the first event");
            revisions
        },
        async {
            [
                serve(&mut peer, &[2, 1], tail(0, false)).await,
                serve(&mut peer, &[0], tail(0, true)).await,
            ]
        }
    );
    assert_eq!(got, [2, 1, 0]);
    assert_eq!(asked, [(u64::MAX, 0), (0, 0)]);
}

#[tokio::test]
async fn a_reader_at_the_end_goes_on_where_it_was() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let mut read = client.read("s").from(Revision(9));
    let reading = async {
        let first = read.next().await.unwrap().unwrap().revision;
        assert_eq!(read.next().await, Ok(None));
        let second = read.next().await.unwrap().unwrap().revision;
        (first, second)
    };
    let (got, asked) = tokio::join!(reading, async {
        let first = serve(&mut peer, &[9], tail(0, true)).await;
        (first, serve(&mut peer, &[10], tail(0, true)).await)
    });
    assert_eq!(got, (Revision(9), Revision(10)));
    assert_eq!(asked, ((9, 0), (10, 0)));
}

#[tokio::test]
async fn a_page_with_a_gap_or_without_progress_is_an_error_not_silence() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let cases: [(&[u64], StreamTail); 5] = [
        (&[0, 2], tail(3, false)),
        (&[1, 0], tail(3, false)),
        (&[], tail(0, false)),
        (&[0, 1], tail(1, false)),
        (&[0, 0], tail(3, true)),
    ];
    for (revisions, tail) in cases {
        let (got, _) = tokio::join!(all(client.read("s")), serve(&mut peer, revisions, tail));
        assert!(matches!(got, Err(Error::Protocol { .. })), "{revisions:?} {tail:?}");
    }
    let other = client.read("other");
    let (got, _) = tokio::join!(other.page(), serve(&mut peer, &[0], tail(1, false)));
    assert!(matches!(got, Err(Error::Protocol { .. })), "a record of another stream");
}

#[tokio::test]
async fn a_read_is_repeated_when_the_server_is_busy() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let (got, ()) = tokio::join!(all(client.read("s")), async {
        let request = peer.request().await;
        let busy = ErrorFrame::new(ErrorCode::Busy).retry_after_ms(1);
        peer.error(request.correlation, busy, "too much").await;
        serve(&mut peer, &[0], tail(0, true)).await;
    });
    assert_eq!(got, Ok(vec![0]));
}

#[tokio::test]
async fn names_that_no_stream_has_are_not_asked_for() {
    let (client, _fake, _peer) = Fake::with_client(|options| options).await;
    let bad = |outcome| matches!(outcome, Err(Error::BadRequest { .. }));
    assert!(bad(client.read("").page().await));
    assert!(bad(client.read("x".repeat(256)).page().await));
    assert!(bad(client.read("s").of_type("x".repeat(256)).page().await));
}

#[tokio::test]
async fn a_log_is_read_from_a_position_and_goes_on_at_the_end() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let mut read = client.read_log(ShardId(3), Lsn(4)).page_bytes(77);
    let reading = async {
        let mut lsns = Vec::new();
        while let Some(event) = read.next().await.unwrap() {
            lsns.push(event.lsn.0);
        }
        lsns.push(read.next().await.unwrap().unwrap().lsn.0);
        lsns
    };
    let (got, ()) = tokio::join!(reading, async {
        let pages: [(u64, &[u64], bool); 3] =
            [(4, &[4, 5], false), (6, &[6], true), (7, &[7], true)];
        for (from, lsns, end) in pages {
            let request = peer.request().await;
            let expected = ReadLog {
                from: Lsn(from),
                shard: ShardId(3),
                events_max: 0,
                bytes_max: 77,
                consistency: Consistency::Linearizable,
            };
            assert_eq!(message(&request), Message::ReadLog(expected));
            answer_log(&mut peer, request.correlation, lsns, lsns[lsns.len() - 1] + 1, end).await;
        }
    });
    assert_eq!(got, [4, 5, 6, 7]);
}

#[tokio::test]
async fn a_log_page_with_a_gap_or_without_progress_is_an_error() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let cases: [(&[u64], u64); 4] = [(&[2, 3], 4), (&[1, 3], 4), (&[], 1), (&[1], 3)];
    for (lsns, next) in cases {
        let read = client.read_log(ShardId(0), Lsn(1));
        let (got, ()) = tokio::join!(read.page(), async {
            let request = peer.request().await;
            answer_log(&mut peer, request.correlation, lsns, next, false).await;
        });
        assert!(matches!(got, Err(Error::Protocol { .. })), "{lsns:?} {next}");
    }
}
