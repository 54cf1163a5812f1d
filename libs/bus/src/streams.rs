//! The one JetStream stream, `DRAY_EVENTS`: made when it is missing, and made again when it has vanished.
//!
//! It serves whoever wants to look back a little without asking Postgres; nothing of ours depends on it being complete.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use rand::Rng;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::connect::{BusConfig, EventStorage};
use crate::subjects;

/// The stream's name.
pub const EVENTS_STREAM: &str = "DRAY_EVENTS";

/// Between two attempts to make the stream, on average.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Makes or updates the stream whenever somebody asks, until `stop`.
pub(crate) async fn keep(jetstream: Context, config: BusConfig, wanted: Arc<Notify>, stop: CancellationToken) {
    let mut complained = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = wanted.notified() => {}
        }
        // Its own timeout is that of the context. Racing it against `stop` is safe: the request is idempotent.
        let made = tokio::select! {
            () = stop.cancelled() => return,
            made = jetstream.create_or_update_stream(events_stream(&config)) => made,
        };
        match made {
            Ok(info) => {
                complained = false;
                tracing::debug!(messages = info.state.messages, "stream {EVENTS_STREAM} is there");
            }
            Err(error) if complained => tracing::debug!(%error, "stream {EVENTS_STREAM} is still not there"),
            Err(error) => {
                complained = true;
                tracing::warn!(%error, "stream {EVENTS_STREAM} cannot be made; live delivery goes on without it");
            }
        }
        if complained {
            wanted.notify_one();
            let wait = RETRY_EVERY.mul_f64(rand::rng().random_range(0.5..=1.5));
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

fn events_stream(config: &BusConfig) -> Config {
    Config {
        name: EVENTS_STREAM.to_owned(),
        description: Some("Dray's committed events; Postgres has them all".to_owned()),
        subjects: vec![subjects::all_events().as_str().to_owned()],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: match config.events_storage {
            EventStorage::Memory => StorageType::Memory,
            EventStorage::File => StorageType::File,
        },
        max_age: config.events_age_max,
        max_bytes: i64::try_from(config.events_bytes_max).unwrap_or(i64::MAX),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_message_size: -1,
        num_replicas: 1,
        // We never set message ids: consumers tell duplicates by their sequences.
        duplicate_window: Duration::from_secs(1),
        ..Config::default()
    }
}
