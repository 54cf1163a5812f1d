//! How a controller is set up.

use std::time::Duration;

/// Settings of `dray controller`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this process among its peers; unique while it runs.
    pub id: String,
    pub database_url: String,
    pub nats_url: String,
    /// A leader that has been silent for this long is replaced.
    pub leader_ttl: Duration,
    /// How long events stay in the log. Each live object's last event stays for ever.
    pub keep_events: Duration,
    /// How long submission records stay after their unit is gone; at least 24 h is promised.
    pub keep_records: Duration,
    /// How often old events and records are removed.
    pub retention_every: Duration,
}

impl Config {
    /// The defaults, for a process called `id`.
    pub fn new(id: impl Into<String>, database_url: impl Into<String>, nats_url: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            database_url: database_url.into(),
            nats_url: nats_url.into(),
            leader_ttl: Duration::from_secs(5),
            keep_events: Duration::from_secs(7 * 24 * 3600),
            keep_records: Duration::from_secs(24 * 3600),
            retention_every: Duration::from_secs(60),
        }
    }
}
