//! How an allocator is set up.

use std::time::Duration;

pub use structured::Policy;

/// Settings of `dray allocator`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this process among its peers; unique while it runs.
    pub id: String,
    pub database_url: String,
    pub nats_url: String,
    /// A process that has been silent for this long has lost its shards.
    pub lease_ttl: Duration,
    /// Connections to Postgres, at most: two lanes of commits, reads, the heartbeat.
    pub connections_max: u32,
    /// How a node is chosen among those that fit.
    pub policy: Policy,
    /// Feature gates to switch before anything is decided, as `A=true,B=false`; empty: none.
    pub feature_gates: String,
}

impl Config {
    /// The defaults, for a process called `id`.
    pub fn new(id: impl Into<String>, database_url: impl Into<String>, nats_url: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            database_url: database_url.into(),
            nats_url: nats_url.into(),
            lease_ttl: Duration::from_secs(3),
            connections_max: 8,
            policy: Policy::FirstFit,
            feature_gates: String::new(),
        }
    }
}
