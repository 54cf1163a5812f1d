//! The allocator service: decides which devices serve which unit, for the shards it holds leases on, and commits the decisions.
//!
//! It follows the log (all inventory, all claims, all waiting units), so its memory is warm for every shard; leases only say what it decides.
//! A decision is true once its commit is: epochs, versions and the device rows are checked there.

mod config;
mod engine;
mod leases;
mod shell;

use std::sync::Arc;

use bus::Bus;
use follower::Follower;
use prometheus::Registry;
use store::{Committed, Store, StoreConfig, StoreError, Writer, WriterConfig};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::{Config, Policy};
use engine::{Engine, EngineLimits, Input, Stats};

/// The kinds that decide what fits, in the order in which they are loaded: what the others are read with comes first.
const KINDS: [&str; 7] = [
    store::GATES_KIND,
    "deviceclasses",
    "devicetaintrules",
    "nodes",
    "resourceslices",
    "resourceclaims",
    "units",
];

/// What an allocator needs.
#[derive(Clone)]
pub struct Deps {
    pub config: Config,
    pub store: Store,
    pub bus: Bus,
    pub registry: Registry,
}

/// Why an allocator could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AllocatorError {
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("the message bus cannot be used")]
    Bus(#[from] bus::BusError),
    #[error("the feature gates cannot be switched so")]
    Gates(#[from] resource_api::gates::GateError),
    #[error("metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
    #[error("a part of the allocator ended unexpectedly")]
    Ended,
}

/// Opens the connections; waits for neither server.
pub async fn connect(config: Config, registry: Registry) -> Result<Deps, AllocatorError> {
    let store = Store::connect(&StoreConfig {
        url: config.database_url.clone(),
        connections_max: config.connections_max,
        application: format!("dray-allocator {}", config.id),
    })?;
    let bus = Bus::connect(
        bus::BusConfig::new(config.nats_url.clone()),
        &format!("allocator {}", config.id),
    )
    .await?;
    Ok(Deps {
        config,
        store,
        bus,
        registry,
    })
}

/// Runs until `stop`, then finishes commits under way and lets the shards go.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), AllocatorError> {
    let stats = Stats::new(&deps.registry)?;
    let (inputs, engine_inputs) = mpsc::channel(shell::INPUTS_MAX);
    let (effects, engine_effects) = mpsc::channel(shell::EFFECTS_MAX);
    let mut tasks = JoinSet::new();

    let (announce, committed) = mpsc::channel::<Arc<Committed>>(follower::ANNOUNCE_QUEUE_MAX);
    tasks.spawn(follower::announce(deps.bus.clone(), deps.config.id.clone(), committed));
    let writer = Writer::spawn(
        deps.store.clone(),
        WriterConfig::new(deps.config.id.clone()),
        Some(announce),
        &mut tasks,
        stop.clone(),
    );

    let limits = EngineLimits {
        policy: deps.config.policy,
        ..EngineLimits::default()
    };
    let engine = Engine::new(limits, stats.clone());
    let thread = spawn_engine(engine, stats, engine_inputs, effects, stop.clone())?;
    tasks.spawn(shell::run_effects(deps.store.clone(), writer, engine_effects, inputs.clone()));

    let from = match load(&deps, &inputs, &stop).await {
        Ok(from) => from,
        // Told to stop before it was ready: what follows ends at once.
        Err(_) if stop.is_cancelled() => 0,
        Err(error) => {
            stop.cancel();
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
            return Err(error);
        }
    };
    let (position, seen) = watch::channel(0);
    let (events, batches) = mpsc::channel(follower::BATCHES_MAX);
    tasks.spawn(Follower::new(deps.store.clone(), deps.bus.clone(), &KINDS, from).run(events, stop.clone()));
    tasks.spawn(feed(batches, inputs.clone(), position));
    let keeper = leases::Keeper {
        store: deps.store.clone(),
        id: deps.config.id.clone(),
        ttl: deps.config.lease_ttl,
        position: seen,
        inputs,
    };
    tasks.spawn(keeper.run(stop.clone()));

    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        _ = tasks.join_next() => if stop.is_cancelled() { Ok(()) } else { Err(AllocatorError::Ended) },
    };
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    if thread.join().is_err() {
        return Err(AllocatorError::Ended);
    }
    deps.store.close().await;
    ended
}

/// The search runs on a thread of its own: it may take milliseconds, which the runtime's threads must not wait for.
fn spawn_engine(
    engine: Engine,
    stats: Stats,
    inputs: mpsc::Receiver<Input>,
    effects: mpsc::Sender<engine::Effect>,
    stop: CancellationToken,
) -> Result<std::thread::JoinHandle<()>, AllocatorError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| {
            tracing::error!(%error, "no runtime for the engine");
            AllocatorError::Ended
        })?;
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || runtime.block_on(shell::run_engine(engine, stats, inputs, effects, stop)))
        .map_err(|error| {
            tracing::error!(%error, "no thread for the engine");
            AllocatorError::Ended
        })
}

/// Reads everything that exists. Returns the log position from which on events complete it.
async fn load(deps: &Deps, inputs: &mpsc::Sender<Input>, stop: &CancellationToken) -> Result<u64, AllocatorError> {
    let mut pause = std::time::Duration::from_millis(50);
    loop {
        match load_once(deps, inputs).await {
            Ok(from) => return Ok(from),
            Err(AllocatorError::Store(error)) => tracing::warn!(error = %error, "the database does not answer yet"),
            Err(other) => return Err(other),
        }
        tokio::select! {
            () = stop.cancelled() => return Err(AllocatorError::Ended),
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(std::time::Duration::from_secs(2)),
        }
    }
}

async fn load_once(deps: &Deps, inputs: &mpsc::Sender<Input>) -> Result<u64, AllocatorError> {
    let Deps { store, config, .. } = deps;
    if !config.feature_gates.is_empty() {
        let (position, _) = store.apply_gates(&config.feature_gates, &config.id).await??;
        tracing::info!(position, settings = %config.feature_gates, "feature gates as asked for");
    }
    let mut from = None;
    for kind in KINDS {
        let (objects, position) = store.list_all(kind).await?;
        tracing::info!(kind, objects = objects.len(), "loaded");
        from = Some(from.map_or(position, |f: u64| f.min(position)));
        for chunk in objects.chunks(1_000) {
            inputs
                .send(Input::Loaded(chunk.to_vec()))
                .await
                .map_err(|_| AllocatorError::Ended)?;
        }
    }
    Ok(from.unwrap_or(0))
}

/// Events to the engine; their position to whoever waits for it.
async fn feed(mut batches: mpsc::Receiver<follower::Batch>, inputs: mpsc::Sender<Input>, position: watch::Sender<u64>) {
    while let Some(batch) = batches.recv().await {
        if inputs.send(Input::Events(batch.events)).await.is_err() {
            return;
        }
        position.send_replace(batch.position);
    }
}
