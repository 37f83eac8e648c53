use proptest::prelude::*;

use super::*;
use crate::ids::RunId;

const CLUSTER: ClusterId = ClusterId(0xc1);
const GOLDEN: &str = include_str!("golden-1.json");

fn document() -> Document {
    let run = RunId::new(0xfeed_0000_0000_0000_0000_0001_0000_0000);
    Document {
        cluster: CLUSTER,
        leader: NodeId(0xa),
        epoch: LeaseEpoch(7),
        in_sync: InSync::pair(NodeId(0xa), NodeId(0xb)),
        acquired: WallMs(1_800_000_000_000),
        expires: WallMs(1_800_000_030_000),
        token: Token::new(run, 3),
        recent: RecentTokens::new(&[Token::new(run, 2), Token(1)]),
        unknown: BTreeMap::from([("zone".into(), "{\"a\": [1.50, 2e400]}".into())]),
    }
}

fn text() -> String {
    String::from_utf8(document().encode()).expect("JSON is UTF-8")
}

fn decode(text: &str) -> Result<Document, DocumentError> {
    Document::decode(text.as_bytes(), CLUSTER)
}

/// The bytes of format 1 never change: an older program of the same format must read them.
#[test]
fn format_1_is_the_golden_file() {
    assert_eq!(text(), GOLDEN);
    assert_eq!(decode(GOLDEN), Ok(document()));
}

/// Whatever cannot be understood is an error of its own, never "no lease".
#[test]
fn an_unusable_lease_says_what_is_wrong_with_it() {
    let good = text();
    let swap = |from: &str, to: &str| {
        assert!(good.contains(from), "{from} is in the document");
        good.replace(from, to)
    };
    let cases = [
        (String::new(), "EOF"),
        ("{}".into(), "no field format"),
        ("[]".into(), "a JSON object"),
        ("null".into(), "a JSON object"),
        ("\u{feff}".to_owned() + &good, "expected value"),
        (good.trim_end().trim_end_matches('}').into(), "EOF"),
        (good.clone() + "{}", "trailing"),
        (swap("\"lease_epoch\": 7", "\"lease_epoch\": 0"), "lease_epoch is 0"),
        (swap("\"lease_epoch\": 7", "\"lease_epoch\": 7.0"), "lease_epoch"),
        (swap("\"lease_epoch\": 7", "\"lease_epoch\": -7"), "lease_epoch"),
        (swap("\"lease_epoch\": 7", "\"lease_epoch\": 7, \"lease_epoch\": 8"), "twice"),
        (swap("\"format\": 1", "\"format\": 0"), "never existed"),
        (swap("1800000030000", "\"2027-01-15T08:00:30Z\""), "expires_unix_ms"),
        (swap("1800000030000", "1800000000000"), "expires_unix_ms"),
        (swap("0000000b", "0000000a"), "in_sync"),
        (swap("\"in_sync\": [", "\"in_sync\": [\"x\", "), "in_sync"),
        (swap("00000000000a\",\n", "00000000000c\",\n"), "leader is not in in_sync"),
        (swap("feed", "fee"), "token"),
    ];
    for (text, part) in cases {
        match decode(&text) {
            Err(DocumentError::Unreadable { why }) => assert!(why.contains(part), "{why}: {part}"),
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

#[test]
fn a_later_format_is_told_from_damage_even_when_its_fields_are_others() {
    let found = DocumentError::Newer { found: 2 };
    assert_eq!(decode("{\"format\": 2}"), Err(found.clone()));
    assert_eq!(decode(&GOLDEN.replace("\"format\": 1", "\"format\": 2")), Err(found));
}

#[test]
fn the_lease_of_another_cluster_is_refused() {
    let other = ClusterId(0xc2);
    let error = Document::decode(GOLDEN.as_bytes(), other).expect_err("foreign");
    assert_eq!(error, DocumentError::Foreign { found: CLUSTER, expected: other });
}

#[test]
fn junk_of_a_megabyte_is_refused_by_its_size() {
    let junk = vec![b' '; 1 << 20];
    let error = Document::decode(&junk, CLUSTER).expect_err("too long");
    assert_eq!(error, DocumentError::TooLong { size_bytes: 1 << 20 });
}

#[test]
fn only_the_last_few_tokens_are_kept() {
    let mut recent = RecentTokens::default();
    for number in 1..=6 {
        recent = recent.after(Token(number));
    }
    assert_eq!(recent.as_slice(), [Token(6), Token(5), Token(4), Token(3)]);
    assert_eq!(RecentTokens::new(recent.as_slice()), recent);
}

fn documents() -> impl Strategy<Value = Document> {
    let ids = (any::<u128>(), any::<u128>(), any::<u128>(), any::<bool>());
    let numbers = (1..u64::MAX, 0..u64::MAX / 2, 1..u64::MAX / 2);
    let tokens = (any::<u128>(), proptest::collection::vec(any::<u128>(), 0..6));
    let unknown = proptest::collection::btree_map("x.{0,8}", any::<u64>(), 0..4);
    (ids, numbers, tokens, unknown).prop_map(|(ids, numbers, tokens, unknown)| {
        let (leader, other) = (NodeId(ids.1), NodeId(ids.2));
        let recent: Vec<Token> = tokens.1.into_iter().map(Token).collect();
        Document {
            cluster: ClusterId(ids.0),
            leader,
            epoch: LeaseEpoch(numbers.0),
            in_sync: if ids.3 { InSync::alone(leader) } else { InSync::pair(other, leader) },
            acquired: WallMs(numbers.1),
            expires: WallMs(numbers.1 + numbers.2),
            token: Token(tokens.0),
            recent: RecentTokens::new(&recent),
            unknown: unknown.into_iter().map(|(name, value)| (name, value.to_string())).collect(),
        }
    })
}

proptest! {
    #[test]
    fn a_document_reads_back_as_it_was_written(document in documents()) {
        let bytes = document.encode();
        prop_assert_eq!(Document::decode(&bytes, document.cluster), Ok(document.clone()));
        prop_assert_eq!(document.encode(), bytes);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        at in 0..GOLDEN.len(),
    ) {
        let mut damaged = GOLDEN.as_bytes().to_vec();
        for (offset, byte) in bytes.iter().take(4).enumerate() {
            let index = (at + offset * 17) % damaged.len();
            damaged[index] = *byte;
        }
        // Whatever it says, it says it without a panic, and only of the bytes it was given.
        let _ = Document::decode(&bytes, CLUSTER);
        if let Ok(document) = Document::decode(&damaged, CLUSTER) {
            prop_assert_eq!(Document::decode(&document.encode(), CLUSTER), Ok(document));
        }
    }
}
