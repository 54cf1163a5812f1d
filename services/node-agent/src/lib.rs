//! The node agent: prepares a node's devices through its drivers and unprepares them before they are given away.
//!
//! It holds no database connection: what is wanted comes from ingest (`dray.v1.Agents`), what happened goes to the
//! controllers over NATS until it is answered. `decide.rs` has the rules, `checkpoint.rs` what must survive a crash.
//! Beside the agent: [`fleet`], one process for thousands of simulated nodes, and [`sim_driver`], a driver without devices.

mod agent;
mod allocation;
mod checkpoint;
mod config;
mod decide;
mod desired;
pub mod fleet;
mod metrics;
mod plugin;
mod plugins;
mod registration;
mod report;
mod server;
pub mod sim_driver;
mod state;

use std::sync::Arc;

use bus::{Bus, BusConfig, BusError};
use prometheus::Registry;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::agent::Agent;
use crate::checkpoint::{Checkpoint, Lost};
use crate::desired::{Identity, UPDATES_MAX};
use crate::metrics::Metrics;
use crate::plugins::Plugins;
use crate::server::Server;
use crate::state::State;

pub use crate::checkpoint::CheckpointError;
pub use crate::config::{Config, NodeConfig};

/// What an agent needs; made by [`connect`].
#[derive(Debug)]
pub struct Deps {
    config: Config,
    server: Server,
    bus: Bus,
    checkpoint: Checkpoint,
    state: State,
    metrics: Metrics,
    ready: watch::Sender<bool>,
}

/// Why an agent, a fleet or a simulated driver could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{url:?} is not the address of a server")]
    Server {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("the message bus cannot be used")]
    Bus(#[from] BusError),
    #[error("the local state cannot be used")]
    Checkpoint(#[from] CheckpointError),
    #[error("a metric cannot be registered")]
    Metrics(#[from] prometheus::Error),
    #[error("a socket cannot be made at {path}")]
    Socket {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("a part of the node agent ended unexpectedly")]
    Ended,
}

impl Deps {
    /// True once the agent knows what is wanted on its node.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// The connection to NATS, for readiness checks.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }
}

/// Opens the local state and the connections; waits for neither server. Blocks shortly on the state folder.
///
/// `Checkpoint` if another agent uses the folder, or it cannot be read or written. A damaged state is no error: it is
/// moved aside, and whatever was allocated before is taken as possibly prepared.
pub async fn connect(config: Config, registry: Registry) -> Result<Deps, AgentError> {
    let server = server_at(&config.server)?;
    let metrics = Metrics::new(&registry)?;
    let dir = config.state_dir.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let checkpoint = Checkpoint::open(&dir)?;
        let loaded = checkpoint.load(Uuid::now_v7().to_string(), unix_seconds())?;
        // The server hears the epoch only after it is on disk.
        checkpoint.save(&loaded.state)?;
        Ok::<_, CheckpointError>((checkpoint, loaded))
    });
    let (checkpoint, loaded) = opening.await.map_err(|_| AgentError::Ended)??;
    if let Some(lost) = &loaded.lost {
        metrics.checkpoints_lost.inc();
        warn_of(lost);
    }
    let bus = Bus::connect(BusConfig::new(&config.nats_url), &format!("node-agent {}", config.id)).await?;
    let ready = watch::Sender::new(false);
    Ok(Deps {
        config,
        server,
        bus,
        checkpoint,
        state: loaded.state,
        metrics,
        ready,
    })
}

/// Runs until `stop`; then finishes the calls that are on their way.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), AgentError> {
    let Deps {
        config,
        server,
        bus,
        checkpoint,
        state,
        metrics,
        ready,
    } = deps;
    let plugins = Plugins::new();
    let identity = Identity {
        agent_id: config.id.clone(),
        epoch: state.epoch.clone(),
        nodes: desired::fixed(vec![config.node.message()]),
    };
    let (updates, updated) = mpsc::channel(UPDATES_MAX);
    let agent = Agent {
        id: config.id,
        checkpoint: Arc::new(checkpoint),
        plugins: plugins.clone(),
        bus: bus.clone(),
        metrics,
        ready,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(registration::run(
        config.plugins_registry,
        plugins,
        config.call_timeout,
        stop.clone(),
    ));
    tasks.spawn(desired::follow(server, identity, state.position, updates, stop.clone()));
    tasks.spawn(agent.run(state, updated, stop.clone()));
    let ended = join(tasks, stop).await;
    bus.close().await;
    ended
}

/// Waits for all parts; one that ends (or panics) before `stop` ends all.
pub(crate) async fn join(mut tasks: JoinSet<()>, stop: CancellationToken) -> Result<(), AgentError> {
    let mut ended = Ok(());
    while let Some(joined) = tasks.join_next().await {
        if joined.is_err() || !stop.is_cancelled() {
            ended = Err(AgentError::Ended);
        }
        stop.cancel();
    }
    ended
}

pub(crate) fn server_at(url: &str) -> Result<Server, AgentError> {
    Server::new(url).map_err(|source| AgentError::Server {
        url: url.to_owned(),
        source,
    })
}

fn unix_seconds() -> u64 {
    u64::try_from(chassis::Clock::system().now_ms() / 1_000).unwrap_or_default()
}

fn warn_of(lost: &Lost) {
    let text = "NodeStateCorrupted: the local state is lost; everything allocated so far is taken as possibly prepared";
    match lost {
        Lost::Missing => tracing::error!(cause = "the file is gone", "{text}"),
        Lost::Damaged { cause, kept } => tracing::error!(cause, kept = %kept.display(), "{text}"),
        Lost::Newer { version, kept } => tracing::error!(version, kept = %kept.display(), "{text}"),
    }
}
