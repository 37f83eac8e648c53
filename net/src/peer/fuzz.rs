//! The entry for fuzz targets: everything that looks at bytes of the other node, on any bytes.

use duolog_engine::block::BLOCK_HEADER_BYTES;
use duolog_engine::ids::LeaseEpoch;

use super::frame::{PeerFrame, PeerKind, decode_peer_frame};
use super::{PeerMessage, decode_message};
use crate::limits::{ERROR_TEXT_MAX_BYTES, FRAME_HEADER_BYTES};
use crate::wire::Decoded;

/// Decodes `bytes` as a stream of frames, and `bytes` as a body of every kind. Must not panic,
/// whatever the bytes; a message must come out again as it went in.
pub fn fuzz_peer(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Decoded::Complete { value: frame, used }) = decode_peer_frame(rest) {
        fuzz_body(&frame, Some(&rest[..used]));
        rest = &rest[used..];
    }
    // The checksum keeps random bytes out: the bodies are tried without it as well.
    for kind in PeerKind::ALL {
        fuzz_body(&PeerFrame { kind, epoch: LeaseEpoch(7), body: bytes }, None);
    }
}

fn fuzz_body(frame: &PeerFrame<'_>, whole: Option<&[u8]>) {
    let message = match decode_message(frame) {
        // A longer text is cut when it is sent.
        Ok(PeerMessage::Refused(refused)) if refused.text.len() > ERROR_TEXT_MAX_BYTES => return,
        // A block shorter than its header is refused by the frame already.
        Ok(PeerMessage::Block { block, .. }) if block.len() < BLOCK_HEADER_BYTES => return,
        Ok(message) => message,
        Err(_) => return,
    };
    let mut again = Vec::new();
    message.encode(&mut again);
    assert_eq!(&again[FRAME_HEADER_BYTES..], frame.body, "a message has one form only");
    if let Some(whole) = whole {
        assert_eq!(again, whole, "so has its frame");
    }
}
