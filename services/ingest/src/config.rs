//! How an ingest is set up.

use std::net::SocketAddr;
use std::path::PathBuf;

use chassis::tls::TlsFiles;

/// Settings of `dray ingest`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this process among its peers; unique while it runs.
    pub id: String,
    pub database_url: String,
    pub nats_url: String,
    /// Where gRPC is served. Port 0: any free one.
    pub listen: SocketAddr,
    /// Connections to Postgres, at most.
    pub connections_max: u32,
    /// Writes that wait for their commit, at most; beyond it callers are refused and told when to come back.
    pub writes_max: usize,
    /// Units that are waited for at once, at most.
    pub waiters_max: usize,
    /// Feature gates to switch before anything is served, as `A=true,B=false`; empty: none.
    pub feature_gates: String,
    /// The Kubernetes REST API; `None`: it is not served.
    pub rest: Option<RestConfig>,
}

/// How the Kubernetes REST API is served.
#[derive(Clone, Debug)]
pub struct RestConfig {
    /// Port 0: any free one.
    pub listen: SocketAddr,
    /// `None`: plain HTTP, over which clients show no credentials. Everybody who reaches the address may do everything then.
    pub tls: Option<TlsFiles>,
    /// Who has which token, and who may do what; see docs/kubernetes.md.
    pub access: Option<PathBuf>,
}

impl Config {
    /// The defaults, for a process called `id`.
    pub fn new(id: impl Into<String>, database_url: impl Into<String>, nats_url: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            database_url: database_url.into(),
            nats_url: nats_url.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            connections_max: 16,
            writes_max: 8_192,
            waiters_max: 100_000,
            rest: None,
            feature_gates: String::new(),
        }
    }
}
