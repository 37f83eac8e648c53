//! One shard's files, read from front to back into a verdict.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use duolog_engine::ids::{ClusterId, Generation, Lsn, ShardId};
use duolog_engine::limits::BLOCK_ALIGN_BYTES;
use duolog_engine::recovery::{LogIdentity, empty_log};
use duolog_engine::segment::{SegmentError, SegmentHeader};

use crate::offline::chain::{BlockSeen, Chain, Spot, Verdict};
use crate::offline::walk::{Piece, Reason, Walk};
use duolog_engine::disk::uring::mapped;

/// What a shard's directory holds.
#[derive(Debug)]
pub struct ShardReport {
    /// The shard.
    pub shard: ShardId,
    /// Segments with blocks of the log.
    pub segments: u32,
    /// Segment files that are prepared for later, or set aside.
    pub prepared: u32,
    /// The chain.
    pub verdict: Verdict,
}

/// Segment files in `dir`, by generation.
pub fn segments(dir: &Path) -> io::Result<Vec<(Generation, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if let Some(generation) = numbered(name, "seg-") {
            found.push((generation, path));
        }
    }
    found.sort();
    Ok(found)
}

/// The number in `<prefix><number>.log`.
#[must_use]
pub fn numbered(name: &str, prefix: &str) -> Option<Generation> {
    let number = name.strip_prefix(prefix)?.strip_suffix(".log")?;
    number.parse().ok().map(Generation)
}

/// Reads everything of `shard`, whose directory is `dir`. `mark` is the shard's durable mark.
pub fn verify(
    dir: &Path,
    cluster: ClusterId,
    shard: ShardId,
    mark: Option<Lsn>,
) -> io::Result<ShardReport> {
    verify_told(dir, cluster, shard, mark, None)
}

/// [`verify`] that tells each block of the chain to `told`, in order.
pub fn verify_told(
    dir: &Path,
    cluster: ClusterId,
    shard: ShardId,
    mark: Option<Lsn>,
    told: Option<SyncSender<BlockSeen>>,
) -> io::Result<ShardReport> {
    let files = segments(dir)?;
    let mut reader = ShardReader { cluster, shard, dir, chain: None, segments: 0, prepared: 0 };
    reader.chain().tell(told);
    let mut last = Spot { file: reader.name(dir), offset: 0 };
    let mut expected = Generation(1);
    for (generation, path) in &files {
        last = Spot { file: reader.name(path), offset: 0 };
        if *generation > expected {
            let file = reader.name(&path.with_file_name(format!("seg-{:08}.log", expected.0)));
            reader.chain().lost(Spot { file, offset: 0 }, "the file is missing".to_owned());
        }
        expected = generation.next();
        reader.segment(*generation, path)?;
    }
    let ShardReader { chain, segments, mut prepared, .. } = reader;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        prepared += u32::from(numbered(&name.to_string_lossy(), "spare-").is_some());
    }
    let chain = chain.unwrap_or_else(|| Chain::new(empty_log(LogIdentity { cluster, shard })));
    Ok(ShardReport { shard, segments, prepared, verdict: chain.finish(mark, last) })
}

struct ShardReader<'a> {
    cluster: ClusterId,
    shard: ShardId,
    dir: &'a Path,
    chain: Option<Chain>,
    segments: u32,
    prepared: u32,
}

impl ShardReader<'_> {
    fn name(&self, path: &Path) -> String {
        let base = self.dir.parent().unwrap_or(self.dir);
        path.strip_prefix(base).unwrap_or(path).display().to_string()
    }

    fn chain(&mut self) -> &mut Chain {
        let identity = LogIdentity { cluster: self.cluster, shard: self.shard };
        self.chain.get_or_insert_with(|| Chain::new(empty_log(identity)))
    }

    fn segment(&mut self, generation: Generation, path: &Path) -> io::Result<()> {
        let map = mapped::map(path)?;
        let header = SegmentHeader::decode(&map);
        let usable = self.usable(generation, &header);
        let file = self.name(path);
        let (cluster, shard) = (self.cluster, self.shard);
        let chain = self.chain();
        let end = *chain.end();
        let unlinked = match &usable {
            Ok(header) if header.base.lsn == end.lsn && header.base.hash == end.hash => None,
            Ok(header) => Some(format!(
                "the segment continues LSN {}, the log before it ends with LSN {}",
                header.base.lsn, end.lsn
            )),
            Err(reason) => Some(reason.clone()),
        };
        if unlinked.is_none() {
            chain.rotated();
        }
        if let Ok(SegmentHeader { size_bytes, .. }) = usable
            && map.len() as u64 != u64::from(size_bytes)
        {
            let reason = format!("the file has {} bytes instead of {size_bytes}", map.len());
            chain.lost(Spot { file: file.clone(), offset: map.len() as u64 }, reason);
        }
        let walked = usable.unwrap_or(SegmentHeader {
            cluster,
            shard,
            generation,
            size_bytes: map.len() as u32,
            align_bytes: BLOCK_ALIGN_BYTES,
            base: end,
        });
        let mut used = false;
        for piece in Walk::new(&map, &walked) {
            match piece {
                Piece::Block { offset, block } => {
                    if let Some(reason) = unlinked.as_ref().filter(|_| !used) {
                        let torn = matches!(header, Err(SegmentError::Checksum));
                        let spot = Spot { file: file.clone(), offset: 0 };
                        chain.unlinked(spot, reason.clone(), torn);
                    }
                    used = true;
                    chain.block(Spot { file: file.clone(), offset: offset as u64 }, &block);
                }
                Piece::Gap { offset, reason } if used || unlinked.is_none() => {
                    let torn = matches!(reason, Reason::Broken(_));
                    let spot = Spot { file: file.clone(), offset: offset as u64 };
                    chain.gap(spot, reason.to_string(), torn);
                }
                Piece::Gap { .. } => {}
            }
        }
        let (segments, prepared) = (u32::from(used), u32::from(!used));
        (self.segments, self.prepared) = (self.segments + segments, self.prepared + prepared);
        Ok(())
    }

    /// The header if a server would go on reading here, else why not.
    fn usable(
        &self,
        generation: Generation,
        header: &Result<SegmentHeader, SegmentError>,
    ) -> Result<SegmentHeader, String> {
        let header = (*header).map_err(|error| error.to_string())?;
        if header.cluster != self.cluster {
            return Err("the segment belongs to another cluster".to_owned());
        }
        if header.shard != self.shard {
            return Err(format!("the segment belongs to shard {}", header.shard));
        }
        if header.generation != generation {
            return Err(format!("the header is left over from segment {}", header.generation));
        }
        Ok(header)
    }
}
