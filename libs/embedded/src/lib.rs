//! Postgres and NATS as child processes of this one, for `dray up`, tests and benchmarks.
//!
//! Finds the installed binaries, prepares a data directory, starts the server on the loopback address and stops it
//! again. A server never outlives its handle: it is killed when the handle is dropped and, where `setpriv` exists, when
//! this process dies. Never used by a service: a service gets URLs.

mod account;
mod binaries;
mod child;
mod error;
mod log_file;
mod nats;
mod place;
mod port;
mod postgres;
mod postmaster_pid;

pub use error::EmbeddedError;
pub use nats::{Nats, NatsConfig};
pub use place::default_root;
pub use postgres::{Postgres, PostgresConfig};
