//! Fleet mode: one process stands for thousands of nodes, for load tests and demonstrations.
//!
//! Its nodes are made up, or those of the pools that others publish ([`Follow`]). It registers them as one agent, publishes a pool per node, prepares in memory after a set time, and reports in
//! batches. It has no sockets and no state on disk: what it prepared is gone with it, so after a restart nothing is prepared.

mod follow;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bus::messages::{ClaimReport, ClaimState, PreparedDevice, ReportAnswer};
use bus::{Bus, BusConfig, BusError};
use chassis::Backoff;
use futures::StreamExt;
use prometheus::{IntGauge, Registry};
use resource_api::{DriverName, Sequence};
use rpc::dray::v1 as pb;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::allocation::AllocationKey;
use crate::config::NodeConfig;
use crate::desired::{self, Desired, Identity, UPDATES_MAX, Update};
use crate::report::{self, Outbox};
use crate::server::Server;
use crate::sim_driver::{cdi_id, devices};
use crate::{AgentError, join, server_at};
use follow::Follower;

pub use follow::Follow;

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// Nodes given back in one call when the fleet ends.
const NODES_PER_CALL: usize = 1_000;

/// Settings of `dray fleet`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this fleet among agents.
    pub id: String,
    /// Address of ingest, `http://host:port`.
    pub server: String,
    /// `nats://host:port`.
    pub nats_url: String,
    /// How many nodes; they are called `<prefix>-00000` and so on.
    pub nodes: u32,
    pub node_prefix: String,
    /// The nodes of published pools as well.
    pub follow: Option<Follow>,
    /// Labels of every node.
    pub labels: BTreeMap<String, String>,
    /// The driver of all pools.
    pub driver: DriverName,
    /// Devices of each node; 0: nothing is published.
    pub devices_per_node: u32,
    /// Models of the devices, one model per node in turn; none: one made-up model.
    pub models: Vec<String>,
    /// How long a prepare takes.
    pub prepare_latency: Duration,
    /// Pools published at once.
    pub publishes_at_once: usize,
}

impl Config {
    /// `nodes` nodes with eight devices each, prepared at once.
    pub fn new(id: impl Into<String>, server: impl Into<String>, nats_url: impl Into<String>, nodes: u32) -> Self {
        let id = id.into();
        Self {
            node_prefix: id.clone(),
            id,
            server: server.into(),
            nats_url: nats_url.into(),
            nodes,
            follow: None,
            labels: BTreeMap::new(),
            driver: "gpu.dray.example".into(),
            devices_per_node: 8,
            models: Vec::new(),
            prepare_latency: Duration::ZERO,
            publishes_at_once: 32,
        }
    }

    fn node(&self, index: u32) -> NodeConfig {
        NodeConfig {
            name: format!("{}-{index:05}", self.node_prefix),
            labels: self.labels.clone(),
            unschedulable: false,
        }
    }

    fn pool(&self, index: u32) -> pb::PublishPoolRequest {
        let node = self.node(index).name;
        let models = u32::try_from(self.models.len()).unwrap_or(u32::MAX).max(1);
        let model = self.models.get((index % models) as usize).map_or("SIM-100", String::as_str);
        pb::PublishPoolRequest {
            driver: self.driver.to_string(),
            pool: node.clone(),
            reach: Some(pb::publish_pool_request::Reach::NodeName(node)),
            devices: devices(self.devices_per_node, model),
        }
    }
}

/// How far a fleet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It is known what is wanted on all nodes.
    pub synced: bool,
    pub pools_published: u32,
    /// Claims that are prepared now.
    pub prepared: usize,
    /// Reports that nobody answered yet.
    pub reports_waiting: usize,
}

/// What a fleet needs; made by [`connect`].
#[derive(Debug)]
pub struct Deps {
    config: Config,
    server: Server,
    bus: Bus,
    prepared: IntGauge,
    progress: watch::Sender<Progress>,
}

impl Deps {
    /// How far it is, as a level to watch.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The connection to NATS, for readiness checks.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }
}

/// Opens the connections; waits for neither server.
pub async fn connect(config: Config, registry: Registry) -> Result<Deps, AgentError> {
    let server = server_at(&config.server)?;
    let prepared = IntGauge::new(
        "dray_fleet_claims_prepared",
        "How many claims are prepared on the fleet's nodes?",
    )?;
    registry.register(Box::new(prepared.clone()))?;
    let bus = Bus::connect(BusConfig::new(&config.nats_url), &format!("fleet {}", config.id)).await?;
    Ok(Deps {
        config,
        server,
        bus,
        prepared,
        progress: watch::Sender::new(Progress::default()),
    })
}

/// Runs until `stop`; then gives back the nodes on which nothing is prepared, if the server is there.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), AgentError> {
    let Deps {
        config,
        server,
        bus,
        prepared,
        progress,
    } = deps;
    let nodes = watch::Sender::new((0..config.nodes).map(|index| config.node(index).message()).collect());
    let identity = Identity {
        agent_id: config.id.clone(),
        // Nothing outlives the process.
        epoch: Uuid::now_v7().to_string(),
        nodes: nodes.subscribe(),
    };
    let (updates, updated) = mpsc::channel(UPDATES_MAX);
    let mut tasks = JoinSet::new();
    tasks.spawn(desired::follow(
        server.clone(),
        identity,
        Sequence::ZERO,
        updates,
        stop.clone(),
    ));
    tasks.spawn(publish_all(server.clone(), config.clone(), progress.clone(), stop.clone()));
    let fleet = Fleet {
        id: config.id.clone(),
        latency: config.prepare_latency,
        bus: bus.clone(),
        gauge: prepared,
        progress,
    };
    tasks.spawn(fleet.run(updated, stop.clone()));
    if let Some(follow) = config.follow.clone() {
        let follower = Follower {
            server: server.clone(),
            follow,
            labels: config.labels.clone(),
            nodes: nodes.clone(),
        };
        tasks.spawn(follower.run(stop.clone()));
    }
    let ended = join(tasks, stop).await;
    let names = nodes.borrow().iter().map(|node: &pb::AgentNode| node.name.clone()).collect();
    give_back(&server, &config.id, names).await;
    bus.close().await;
    ended
}

async fn publish_all(server: Server, config: Config, progress: watch::Sender<Progress>, stop: CancellationToken) {
    let pools = (0..if config.devices_per_node == 0 { 0 } else { config.nodes }).map(|index| config.pool(index));
    let published = futures::stream::iter(pools).for_each_concurrent(config.publishes_at_once.max(1), |pool| async {
        publish(&server, pool).await;
        progress.send_modify(|progress| progress.pools_published += 1);
    });
    tokio::select! {
        () = stop.cancelled() => return,
        () = published => tracing::info!(pools = progress.borrow().pools_published, "all pools of the fleet are published"),
    }
    stop.cancelled().await;
}

/// Tries until it worked: a fleet is started together with the server.
async fn publish(server: &Server, pool: pb::PublishPoolRequest) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_CAP);
    while let Err(status) = server.publish(pool.clone()).await {
        tracing::debug!(pool = pool.pool, code = %status.code(), message = status.message(), "pool not published; trying again");
        if backoff.failures() == 5 {
            tracing::warn!(pool = pool.pool, code = %status.code(), message = status.message(), "pool still not published");
        }
        let wait = backoff.next_wait(&mut rand::rng());
        tokio::time::sleep(wait).await;
    }
}

async fn give_back(server: &Server, id: &str, names: Vec<String>) {
    for names in names.chunks(NODES_PER_CALL) {
        if let Err(status) = server.deregister(id, names.to_vec()).await {
            tracing::info!(code = %status.code(), message = status.message(), "nodes stay registered");
            return;
        }
    }
}

struct Fleet {
    id: String,
    latency: Duration,
    bus: Bus,
    gauge: IntGauge,
    progress: watch::Sender<Progress>,
}

/// Where an allocation stands on its simulated node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preparing,
    Prepared,
    Ended,
}

/// Everything that changes.
struct Nodes {
    desired: Option<Desired>,
    stages: BTreeMap<AllocationKey, Stage>,
    /// In the order of being due, as all take equally long.
    due: VecDeque<(Instant, AllocationKey)>,
    outbox: Outbox,
    reporting: bool,
    backoff: Backoff,
    report_not_before: Instant,
}

type Reported = (Vec<ClaimReport>, Result<ReportAnswer, BusError>);

impl Fleet {
    async fn run(self, mut updates: mpsc::Receiver<Update>, stop: CancellationToken) {
        let mut nodes = Nodes::new();
        let mut reports: JoinSet<Reported> = JoinSet::new();
        loop {
            nodes.on_time(Instant::now());
            self.send_reports(&mut nodes, &mut reports);
            self.show(&nodes);
            let next = nodes.next_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(Ok((sent, answer))) = reports.join_next() => nodes.on_answer(&sent, answer),
                Some(update) = updates.recv() => nodes.on_update(update, self.latency),
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
        reports.shutdown().await;
    }

    fn send_reports(&self, nodes: &mut Nodes, reports: &mut JoinSet<Reported>) {
        let batch = nodes.outbox.batch();
        if !nodes.reporting && !batch.is_empty() && nodes.report_not_before <= Instant::now() {
            nodes.reporting = true;
            reports.spawn(report::send(self.bus.clone(), self.id.clone(), batch));
        }
    }

    fn show(&self, nodes: &Nodes) {
        let prepared = nodes.stages.values().filter(|stage| **stage == Stage::Prepared).count();
        self.gauge.set(i64::try_from(prepared).unwrap_or(i64::MAX));
        let (synced, reports_waiting) = (nodes.desired.is_some(), nodes.outbox.waiting());
        self.progress.send_if_modified(|progress| {
            let shown = Progress {
                synced,
                prepared,
                reports_waiting,
                ..*progress
            };
            std::mem::replace(progress, shown) != shown
        });
    }
}

impl Nodes {
    fn new() -> Self {
        Self {
            desired: None,
            stages: BTreeMap::new(),
            due: VecDeque::new(),
            outbox: Outbox::default(),
            reporting: false,
            backoff: Backoff::new(RETRY_FIRST, RETRY_CAP),
            report_not_before: Instant::now(),
        }
    }

    fn on_update(&mut self, update: Update, latency: Duration) {
        let changed: Vec<AllocationKey> = match &update {
            Update::Changes(changes) => changes.wishes.keys().copied().collect(),
            Update::List(list) => self.stages.keys().chain(list.wishes.keys()).copied().collect(),
        };
        desired::apply(&mut self.desired, update);
        for key in changed {
            let wanted = self
                .desired
                .as_ref()
                .and_then(|desired| desired.wishes.get(&key))
                .is_some_and(|wish| wish.wanted);
            match (wanted, self.stages.get(&key)) {
                (true, None) => {
                    self.stages.insert(key, Stage::Preparing);
                    self.due.push_back((Instant::now() + latency, key));
                }
                // What began to end is not prepared again.
                (true, Some(_)) => {}
                (false, _) => self.end(key),
            }
        }
    }

    fn end(&mut self, key: AllocationKey) {
        self.stages.insert(key, Stage::Ended);
        match self.desired.as_ref().and_then(|desired| desired.wishes.get(&key)) {
            Some(wish) => self.outbox.say(
                key,
                report::plain(key, &wish.allocation.node, ClaimState::Unprepared, Vec::new()),
            ),
            // The server does not know it any more: nobody has to be told.
            None => self.forget(key),
        }
    }

    fn on_time(&mut self, now: Instant) {
        while let Some((_, key)) = self.due.pop_front_if(|(due, _)| *due <= now) {
            let wish = self.desired.as_ref().and_then(|desired| desired.wishes.get(&key));
            if let (Some(stage @ Stage::Preparing), Some(wish)) = (self.stages.get_mut(&key), wish) {
                *stage = Stage::Prepared;
                let devices = wish.allocation.devices.iter().map(|device| PreparedDevice {
                    driver: device.driver.to_string(),
                    pool: device.pool.to_string(),
                    device: device.device.to_string(),
                    cdi_device_ids: vec![cdi_id(&device.driver, &device.pool, &device.device)],
                    request_names: vec![device.request.split('/').next().unwrap_or_default().to_owned()],
                });
                let report = report::plain(key, &wish.allocation.node, ClaimState::Prepared, devices.collect());
                self.outbox.say(key, report);
            }
        }
    }

    fn on_answer(&mut self, sent: &[ClaimReport], answer: Result<ReportAnswer, BusError>) {
        self.reporting = false;
        let answered = match answer {
            Ok(answer) => {
                for key in self.outbox.on_answer(sent, &answer) {
                    self.forget(key);
                }
                !self.outbox.batch().iter().any(|report| sent.contains(report))
            }
            Err(error) => {
                tracing::debug!(%error, reports = sent.len(), "reports were not answered; sending them again");
                false
            }
        };
        if answered {
            self.backoff.reset();
        } else {
            self.report_not_before = Instant::now() + self.backoff.next_wait(&mut rand::rng());
        }
    }

    fn forget(&mut self, key: AllocationKey) {
        let wanted = |desired: &Desired| desired.wishes.get(&key).is_some_and(|wish| wish.wanted);
        if self.desired.as_ref().is_some_and(wanted) {
            return;
        }
        self.stages.remove(&key);
        self.outbox.retain(|other| *other != key);
        if let Some(desired) = &mut self.desired {
            desired.wishes.remove(&key);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let report = (!self.reporting && self.outbox.waiting() > 0).then_some(self.report_not_before);
        self.due.front().map(|(due, _)| *due).into_iter().chain(report).min()
    }
}

#[cfg(test)]
mod tests;
