//! The connection: made in the background, kept for ever, watched.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions, Event};
use rand::Rng;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::BusError;
use crate::publish::{self, EventQueue};
use crate::stats::{BusStats, Counters};
use crate::streams;

/// Messages that wait in the client while the connection is down; then senders wait, and give up by their timeout.
const CLIENT_QUEUE_MAX: usize = 2_048;

/// Between two attempts to connect, at most. The first comes at once.
const RECONNECT_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long [`Bus::close`] waits for what is on its way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How to use NATS.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BusConfig {
    /// `nats://host:port`, several separated by commas.
    pub url: String,
    /// Where JetStream keeps events. Memory is enough: Postgres has them all.
    pub events_storage: EventStorage,
    /// Events older than this leave the stream (not Postgres).
    #[serde(with = "humantime_serde")]
    pub events_age_max: Duration,
    /// The stream's size; the oldest events leave first.
    pub events_bytes_max: u64,
    /// Messages that one subscription keeps for a slow reader; then the newest are lost, and found as gaps.
    pub subscription_queue_max: usize,
    /// How long a sender waits for room in the client.
    #[serde(with = "humantime_serde")]
    pub send_timeout: Duration,
}

/// Where JetStream keeps a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventStorage {
    /// Gone with the server process.
    Memory,
    /// Survives a restart of the server.
    File,
}

impl BusConfig {
    /// The defaults for a server at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            events_storage: EventStorage::Memory,
            events_age_max: Duration::from_secs(3_600),
            events_bytes_max: 256 << 20,
            subscription_queue_max: 4_096,
            send_timeout: Duration::from_millis(500),
        }
    }
}

/// A connection to NATS; cheap to clone. Works from the start, also while there is no server: messages wait or fail.
#[derive(Clone, Debug)]
pub struct Bus {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) config: BusConfig,
    pub(crate) counters: Arc<Counters>,
    pub(crate) events: EventQueue,
    connected: watch::Receiver<bool>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Bus {
    /// Starts to connect as `name` (which the server shows to its operator). Returns at once, connected or not.
    ///
    /// `Options` if the URL is wrong.
    pub async fn connect(config: BusConfig, name: &str) -> Result<Self, BusError> {
        let counters = Arc::new(Counters::default());
        let stream_wanted = Arc::new(Notify::new());
        let (connected_tx, connected) = watch::channel(false);
        let options =
            options(&config, name).event_callback(on_event(connected_tx, Arc::clone(&counters), Arc::clone(&stream_wanted)));
        let client = options
            .connect(config.url.as_str())
            .await
            .map_err(|source| BusError::Options {
                url: config.url.clone(),
                source,
            })?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let jetstream = ContextBuilder::new()
            .timeout(publish::ACK_TIMEOUT)
            .max_ack_inflight(publish::ACKS_OUTSTANDING_MAX)
            .build(client.clone());
        let keeper = streams::keep(jetstream.clone(), config.clone(), Arc::clone(&stream_wanted), stop.clone());
        tasks.spawn(keeper);
        let (events, queue) = EventQueue::new();
        tasks.spawn(publish::run(
            jetstream,
            queue,
            Arc::clone(&counters),
            stream_wanted,
            stop.clone(),
        ));
        tasks.close();
        let shared = Shared {
            client,
            config,
            counters,
            events,
            connected,
            tasks,
            stop,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Whether there is a connection, as a level to watch. A consumer that sees it come back should look at the log's
    /// head at once: it may have missed anything.
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.shared.connected.clone()
    }

    /// Counts since the start.
    pub fn stats(&self) -> BusStats {
        self.shared.counters.read()
    }

    /// Sends what is queued, then ends all subscriptions and the connection. Gives up after five seconds.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        let closing = async {
            self.shared.tasks.wait().await;
            if let Err(error) = self.shared.client.flush().await {
                tracing::debug!(%error, "the last messages may not have been sent");
            }
            if let Err(error) = self.shared.client.drain().await {
                tracing::debug!(%error, "the NATS connection was closed already");
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            tracing::debug!("closed without sending everything");
        }
    }
}

fn options(config: &BusConfig, name: &str) -> ConnectOptions {
    ConnectOptions::new()
        .name(name)
        .retry_on_initial_connect()
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_wait)
        .connection_timeout(Duration::from_secs(2))
        // A dead peer is noticed within two of these.
        .ping_interval(Duration::from_secs(5))
        .client_capacity(CLIENT_QUEUE_MAX)
        .subscription_capacity(config.subscription_queue_max)
        .request_timeout(Some(Duration::from_secs(2)))
}

/// Exponential from 10 ms with full jitter, so that all services do not come back in the same instant.
fn reconnect_wait(attempts: usize) -> Duration {
    if attempts <= 1 {
        return Duration::ZERO;
    }
    let exponent = u32::try_from(attempts).unwrap_or(u32::MAX).min(10);
    let bound = Duration::from_millis(10)
        .saturating_mul(1 << exponent)
        .min(RECONNECT_WAIT_MAX);
    bound.mul_f64(rand::rng().random_range(0.1..=1.0))
}

type Nothing = std::future::Ready<()>;

fn on_event(
    connected: watch::Sender<bool>,
    counters: Arc<Counters>,
    stream_wanted: Arc<Notify>,
) -> impl Fn(Event) -> Nothing + Send + Sync + 'static {
    move |event| {
        match event {
            Event::Connected => {
                tracing::info!("connected to NATS");
                counters.connects.add_one();
                connected.send_replace(true);
                // The server may be another one, or have lost its store.
                stream_wanted.notify_one();
            }
            Event::Disconnected | Event::Closed => {
                if connected.send_replace(false) {
                    tracing::warn!("connection to NATS lost");
                }
            }
            Event::SlowConsumer(subscription) => {
                counters.slow_consumers.add_one();
                tracing::warn!(
                    subscription,
                    "reading NATS messages too slowly: some were lost and will be read from Postgres"
                );
            }
            Event::ServerError(error) => tracing::warn!(%error, "NATS server reports an error"),
            Event::ClientError(error) => tracing::debug!(%error, "NATS client reports an error"),
            Event::LameDuckMode | Event::Draining => tracing::debug!(%event, "NATS connection state"),
        }
        std::future::ready(())
    }
}

pub(crate) type QueueReceiver = mpsc::Receiver<publish::Outgoing>;
