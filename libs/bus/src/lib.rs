//! NATS for Dray: subjects, messages, the event stream, publishing, subscribing, asking. The only user of async-nats.
//!
//! NATS may lose, repeat, delay or reorder anything, and be wiped: Postgres is the truth, and a consumer's position is
//! its log position. `README.md` has the table of subjects with what loss and duplication do to each.

mod ask;
mod connect;
mod error;
pub mod messages;
pub mod order;
mod publish;
mod stats;
mod streams;
pub mod subjects;
mod subscribe;
mod trace;

pub use ask::{Request, Requests};
pub use connect::{Bus, BusConfig, EventStorage};
pub use error::BusError;
pub use stats::BusStats;
pub use streams::EVENTS_STREAM;
pub use subscribe::{Inbox, Received, Subscription};
