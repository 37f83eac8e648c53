//! The S3 client against the embedded store, which misbehaves on command.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[path = "s3/embedded.rs"]
mod embedded;
#[path = "s3/idempotent.rs"]
mod idempotent;
#[path = "s3/lanes.rs"]
mod lanes;
#[path = "s3/place.rs"]
mod place;
#[path = "s3/proxies.rs"]
mod proxies;
#[path = "s3/swap.rs"]
mod swap;
#[path = "s3/words.rs"]
mod words;
