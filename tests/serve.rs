//! What a real server promises to its clients and to whoever runs it.

mod serve_appends;
mod serve_connections;
mod serve_counts;
mod serve_frames;
mod serve_keys;
mod serve_limits;
mod serve_names;
mod serve_reads;
mod serve_signals;
mod serve_start;
