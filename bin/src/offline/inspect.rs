//! `duolog inspect FILE`: the header and the blocks of one segment file, and on request the
//! records in them.

use std::path::PathBuf;

use clap::Args;
use duolog_engine::block::Block;
use duolog_engine::ids::{ClusterId, Generation, Lsn, ShardId};
use duolog_engine::limits::BLOCK_ALIGN_BYTES;
use duolog_engine::record::{AppendRecord, Record};
use duolog_engine::recovery::{LogIdentity, empty_log};
use duolog_engine::segment::{LogEnd, SegmentError, SegmentHeader};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use crate::event_line;
use crate::exit::{Exit, Failure};
use crate::offline::chain::hex;
use crate::offline::shard::numbered;
use crate::offline::walk::{Piece, Walk};
use crate::output::Output;
use crate::timestamp::rfc3339;
use duolog_engine::disk::uring::mapped;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog inspect data/shard-000/seg-00000001.log
  duolog inspect data/shard-000/seg-00000001.log --events --json | head

Prints what lies in the file, place by place; says nothing about the rest of the log (that is
what verify does). With --json each line is a document: the header, then blocks, gaps, events.";

/// `duolog inspect`
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A segment file.
    pub file: PathBuf,
    /// Print the records of each block too.
    #[arg(long)]
    pub events: bool,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
}

/// Prints the file.
pub fn run(arguments: &InspectArgs, output: Output) -> Result<Exit, Failure> {
    let path = &arguments.file;
    let map = mapped::map(path).map_err(|error| {
        Failure::new(Exit::LocalIo, format!("cannot read {}: {error}", path.display()))
    })?;
    let mut printer = Printer { output, json: arguments.json };
    let header = SegmentHeader::decode(&map);
    printer.header(&header, map.len())?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let walked = header.unwrap_or_else(|_| SegmentHeader {
        cluster: ClusterId(0),
        // Without a header the first block tells whose it is, else the file's name.
        shard: first_block(&map).map_or(ShardId(0), |block| block.header.shard),
        generation: numbered(name, "seg-")
            .or_else(|| first_block(&map).map(|block| block.header.generation))
            .unwrap_or(Generation(0)),
        size_bytes: map.len() as u32,
        align_bytes: BLOCK_ALIGN_BYTES,
        base: empty_log(LogIdentity { cluster: ClusterId(0), shard: ShardId(0) }),
    });
    let mut end = walked.base;
    for piece in Walk::new(&map, &walked) {
        match piece {
            Piece::Block { offset, block } => {
                printer.block(offset, &block, &end)?;
                if arguments.events {
                    printer.records(&block)?;
                }
                let hash = block.header.hash;
                end = LogEnd { lsn: block.header.last_lsn(), hash, ..end };
            }
            Piece::Gap { offset, reason } => printer.gap(offset, &reason.to_string())?,
        }
    }
    printer.output.flush()?;
    Ok(Exit::Ok)
}

fn first_block(bytes: &[u8]) -> Option<Block<'_>> {
    let mut offsets = (0..bytes.len()).step_by(BLOCK_ALIGN_BYTES as usize);
    offsets.find_map(|offset| Block::decode(&bytes[offset..]).ok())
}

struct Printer {
    output: Output,
    json: bool,
}

impl Printer {
    fn put(&mut self, json: impl FnOnce() -> Json, text: impl FnOnce() -> String) -> Put {
        if self.json { self.output.json(&json()) } else { self.output.line(&text()) }
    }

    fn header(&mut self, header: &Result<SegmentHeader, SegmentError>, size: usize) -> Put {
        match header {
            Ok(header) => self.put(
                || {
                    json!({ "header": {
                        "cluster_id": Uuid::from_u128(header.cluster.0),
                        "shard": header.shard.get(),
                        "generation": header.generation.get(),
                        "size_bytes": header.size_bytes,
                        "align_bytes": header.align_bytes,
                        "base_lsn": header.base.lsn.get(),
                        "base_hash": hex(&header.base.hash),
                        "base_epoch": header.base.epoch.get(),
                        "file_bytes": size,
                    }})
                },
                || {
                    format!(
                        "segment {} of shard {}, cluster {}, {} bytes, alignment {}, \
                         continues LSN {} ({:.16})",
                        header.generation,
                        header.shard,
                        Uuid::from_u128(header.cluster.0),
                        header.size_bytes,
                        header.align_bytes,
                        header.base.lsn,
                        hex(&header.base.hash),
                    )
                },
            ),
            Err(error) => self.put(
                || json!({ "header": null, "reason": error.to_string(), "file_bytes": size }),
                || format!("{error}; {size} bytes"),
            ),
        }
    }

    fn block(&mut self, offset: usize, block: &Block<'_>, end: &LogEnd) -> Put {
        let header = &block.header;
        let linked = header.first_lsn == end.lsn.next() && header.previous_hash == end.hash;
        let (first, last): (Lsn, Lsn) = (header.first_lsn, header.last_lsn());
        self.put(
            || {
                json!({ "block": {
                    "offset": offset,
                    "bytes": header.length(),
                    "first_lsn": first.get(),
                    "last_lsn": last.get(),
                    "events": header.event_count,
                    "epoch": header.epoch.get(),
                    "hlc": header.hlc.get(),
                    "time": rfc3339(header.hlc.wall_ms()),
                    "commit_mark": header.commit_mark.get(),
                    "previous_hash": hex(&header.previous_hash),
                    "hash": hex(&header.hash),
                    "linked": linked,
                }})
            },
            || {
                format!(
                    "{offset:>10}  block LSN {first}-{last}  {} events  {} bytes  {}  epoch {}  \
                     committed {}  {:.16}{}",
                    header.event_count,
                    header.length(),
                    rfc3339(header.hlc.wall_ms()),
                    header.epoch,
                    header.commit_mark,
                    hex(&header.hash),
                    if linked { "" } else { "  NOT LINKED to the block before" },
                )
            },
        )
    }

    fn records(&mut self, block: &Block<'_>) -> Put {
        for record in block.records() {
            match record {
                Ok((_, Record::Event(event))) if self.json => {
                    let line = event_line::json(block.header.shard, &event)?;
                    self.output.line(&format!("{{\"event\":{line}}}"))?;
                }
                Ok((_, Record::Event(event))) => {
                    let line = event_line::human(&event);
                    self.output.line(&format!("{:>10}    {line}", event.lsn.get()))?;
                }
                Ok((_, Record::Append(append))) => self.append(&append)?,
                Err(error) => self.gap(0, &error.to_string())?,
            }
        }
        Ok(())
    }

    fn append(&mut self, append: &AppendRecord<'_>) -> Put {
        let key = append.key.map(|key| Uuid::from_u128(key.0));
        let (token, count) = (append.fencing_token, append.event_count);
        self.put(
            || {
                json!({ "append": {
                    "first_lsn": append.first_lsn.get(),
                    "events": count,
                    "idempotency_key": key,
                    "fencing_token": token,
                }})
            },
            || {
                let key = key.map_or_else(|| "no key".to_owned(), |key| format!("key {key}"));
                let token = token.map_or_else(String::new, |token| format!(", token {token}"));
                format!("{:>10}    append of {count} events, {key}{token}", "")
            },
        )
    }

    fn gap(&mut self, offset: usize, reason: &str) -> Put {
        self.put(
            || json!({ "gap": { "offset": offset, "reason": reason } }),
            || format!("{offset:>10}  {reason}"),
        )
    }
}

type Put = Result<(), Failure>;
