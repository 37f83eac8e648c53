//! Takes what other threads leave in the shard's inbox.

use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use duolog_engine::disk::uring::LogFile;
use duolog_engine::ids::Generation;
use duolog_engine::shard::Event;
use futures_lite::AsyncReadExt;
use glommio::net::TcpStream;

use super::accept;
use super::shard_loop::ShardLoop;
use crate::serve::background::FileJob;
use crate::serve::inbox::Message;

/// Messages taken before other tasks get a turn.
const TURN_MAX: usize = 256;
/// How long to wait before a segment is tried again after the disk was full, milliseconds.
const SEGMENT_RETRY_MS: u64 = 500;

/// Runs for the life of the shard.
pub(super) async fn run(shard: Rc<ShardLoop>, bell: UnixStream) {
    #[expect(unsafe_code, reason = "the runtime takes a socket only as a raw descriptor")]
    // SAFETY: into_raw_fd gives the descriptor away; the new stream is its only owner.
    let mut bell = unsafe { glommio::net::UnixStream::from_raw_fd(bell.into_raw_fd()) };
    let mut rings = [0; 64];
    loop {
        // The read is in flight whenever this task waits: a byte from any thread ends it.
        if let Err(error) = bell.read(&mut rings).await {
            tracing::error!(%error, event = "bell_broken", "a shard cannot hear other threads");
            shard.journal.stop(crate::exit::Exit::Internal, "a shard cannot hear other threads");
            std::process::exit(i32::from(crate::exit::Exit::Internal.code()));
        }
        shard.inbox().answered_the_bell();
        shard.tick();
        let mut taken = 0;
        while let Some(message) = shard.inbox().take() {
            take(&shard, message);
            taken += 1;
            if taken % TURN_MAX == 0 {
                glommio::executor().yield_task_queue_now().await;
            }
        }
        shard.deliver_late();
    }
}

fn take(shard: &Rc<ShardLoop>, message: Message) {
    match message {
        Message::Connection { socket, session } => {
            #[expect(unsafe_code, reason = "the runtime takes a socket only as a raw descriptor")]
            // SAFETY: into_raw_fd gives the descriptor away; the new stream is its only owner.
            let stream = unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) };
            let mut session = *session;
            session.serve_at(shard.id());
            accept::take(shard, stream, session);
        }
        Message::Request { from, id, correlation, arrived, request } => {
            shard.foreign(from, id, correlation, arrived, request);
        }
        Message::Answer { id, frame } => shard.answer_frame(id, frame),
        Message::Segment { generation, result: Ok(()) } => {
            glommio::spawn_local(open_segment(Rc::clone(shard), generation)).detach();
        }
        Message::Segment { generation, result: Err(_) } => {
            glommio::spawn_local(retry_segment(Rc::clone(shard), generation)).detach();
        }
        Message::Index { generation, indexes } => {
            shard.shard.borrow_mut().set_runs(indexes.runs.clone());
            shard.indexes.replace(indexes);
            shard.step(Event::IndexSaved { generation });
        }
        Message::Merged { indexes } => {
            shard.shard.borrow_mut().set_runs(indexes.runs.clone());
            shard.indexes.replace(indexes);
        }
        Message::Pair(message) => shard.hear(message),
        Message::Control(message) => {
            let control = shard.control.borrow().clone();
            match control {
                Some(control) => control.hear(message),
                // The control starts with its shard, before anybody can have asked.
                None => tracing::warn!(event = "control_missing", ?message),
            }
        }
        Message::Drain => {
            shard.stopping.set(true);
            shard.step(Event::Drain);
        }
        Message::Stop => shard.stopped.ring(),
    }
}

async fn open_segment(shard: Rc<ShardLoop>, generation: Generation) {
    let path = shard.dir.segment(generation);
    let align_bytes = shard.shard.borrow().config().layout.align_bytes;
    match LogFile::open_for_writing(&path, align_bytes).await {
        Ok(file) => {
            shard.add_writer(generation, file);
            shard.preparing.set(shard.preparing.get() - 1);
            shard.metrics().segments.add(1);
            shard.step(Event::SegmentReady { generation });
        }
        Err(error) => {
            tracing::warn!(%generation, %error, event = "segment_not_opened");
            retry_segment(shard, generation).await;
        }
    }
}

async fn retry_segment(shard: Rc<ShardLoop>, generation: Generation) {
    shard.step(Event::SegmentRefused);
    glommio::timer::sleep(std::time::Duration::from_millis(SEGMENT_RETRY_MS)).await;
    shard.send_file_job(FileJob::Prepare(shard.id(), generation));
}
