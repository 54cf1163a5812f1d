//! The ingest service: the front door. Serves `dray.v1` over gRPC; admits what comes in, commits it, and shows what is there and what changes.

mod admission;
mod auth;
mod config;
mod error;
mod gatekeeper;
mod grpc;
mod intake;
mod live;
mod metrics;
mod publication;
mod release;
mod rest;
mod slices;
mod submission;
mod violation;
mod waiters;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusConfig};
use follower::Follower;
use prometheus::Registry;
use resource_api::gates::GateError;
use resource_api::object::Kind;
use rpc::dray::v1::agents_server::AgentsServer;
use rpc::dray::v1::gates_server::GatesServer;
use rpc::dray::v1::log_server::LogServer;
use rpc::dray::v1::objects_server::ObjectsServer;
use rpc::dray::v1::pools_server::PoolsServer;
use rpc::dray::v1::units_server::UnitsServer;
use store::{Committed, Store, StoreConfig, StoreError, Writer, WriterConfig};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

pub use auth::credentials::AccessError;
pub use config::{Config, RestConfig};

use auth::credentials::Access;
use gatekeeper::Gatekeeper;
use grpc::Context;
use intake::Intake;
use live::Live;
use metrics::{CountCalls, Metrics};
use rest::{Caches, Rest};

/// Largest message that is read.
const MESSAGE_MAX_BYTES: usize = 4 << 20;
/// Largest pool that is published: some ten thousand devices.
const POOL_MESSAGE_MAX_BYTES: usize = 16 << 20;

/// What an ingest needs.
pub struct Deps {
    pub config: Config,
    pub store: Store,
    pub bus: Bus,
    pub registry: Registry,
    /// Bound already, so that its address is known before anything runs.
    pub listener: TcpListener,
    rest: Option<RestDeps>,
}

/// What the REST API needs besides.
struct RestDeps {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    access: Access,
}

/// Why an ingest could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("the message bus cannot be used")]
    Bus(#[from] bus::BusError),
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the feature gates cannot be switched so")]
    Gates(#[from] GateError),
    #[error("metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
    #[error("the gRPC server failed")]
    Serve(#[from] tonic::transport::Error),
    #[error("gRPC reflection cannot be set up")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("TLS cannot be set up")]
    Tls(#[from] chassis::tls::TlsError),
    #[error("it cannot be told who may call")]
    Access(#[from] AccessError),
    #[error("a part of the ingest ended unexpectedly")]
    Ended,
}

impl Deps {
    /// Where the REST API is served, if it is.
    pub fn rest_address(&self) -> Option<SocketAddr> {
        self.rest.as_ref().and_then(|rest| rest.listener.local_addr().ok())
    }

    /// Where gRPC is served.
    pub fn address(&self) -> Result<SocketAddr, IngestError> {
        self.listener.local_addr().map_err(|source| IngestError::Listen {
            address: self.config.listen,
            source,
        })
    }
}

/// Binds the address and opens the connections; waits for neither server.
pub async fn connect(config: Config, registry: Registry) -> Result<Deps, IngestError> {
    let store = Store::connect(&StoreConfig {
        url: config.database_url.clone(),
        connections_max: config.connections_max,
        application: format!("dray-ingest {}", config.id),
    })?;
    let bus = Bus::connect(BusConfig::new(config.nats_url.clone()), &format!("ingest {}", config.id)).await?;
    let listener = bind(config.listen).await?;
    let rest = match &config.rest {
        Some(rest) => Some(connect_rest(rest).await?),
        None => None,
    };
    Ok(Deps {
        config,
        store,
        bus,
        registry,
        listener,
        rest,
    })
}

async fn connect_rest(config: &RestConfig) -> Result<RestDeps, IngestError> {
    let tls = config
        .tls
        .as_ref()
        .map(|files| chassis::tls::acceptor(files, &["h2", "http/1.1"]));
    let access = config.access.as_deref().map(Access::read);
    Ok(RestDeps {
        listener: bind(config.listen).await?,
        tls: tls.transpose()?,
        access: access.transpose()?.unwrap_or_default(),
    })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, IngestError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| IngestError::Listen { address, source })
}

/// Runs until `stop`: then takes no more calls, finishes those under way and their commits.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), IngestError> {
    let Deps {
        config,
        store,
        bus,
        registry,
        listener,
        rest,
    } = deps;
    let metrics = Metrics::new(&registry)?;
    let Some(from) = head(&store, &stop).await else {
        return Ok(());
    };
    if !config.feature_gates.is_empty() {
        let (position, _) = store.apply_gates(&config.feature_gates, &config.id).await??;
        tracing::info!(position, settings = %config.feature_gates, "feature gates as asked for");
    }
    let gatekeeper = Gatekeeper::new(store.gates().await?);
    // What serves outlives what calls it: first the server ends, then the streams, then the writer and the follower.
    let end = CancellationToken::new();
    let mut parts = JoinSet::new();
    let (announce, committed) = mpsc::channel::<Arc<Committed>>(follower::ANNOUNCE_QUEUE_MAX);
    parts.spawn(follower::announce(bus.clone(), config.id.clone(), committed));
    let writer_config = WriterConfig {
        queue_max: config.writes_max,
        ..WriterConfig::new(config.id.clone())
    };
    let writer = Writer::spawn(store.clone(), writer_config, Some(announce), &mut parts, end.clone());
    let live = Live::new(config.waiters_max, metrics.clone());
    let (out, batches) = mpsc::channel(follower::BATCHES_MAX);
    let mut kinds = Kind::ALL.map(Kind::plural).to_vec();
    kinds.push(store::GATES_KIND);
    parts.spawn(Follower::new(store.clone(), bus.clone(), &kinds, from).run(out, end.clone()));
    parts.spawn(live.clone().run(batches, gatekeeper.clone()));

    let streams = TaskTracker::new();
    let context = Context {
        store: store.clone(),
        writer,
        live,
        gatekeeper,
        intake: Intake::new(),
        metrics,
        tasks: streams.clone(),
        stop: stop.clone(),
    };
    let caches = Caches::new(store.clone(), bus.clone(), end.clone());
    if let Some(rest) = rest {
        let is_open = rest.tls.is_none();
        let served = Rest::new(context.clone(), caches.clone(), rest.access, is_open);
        served.make_namespaces().await;
        streams.spawn(served.serve(rest.listener, rest.tls));
    }
    let ended = tokio::select! {
        served = serve(context, listener) => served,
        Some(_) = parts.join_next() => Err(IngestError::Ended),
    };
    stop.cancel();
    streams.close();
    streams.wait().await;
    end.cancel();
    caches.closed().await;
    while parts.join_next().await.is_some() {}
    bus.close().await;
    store.close().await;
    ended
}

/// The log's head, once the database answers; `None`: told to stop before.
async fn head(store: &Store, stop: &CancellationToken) -> Option<u64> {
    loop {
        match store.head().await {
            Ok(head) => return Some(head.sequence),
            Err(error) => tracing::warn!(error = %error, "the database does not answer yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(Duration::from_millis(300)) => {}
        }
    }
}

/// Serves until the context's `stop`, then until every call is answered.
async fn serve(context: Context, listener: TcpListener) -> Result<(), IngestError> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(rpc::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, ServingStatus::Serving).await;
    let stop = context.stop.clone();
    let shutdown = async move {
        stop.cancelled().await;
        set_health(&health, ServingStatus::NotServing).await;
    };
    Server::builder()
        .layer(CountCalls(context.metrics.clone()))
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .add_service(health_service)
        .add_service(reflection)
        .add_service(UnitsServer::new(grpc::UnitsService(context.clone())).max_decoding_message_size(MESSAGE_MAX_BYTES))
        .add_service(ObjectsServer::new(grpc::ObjectsService(context.clone())).max_decoding_message_size(MESSAGE_MAX_BYTES))
        .add_service(PoolsServer::new(grpc::PoolsService(context.clone())).max_decoding_message_size(POOL_MESSAGE_MAX_BYTES))
        .add_service(LogServer::new(grpc::LogService(context.clone())))
        .add_service(GatesServer::new(grpc::GatesService(context.clone())))
        .add_service(AgentsServer::new(grpc::AgentsService(context)).max_decoding_message_size(MESSAGE_MAX_BYTES))
        // An answer must not wait for the client's delayed acknowledgement of the one before.
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), shutdown)
        .await?;
    Ok(())
}

/// Of the process as a whole and of each service, as clients ask for either.
async fn set_health(health: &HealthReporter, status: ServingStatus) {
    let services = ["Units", "Objects", "Pools", "Log", "Gates", "Agents"].map(|service| format!("dray.v1.{service}"));
    for service in std::iter::once(String::new()).chain(services) {
        health.set_service_status(service, status).await;
    }
}
