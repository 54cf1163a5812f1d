//! The controller service: everything that follows from state. Any number run; one leads.
//!
//! - `relay`: announces commits whose announcement was lost.
//! - `node_reports`: records what agents say; frees devices once their node has let go.
//! - `retention`: keeps the log bounded.

mod config;
mod leader;
mod node_reports;
mod relay;
mod retention;

use std::sync::Arc;

use bus::Bus;
use prometheus::Registry;
use store::{Committed, Store, StoreConfig, StoreError, Writer, WriterConfig};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::Config;

/// What a controller needs.
#[derive(Clone)]
pub struct Deps {
    pub config: Config,
    pub store: Store,
    pub bus: Bus,
    pub registry: Registry,
}

/// Why a controller could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("the message bus cannot be used")]
    Bus(#[from] bus::BusError),
    #[error("a part of the controller ended unexpectedly")]
    Ended,
}

/// Opens the connections; waits for neither server.
pub async fn connect(config: Config, registry: Registry) -> Result<Deps, ControllerError> {
    let store = Store::connect(&StoreConfig::new(
        config.database_url.clone(),
        format!("dray-controller {}", config.id),
    ))?;
    let bus = Bus::connect(
        bus::BusConfig::new(config.nats_url.clone()),
        &format!("controller {}", config.id),
    )
    .await?;
    Ok(Deps {
        config,
        store,
        bus,
        registry,
    })
}

/// Runs until `stop`, then finishes what is under way.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), ControllerError> {
    let Deps { config, store, bus, .. } = deps;
    let mut tasks = JoinSet::new();
    let (announce, committed) = mpsc::channel::<Arc<Committed>>(follower::ANNOUNCE_QUEUE_MAX);
    tasks.spawn(follower::announce(bus.clone(), config.id.clone(), committed));
    let writer = Writer::spawn(
        store.clone(),
        WriterConfig::new(config.id.clone()),
        Some(announce),
        &mut tasks,
        stop.clone(),
    );

    let (leading, leads) = watch::channel(false);
    tasks.spawn(leader::run(
        store.clone(),
        config.id.clone(),
        config.leader_ttl,
        leading,
        stop.clone(),
    ));
    tasks.spawn(node_reports::run(store.clone(), writer.clone(), bus.clone(), stop.clone()));
    tasks.spawn(node_reports::sweep(store.clone(), writer, leads.clone(), stop.clone()));
    tasks.spawn(retention::run(store.clone(), config.clone(), leads.clone(), stop.clone()));
    tasks.spawn(relay::run(store.clone(), bus, config.id, leads, stop.clone()));

    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        _ = tasks.join_next() => if stop.is_cancelled() { Ok(()) } else { Err(ControllerError::Ended) },
    };
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    store.close().await;
    ended
}
