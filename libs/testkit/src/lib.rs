//! Real parts for tests: a migrated database per test, a NATS server per test, and waiting without sleeping.
//!
//! One Postgres server is shared by all tests of a test binary; it starts with the first test that asks. Everything
//! here returns `anyhow` errors or panics, which is what a test wants; nothing here is for services.

mod eventually;
mod folders;
mod servers;

pub use eventually::{Verdict, eventually};
pub use folders::open_tempdir;
pub use servers::{Owned, Stack, empty_database, fresh_database, nats, own_postgres, shared_postgres, stack};
