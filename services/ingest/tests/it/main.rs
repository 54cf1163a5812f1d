//! Ingest as its clients see it: over gRPC, on a real Postgres and a real NATS.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod life;
mod overload;
mod pools;
mod release;
mod rig;
mod stream;
mod submit;
mod validation;
mod watch;
