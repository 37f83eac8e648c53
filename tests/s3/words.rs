//! Keys and bodies from plain text.

use bytes::Bytes;
use duolog_s3client::key::ObjectKey;

pub fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).unwrap()
}

pub fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
