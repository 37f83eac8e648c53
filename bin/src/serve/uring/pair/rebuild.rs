//! Cutting this shard's log: the index thread cuts and recovers, the old machine serves readers
//! meanwhile.

use std::rc::Rc;

use duolog_engine::disk::uring::LogFile;
use duolog_engine::ids::Lsn;
use duolog_engine::shard::{Actions, Event};

use crate::serve::background::FileJob;
use crate::serve::index::IndexJob;
use crate::serve::rebuild::{CutJob, Rebuilt, RebuiltShard};
use crate::serve::uring::shard_loop::ShardLoop;

/// Waits until nothing is on its way to the disk or to a client, and no cut is under way.
pub(super) async fn settle(shard: &Rc<ShardLoop>) {
    let member = shard.member();
    loop {
        // A segment that is being prepared would come to a machine that has not asked for it.
        let settled = shard.preparing.get() == 0 && {
            let machine = shard.shard.borrow();
            machine.durable() == machine.end() && machine.in_flight() == 0
        };
        if settled && !member.rebuilding.get() {
            return;
        }
        member.settled.wait().await;
    }
}

/// Cuts everything behind `lsn` and makes the machine anew. Call it settled.
pub(super) async fn cut(shard: &Rc<ShardLoop>, lsn: Lsn) -> Result<(), String> {
    let member = shard.member();
    assert!(!member.rebuilding.replace(true), "one cut at a time");
    let (end, committed) = {
        let machine = shard.shard.borrow();
        (machine.end().lsn, machine.committed())
    };
    tracing::warn!(
        event = "log_cut",
        shard = shard.id().0,
        kept = lsn.0,
        end = end.0,
        committed = committed.lsn.0,
        "events that were never acknowledged are cut: the leader's log goes on otherwise",
    );
    // R4: what the old machine knows to be committed, the new one has to know too.
    if committed.lsn > Lsn(0) {
        member.marked.set(false);
        shard.send_file_job(FileJob::MarkFirst(shard.id(), committed));
        while !member.marked.get() {
            member.settled.wait().await;
        }
    }
    shard.send_index_job(IndexJob::Cut(shard.id(), CutJob { keep: lsn, committed }));
    while member.rebuilding.get() {
        member.settled.wait().await;
    }
    let kept = shard.shard.borrow().end().lsn;
    if kept == lsn {
        return Ok(());
    }
    Err(format!("the log could not be cut behind LSN {lsn}; it ends at {kept}"))
}

/// The new machine takes the old one's place.
pub(super) fn finish(shard: &Rc<ShardLoop>, rebuilt: Rebuilt) {
    let Rebuilt { keep, result } = rebuilt;
    match result {
        Ok(rebuilt) => {
            let shard = Rc::clone(shard);
            glommio::spawn_local(async move {
                futures_lite::future::yield_now().await;
                replace(&shard, rebuilt).await;
                shard.member().rebuilding.set(false);
                shard.member().settled.ring();
            })
            .detach();
        }
        Err(error) => {
            let (lsn, id) = (keep.0, shard.id().0);
            tracing::error!(event = "log_not_cut", shard = id, lsn, error, "the node stops");
            shard.journal.stop(crate::exit::Exit::LogDamaged, "the log could not be cut");
            std::process::exit(i32::from(crate::exit::Exit::LogDamaged.code()));
        }
    }
}

async fn replace(shard: &Rc<ShardLoop>, rebuilt: RebuiltShard) {
    let RebuiltShard { machine, log_map, indexes } = rebuilt;
    let align_bytes = machine.config().layout.align_bytes;
    let active = machine.active_generation();
    shard.drop_writers();
    if let Some(generation) = active {
        let path = shard.dir.segment(generation);
        match LogFile::open_for_writing(&path, align_bytes).await {
            Ok(file) => shard.add_writer(generation, file),
            Err(error) => {
                tracing::error!(event = "segment_not_opened", %generation, %error);
                let reason = "the segment behind a cut could not be opened";
                shard.journal.stop(crate::exit::Exit::WriteFailed, reason);
                std::process::exit(i32::from(crate::exit::Exit::WriteFailed.code()));
            }
        }
    }
    *shard.shard.borrow_mut() = machine;
    shard.log_map.replace(log_map);
    shard.indexes.replace(indexes);
    shard.perform(Actions::default());
    shard.step(Event::Tick);
    // What the lease machine has told the old machine.
    if let Some(epoch) = shard.member().reign.get() {
        shard.step(Event::Promote { epoch });
    }
    if let Some((in_sync, proposal)) = shard.member().members.get() {
        shard.step(Event::Members { in_sync, proposal });
    }
}
