//! What a service needs to start, be seen and stop: configuration, telemetry, TLS, health, shutdown, clock, backoff.
//!
//! A binary calls [`run`] with a loaded configuration and the service's own `serve`; the rest of this crate is what
//! `serve` is handed or uses. Knows nothing of Postgres, NATS or devices.

pub mod backoff;
pub mod clock;
pub mod config;
pub mod health;
pub mod metrics;
mod run;
pub mod shutdown;
pub mod telemetry;
pub mod tls;

pub use backoff::Backoff;
pub use clock::Clock;
pub use config::ChassisConfig;
pub use health::Health;
pub use run::{AnyError, Parts, run};
