//! Journeys: the services together, against real Postgres and NATS.
#![allow(clippy::unwrap_used, reason = "tests")]

mod allocate;
mod stack;
