//! The manifest: a shard's catalog as bytes (FORMAT.md, "Manifest").
//!
//! Owns the codec only. Like everything here it is derived from the log: one that cannot be read is
//! a typed error, and the caller starts with an empty catalog and rebuilds.

use crate::bytes::{Cursor, TooShort};
use crate::ids::{ClusterId, Generation, ShardId};
use crate::index::catalog::{Catalog, KeyFile, RunFile};

/// First bytes of a manifest.
pub const MANIFEST_MAGIC: [u8; 8] = *b"DLOGCAT1";
const VERSION: u16 = 1;
const CHECKED_FROM: usize = 16;
const FIXED_BYTES: usize = 48;
const RUN_BYTES: usize = 32;
const KEYS_BYTES: usize = 16;

/// Why bytes are not this shard's manifest. The remedy is to rebuild the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Cut short.
    #[error("index manifest is cut short; the index will be rebuilt")]
    TooShort,
    /// Something else.
    #[error("no index manifest; the index will be rebuilt")]
    NoMagic,
    /// Damaged.
    #[error("index manifest checksum is wrong; the index will be rebuilt")]
    Checksum,
    /// Newer than this program.
    #[error("index manifest version {0} is newer than this program")]
    Version(u16),
    /// Another shard's or another cluster's.
    #[error("index manifest belongs to another shard ({0}) or cluster; it will be rebuilt")]
    Foreign(ShardId),
    /// Files that do not follow each other, or a wrong length.
    #[error("index manifest lists impossible {0}; the index will be rebuilt")]
    Content(&'static str),
}

impl From<TooShort> for ManifestError {
    fn from(_: TooShort) -> Self {
        Self::TooShort
    }
}

impl Catalog {
    /// The manifest, appended to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MANIFEST_MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.cluster.0.to_le_bytes());
        out.extend_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.keys.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for run in &self.runs {
            out.extend_from_slice(&run.first.0.to_le_bytes());
            out.extend_from_slice(&run.last.0.to_le_bytes());
            out.extend_from_slice(&run.stream_count.to_le_bytes());
            out.extend_from_slice(&run.posting_count.to_le_bytes());
            out.extend_from_slice(&[0; 8]);
        }
        for file in &self.keys {
            out.extend_from_slice(&file.first.0.to_le_bytes());
            out.extend_from_slice(&file.last.0.to_le_bytes());
            out.extend_from_slice(&file.key_count.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&out[start + CHECKED_FROM..]);
        out[start + 12..start + 16].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes and checks the manifest of shard `shard` of `cluster`: exactly `bytes`.
    pub fn decode(bytes: &[u8], cluster: ClusterId, shard: ShardId) -> Result<Self, ManifestError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.take(8)? != MANIFEST_MAGIC {
            return Err(ManifestError::NoMagic);
        }
        let version = cursor.u16()?;
        let reserved = cursor.u16()?;
        if cursor.u32()? != crc32c::crc32c(cursor.rest()) {
            return Err(ManifestError::Checksum);
        }
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        let (found_cluster, found_shard) = (ClusterId(cursor.u128()?), ShardId(cursor.u32()?));
        if (found_cluster, found_shard) != (cluster, shard) {
            return Err(ManifestError::Foreign(found_shard));
        }
        let run_count = cursor.u32()? as usize;
        let key_count = cursor.u32()? as usize;
        let reserved = cursor.u32()? | u32::from(reserved);
        let length = run_count
            .checked_mul(RUN_BYTES)
            .zip(key_count.checked_mul(KEYS_BYTES))
            .and_then(|(runs, keys)| runs.checked_add(keys)?.checked_add(FIXED_BYTES));
        if length != Some(bytes.len()) || reserved != 0 {
            return Err(ManifestError::Content("length"));
        }
        let mut catalog = Self::new(cluster, shard);
        catalog.runs.reserve(run_count);
        for _ in 0..run_count {
            catalog.runs.push(decode_run(&mut cursor)?);
        }
        for _ in 0..key_count {
            catalog.keys.push(decode_keys(&mut cursor)?);
        }
        catalog.check().map_err(ManifestError::Content)?;
        Ok(catalog)
    }
}

fn decode_run(cursor: &mut Cursor<'_>) -> Result<RunFile, ManifestError> {
    let first = Generation(cursor.u32()?);
    let last = Generation(cursor.u32()?);
    let (stream_count, posting_count) = (cursor.u64()?, cursor.u64()?);
    match cursor.u64()? {
        0 => Ok(RunFile { first, last, stream_count, posting_count }),
        _ => Err(ManifestError::Content("runs")),
    }
}

fn decode_keys(cursor: &mut Cursor<'_>) -> Result<KeyFile, TooShort> {
    let first = Generation(cursor.u32()?);
    let last = Generation(cursor.u32()?);
    Ok(KeyFile { first, last, key_count: cursor.u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLUSTER: ClusterId = ClusterId(3);
    const SHARD: ShardId = ShardId(1);

    fn filled(segments: u32) -> Catalog {
        let mut catalog = Catalog::new(CLUSTER, SHARD);
        for segment in (1..=segments).map(Generation) {
            let (first, last) = (segment, segment);
            let run = RunFile { first, last, stream_count: 5, posting_count: 9 };
            catalog.add(run, KeyFile { first, last, key_count: 10 }).unwrap();
        }
        catalog
    }

    #[test]
    fn another_shards_manifest_is_refused() {
        let mut bytes = Vec::new();
        filled(2).encode(&mut bytes);
        let error = ManifestError::Foreign(SHARD);
        assert_eq!(Catalog::decode(&bytes, CLUSTER, ShardId(2)), Err(error));
        assert_eq!(Catalog::decode(&bytes, ClusterId(4), SHARD), Err(error));
    }

    proptest! {
        #[test]
        fn a_manifest_comes_back(segments in 0_u32..100, merges in 0_usize..9) {
            let mut catalog = filled(segments);
            for _ in 0..merges {
                let Some(&[first, .., last]) = catalog.next_run_merge() else { break };
                let merged = RunFile { last: last.last, ..first };
                catalog.replace_runs(&[merged]).unwrap();
            }
            catalog.retire_keys(35);
            let mut bytes = Vec::new();
            catalog.encode(&mut bytes);
            prop_assert_eq!(Catalog::decode(&bytes, CLUSTER, SHARD), Ok(catalog));
        }

        #[test]
        fn changed_manifests_are_refused_or_consistent(
            at in any::<usize>(), value in any::<u8>(), length in 0_usize..500,
        ) {
            let mut bytes = Vec::new();
            filled(9).encode(&mut bytes);
            let at = at % bytes.len();
            prop_assert_eq!(
                Catalog::decode(&bytes[..length.min(bytes.len())], CLUSTER, SHARD).is_ok(),
                length >= bytes.len()
            );
            let same = bytes[at] == value;
            bytes[at] = value;
            prop_assert_eq!(Catalog::decode(&bytes, CLUSTER, SHARD).is_ok(), same);
            // With its checksum mended.
            let checksum = crc32c::crc32c(&bytes[CHECKED_FROM..]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
            if let Ok(catalog) = Catalog::decode(&bytes, CLUSTER, SHARD) {
                let mut again = Vec::new();
                catalog.encode(&mut again);
                prop_assert_eq!(again, bytes);
                let _ = catalog.next_run_merge();
            }
        }

        #[test]
        fn arbitrary_manifests_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut whole = Vec::new();
            filled(0).encode(&mut whole);
            whole.truncate(36);
            whole.extend_from_slice(&bytes);
            let checksum = crc32c::crc32c(&whole[CHECKED_FROM..]);
            whole[12..16].copy_from_slice(&checksum.to_le_bytes());
            let _ = Catalog::decode(&whole, CLUSTER, SHARD);
            prop_assert!(Catalog::decode(&bytes, CLUSTER, SHARD).is_err());
        }
    }
}
