//! The agent over its real edges: unix sockets with the simulated driver, NATS, gRPC.
//!
//! The other end of gRPC is a small server in `server.rs` that says what a test wants said: which claims are wanted, and
//! when it lags. Reports are answered by `controller.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod agent;
mod controller;
mod damage;
mod fleet;
mod registration;
mod rig;
mod server;
