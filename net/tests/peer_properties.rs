//! Promises of the pair's codec on generated input: every message round trips, no bytes make a
//! decoder panic, and version 1 stays as it is, byte for byte.

use std::fmt::Write as _;

use duolog_engine::block::BLOCK_HEADER_BYTES;
use duolog_engine::ids::{ClusterId, Hlc, LeaseEpoch, Lsn, NodeId, ShardId, WallMs};
use duolog_engine::replica::chain::Seq;
use duolog_engine::replica::promotion::StoredChain;
use duolog_engine::replica::{BlockEnd, EpochEnd};
use duolog_engine::segment::LogEnd;
use duolog_lease::ids::MonoMs;
use duolog_net::peer::{
    PeerAcked, PeerChain, PeerCommit, PeerConfirm, PeerConfirmed, PeerHeartbeat,
    PeerHeartbeatAcked, PeerHello, PeerKind, PeerMessage, PeerReason, PeerRefused, PeerResign,
    PeerSettled, PeerWelcome, Purpose, block_frame_header, decode_peer, encode_block, fuzz_peer,
};
use duolog_net::wire::Decoded;
use proptest::prelude::*;

const GOLDEN: &str = include_str!("golden/peer_v1.txt");

fn encoded(message: &PeerMessage<'_>) -> Vec<u8> {
    let mut out = vec![0xee; 3];
    message.encode(&mut out);
    out.split_off(3)
}

fn assert_round_trip(message: &PeerMessage<'_>) {
    let bytes = encoded(message);
    match decode_peer(&bytes) {
        Ok(Decoded::Complete { value, used }) => {
            assert_eq!((&value, used), (message, bytes.len()));
            assert_eq!((value.kind(), value.epoch()), (message.kind(), message.epoch()));
        }
        other => panic!("{other:?}"),
    }
    for end in [0, 1, 23, 24, bytes.len() - 1] {
        assert!(matches!(
            decode_peer(&bytes[..end.min(bytes.len() - 1)]),
            Ok(Decoded::NeedMore(_))
        ));
    }
}

fn end() -> impl Strategy<Value = LogEnd> {
    any::<(u64, [u8; 32], u64, u64)>().prop_map(|(lsn, hash, hlc, epoch)| LogEnd {
        lsn: Lsn(lsn),
        hash,
        hlc: Hlc(hlc),
        epoch: LeaseEpoch(epoch),
    })
}

fn marks() -> impl Strategy<Value = Vec<EpochEnd>> {
    let mark = any::<(u64, u64, [u8; 32])>().prop_map(|(epoch, lsn, hash)| EpochEnd {
        epoch: LeaseEpoch(epoch),
        lsn: Lsn(lsn),
        hash,
    });
    prop::collection::vec(mark, 0..=64)
}

fn commits() -> impl Strategy<Value = Vec<Lsn>> {
    prop::collection::vec(any::<u64>().prop_map(Lsn), 0..=512)
}

proptest! {
    #[test]
    fn greetings_round_trip(
        ids: (u64, u128, u128), layout: (u32, u32, u32), shard: Option<u32>, fetch: bool,
        end in end(), marks in marks(), client_address in "\\PC{0,60}", committed: u64,
    ) {
        let (epoch, cluster, from) = (LeaseEpoch(ids.0), ClusterId(ids.1), NodeId(ids.2));
        let purpose = match shard {
            Some(shard) if fetch => {
                Purpose::Fetch { shard: ShardId(shard), end, last: Lsn(committed) }
            }
            Some(shard) => {
                let complete = shard % 2 == 0;
                Purpose::Shard { shard: ShardId(shard), end, marks, complete }
            }
            None => Purpose::Heartbeat,
        };
        let (shard_count, segment_size_bytes, align_bytes) = layout;
        assert_round_trip(&PeerMessage::Hello(PeerHello {
            epoch, cluster, from, shard_count, segment_size_bytes, align_bytes, purpose,
            client_address,
        }));
        let promised = LeaseEpoch(ids.0 ^ 1);
        let committed = Lsn(committed);
        let welcome = PeerWelcome { epoch, cluster, from, promised, end, committed };
        assert_round_trip(&PeerMessage::Welcome(welcome));
    }

    #[test]
    fn refusals_round_trip(
        ids: (u64, u128, u64), number: u16, numbers: (u64, u64), text in "\\PC{0,200}",
    ) {
        let (epoch, from, promised) = (LeaseEpoch(ids.0), NodeId(ids.1), LeaseEpoch(ids.2));
        let (a, b) = numbers;
        let refused = PeerRefused { epoch, from, reason_number: number, promised, a, b, text };
        assert_round_trip(&PeerMessage::Refused(refused));
    }

    #[test]
    fn heartbeats_and_resignations_round_trip(
        ids: (u64, u128, u128), clocks: (u64, u64), commits in commits(),
    ) {
        let (epoch, cluster, from) = (LeaseEpoch(ids.0), ClusterId(ids.1), NodeId(ids.2));
        let (sent, wall) = (MonoMs(clocks.0), WallMs(clocks.1));
        let acked = PeerHeartbeatAcked { epoch, from, sent, wall };
        assert_round_trip(&PeerMessage::HeartbeatAcked(acked));
        let resign = PeerResign { epoch, cluster, from, commits: commits.clone() };
        assert_round_trip(&PeerMessage::Resign(resign));
        let heartbeat = PeerHeartbeat { epoch, cluster, from, sent, wall, commits };
        assert_round_trip(&PeerMessage::Heartbeat(heartbeat));
    }

    #[test]
    fn blocks_and_marks_round_trip(
        numbers: (u64, u64, u64),
        block in prop::collection::vec(any::<u8>(), BLOCK_HEADER_BYTES..3000),
    ) {
        let (epoch, lsn, committed) = (LeaseEpoch(numbers.0), Lsn(numbers.1), Lsn(numbers.2));
        assert_round_trip(&PeerMessage::Block { epoch, block: &block });
        assert_round_trip(&PeerMessage::Commit(PeerCommit { epoch, lsn }));
        let end = BlockEnd { lsn, hash: [epoch.0 as u8; 32] };
        let stored = StoredChain { epoch, next: Seq(lsn.0 as u32), end };
        assert_round_trip(&PeerMessage::Chain(PeerChain(stored)));
        let settled = Hlc(lsn.0 / 2);
        assert_round_trip(&PeerMessage::Settled(PeerSettled { epoch, lsn, settled }));
        assert_round_trip(&PeerMessage::Confirm(PeerConfirm { epoch, number: lsn.0 }));
        assert_round_trip(&PeerMessage::Confirmed(PeerConfirmed { epoch, number: lsn.0 }));
        let acked = PeerAcked { epoch, durable: lsn, committed };
        assert_round_trip(&PeerMessage::Acked(acked));
        let mut copied = Vec::new();
        encode_block(&mut copied, epoch, &block);
        let header = block_frame_header(epoch, block.len());
        prop_assert_eq!(copied, [&header[..], &block].concat());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz_peer(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic(
        index in 0..=PeerKind::ALL.len(),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
    ) {
        let mut bytes = golden_frames().swap_remove(index);
        for (index, mask) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= mask;
        }
        fuzz_peer(&bytes);
        fuzz_peer(&bytes[24..]);
    }
}

/// One message of each kind, in the order of the kinds' numbers, and a hello that fetches.
fn golden_frames() -> Vec<Vec<u8>> {
    let (cluster, from, epoch) = (ClusterId(0x1111), NodeId(0x2222), LeaseEpoch(7));
    let end = LogEnd { lsn: Lsn(40), hash: [0xaa; 32], hlc: Hlc(0x5555), epoch: LeaseEpoch(6) };
    let mark = EpochEnd { epoch: LeaseEpoch(5), lsn: Lsn(30), hash: [0xbb; 32] };
    let hello = PeerHello {
        epoch,
        cluster,
        from,
        shard_count: 4,
        segment_size_bytes: 64 << 20,
        align_bytes: 4096,
        purpose: Purpose::Shard {
            shard: ShardId(3),
            end,
            marks: vec![mark, EpochEnd { epoch: LeaseEpoch(6), lsn: Lsn(40), hash: [0xaa; 32] }],
            complete: true,
        },
        client_address: "10.0.0.1:7400".to_owned(),
    };
    let purpose = Purpose::Fetch { shard: ShardId(3), end, last: Lsn(41) };
    let fetch = PeerHello { purpose, ..hello.clone() };
    let committed = Lsn(38);
    let welcome = PeerWelcome { epoch, cluster, from, promised: epoch, end, committed };
    let text = "this node has promised epoch 9".to_owned();
    let refused = PeerRefused {
        promised: LeaseEpoch(9),
        a: 1,
        b: 2,
        ..PeerRefused::new(epoch, from, PeerReason::Promised, text)
    };
    let block: Vec<u8> = (0..BLOCK_HEADER_BYTES as u8).collect();
    let chain_end = BlockEnd { lsn: Lsn(33), hash: [0xcc; 32] };
    let stored = StoredChain { epoch, next: Seq(5), end: chain_end };
    let (sent, wall, commits) = (MonoMs(1000), WallMs(2000), vec![Lsn(41), Lsn(0)]);
    let messages = [
        PeerMessage::Hello(hello),
        PeerMessage::Welcome(welcome),
        PeerMessage::Refused(refused),
        PeerMessage::Block { epoch, block: &block },
        PeerMessage::Commit(PeerCommit { epoch, lsn: Lsn(41) }),
        PeerMessage::Acked(PeerAcked { epoch, durable: Lsn(42), committed: Lsn(41) }),
        PeerMessage::Heartbeat(PeerHeartbeat {
            epoch,
            cluster,
            from,
            sent,
            wall,
            commits: commits.clone(),
        }),
        PeerMessage::HeartbeatAcked(PeerHeartbeatAcked { epoch, from, sent, wall }),
        PeerMessage::Resign(PeerResign { epoch, cluster, from, commits }),
        PeerMessage::Confirm(PeerConfirm { epoch, number: 7 }),
        PeerMessage::Confirmed(PeerConfirmed { epoch, number: 7 }),
        PeerMessage::Chain(PeerChain(stored)),
        PeerMessage::Settled(PeerSettled { epoch, lsn: Lsn(41), settled: Hlc(0x5555) }),
        PeerMessage::Hello(fetch),
    ];
    messages.iter().map(encoded).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes every write");
        text
    })
}

/// What was sent once must be understood for ever: during an upgrade the two nodes run two builds.
/// A change of these bytes is a new version, with a file of its own.
#[test]
fn version_1_is_sent_as_ever_and_understood() {
    let frames = golden_frames();
    let lines = PeerKind::ALL.iter().chain([&PeerKind::Hello]).zip(&frames);
    let text: String = lines.map(|(kind, frame)| format!("{kind:?} {}\n", hex(frame))).collect();
    assert_eq!(text, GOLDEN, "\n{text}");
    for frame in &frames {
        let Ok(Decoded::Complete { value, .. }) = decode_peer(frame) else { panic!() };
        assert_eq!(encoded(&value), *frame);
    }
}
