//! Journeys: the services together, against real Postgres and NATS; in this process (`stack`), or as a user runs them
//! (`installation`).
#![allow(clippy::unwrap_used, reason = "tests")]

mod allocate;
mod client_commands;
mod devices;
mod gates;
mod import;
mod installation;
mod kill;
mod scenarios;
mod stack;
