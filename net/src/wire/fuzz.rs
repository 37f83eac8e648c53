//! The entry for fuzz targets: everything that looks at received bytes, on any bytes.

use duolog_engine::append::AppendView;

use super::{Decoded, Message, decode_frame, decode_header};
use crate::limits::FRAME_HEADER_BYTES;

/// Bodies that a fuzz target's frames may have, bytes; small, so that the limit is met.
const BODY_MAX_BYTES: usize = 64 << 10;

/// Decodes `bytes` as a stream of frames, and `bytes` as a body of every kind. Must not panic,
/// whatever the bytes; a whole frame must come out again as it went in.
pub fn fuzz_frame(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Decoded::Complete { value: frame, used }) = decode_frame(rest, BODY_MAX_BYTES) {
        assert!(decode_header(rest, frame.body.len()).is_ok());
        let mut again = Vec::with_capacity(used);
        super::encode_frame(&mut again, frame.kind, frame.correlation, frame.body);
        assert_eq!(again, &rest[..used], "a frame has one form only");
        fuzz_body(&frame);
        rest = &rest[used..];
    }
    // The checksum keeps random bytes out: the bodies are tried without it as well.
    for kind in super::FrameKind::ALL {
        fuzz_body(&super::Frame { kind, correlation: 0, body: bytes });
    }
}

fn fuzz_body(frame: &super::Frame<'_>) {
    let mut out = Vec::new();
    let Ok(message) = Message::decode(frame) else { return };
    match message {
        Message::Append(body) => {
            if let Ok(view) = AppendView::parse(body, BODY_MAX_BYTES) {
                assert_eq!(view.events().count(), view.event_count() as usize);
            }
        }
        Message::StreamPage(page) => drop(page.records.last()),
        Message::LogPage(page) => drop(page.records.last()),
        Message::Events(events) => drop(events.records.last()),
        Message::Subscribe(subscribe) => {
            subscribe.encode(&mut out, frame.correlation).expect("what was decoded can be encoded");
            assert_eq!(&out[FRAME_HEADER_BYTES..], frame.body);
        }
        Message::Subscription(ask) => {
            ask.encode(&mut out, frame.correlation);
            assert_eq!(&out[FRAME_HEADER_BYTES..], frame.body);
        }
        Message::ReadStream(read) => {
            read.encode(&mut out, frame.correlation).expect("what was decoded can be encoded");
            assert_eq!(&out[FRAME_HEADER_BYTES..], frame.body);
        }
        Message::ReadLog(read) => {
            read.encode(&mut out, frame.correlation);
            assert_eq!(&out[FRAME_HEADER_BYTES..], frame.body);
        }
        Message::Standing(standing) => {
            standing.encode(&mut out);
            assert_eq!(&out[FRAME_HEADER_BYTES..], frame.body);
        }
        Message::HelloAccepted(accepted, leader) => {
            accepted.encode(&mut out, frame.correlation, leader);
            assert_eq!(&out[FRAME_HEADER_BYTES..], frame.body);
        }
        Message::Hello(_)
        | Message::Admin(_)
        | Message::AdminAnswer(_)
        | Message::Appended(_)
        | Message::Ping(_)
        | Message::Pong(_)
        | Message::Error(_) => {}
    }
}
