//! Follows the log: live from NATS, what is missing from Postgres. And the other end: announces what a process has committed.
//!
//! A follower hands out every event of its kinds exactly once, in order within each kind, whatever NATS loses, repeats or swaps.

mod announce;
mod follow;

pub use announce::{ANNOUNCE_QUEUE_MAX, announce, to_batch};
pub use follow::{BATCHES_MAX, Batch, Follower};
