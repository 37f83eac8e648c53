//! What two nodes and a bucket promise, whatever happens to them: real processes, the embedded S3
//! with its faults, and clients that remember every acknowledgement.

mod pair_counts;
mod pair_double;
mod pair_events;
mod pair_founding;
mod pair_handover;
mod pair_kills;
mod pair_members;
mod pair_reads;
mod pair_s3;
mod pair_spinning;
mod pair_zombie;
