//! Sending. Events go through a bounded queue and a task of their own, as the committer must never wait for NATS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use prost::Message;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::connect::{Bus, QueueReceiver};
use crate::error::BusError;
use crate::messages::{EventBatch, Work, WorkUnit};
use crate::stats::Counters;
use crate::subjects::{self, Topic};
use crate::trace;

/// Event messages sent and not yet acknowledged by JetStream. More than the round trip needs; fewer than hurt.
pub(crate) const ACKS_OUTSTANDING_MAX: usize = 256;

/// After this, an acknowledgement is counted as missing.
pub(crate) const ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Event messages that wait for the task; a second of commits at full speed.
const QUEUE_MAX: usize = 1_024;

/// Bytes of event messages that wait for the task.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Until a server has told its own, its default is assumed (`max_payload` of nats-server).
const MAX_PAYLOAD_DEFAULT: usize = 1 << 20;

/// An encoded message on its way to the task.
#[derive(Debug)]
pub(crate) struct Outgoing {
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
    /// The queue's byte count, given back when this is dropped.
    _room: Room,
}

/// Bytes taken from the queue's allowance.
#[derive(Debug)]
struct Room {
    bytes: usize,
    taken: Arc<AtomicUsize>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The sending end of the events' queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    sender: mpsc::Sender<Outgoing>,
    taken: Arc<AtomicUsize>,
}

impl EventQueue {
    pub(crate) fn new() -> (Self, QueueReceiver) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (
            Self {
                sender,
                taken: Arc::default(),
            },
            receiver,
        )
    }

    /// Whether there was room.
    fn push(&self, subject: String, headers: HeaderMap, payload: Bytes) -> bool {
        let bytes = payload.len();
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        let room = Room {
            bytes,
            taken: Arc::clone(&self.taken),
        };
        let has_room = before == 0 || before.saturating_add(bytes) <= QUEUE_BYTES_MAX;
        has_room
            && self
                .sender
                .try_send(Outgoing {
                    subject,
                    headers,
                    payload,
                    _room: room,
                })
                .is_ok()
    }
}

impl Bus {
    /// Announces a commit's events of one kind. Never waits and never fails: when the queue is full the batch is
    /// dropped and counted, and consumers read it from Postgres.
    ///
    /// Above half of the server's `max_payload`, only the range is sent.
    pub fn publish_events(&self, batch: &EventBatch, traceparent: Option<&str>) {
        let payload = encode_events(batch, self.max_payload() / 2);
        let subject = subjects::event(&batch.kind);
        if !self
            .shared
            .events
            .push(subject.as_str().to_owned(), trace::headers(traceparent), payload)
        {
            self.shared.counters.events_dropped.add_one();
        }
    }

    /// Tells home shard `shard` of new units, in as many messages as their size asks for.
    ///
    /// Errors cost time only: the shard finds its units by sweeping.
    pub async fn publish_work(&self, shard: u16, units: Vec<WorkUnit>) -> Result<(), BusError> {
        for work in Work::split(units, self.max_payload() / 2) {
            self.publish(&subjects::work(shard), &work, None).await?;
        }
        Ok(())
    }

    /// Sends a message to whoever listens now.
    ///
    /// `TooLarge`; `Unavailable` if the client has no room for it within the configured time.
    pub async fn publish<M: Message>(&self, topic: &Topic<M>, message: &M, traceparent: Option<&str>) -> Result<(), BusError> {
        let payload = self.encode(topic.as_str(), message)?;
        self.send(topic.as_str().to_owned(), trace::headers(traceparent), payload)
            .await
    }

    pub(crate) async fn send(&self, subject: String, headers: HeaderMap, payload: Bytes) -> Result<(), BusError> {
        let sending = self.shared.client.publish_with_headers(subject.clone(), headers, payload);
        match tokio::time::timeout(self.shared.config.send_timeout, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(BusError::Unavailable {
                subject,
                source: Some(Box::new(error)),
            }),
            Err(_elapsed) => Err(BusError::Unavailable { subject, source: None }),
        }
    }

    pub(crate) fn encode<M: Message>(&self, subject: &str, message: &M) -> Result<Bytes, BusError> {
        let (size_bytes, max_bytes) = (message.encoded_len(), self.max_payload());
        if size_bytes > max_bytes {
            return Err(BusError::TooLarge {
                subject: subject.to_owned(),
                size_bytes,
                max_bytes,
            });
        }
        Ok(message.encode_to_vec().into())
    }

    /// The largest message the server takes, headers included; see `max_payload` in its configuration.
    pub fn max_payload(&self) -> usize {
        match self.shared.client.max_payload() {
            0 => MAX_PAYLOAD_DEFAULT,
            told => told,
        }
    }
}

/// The batch as it goes out: whole up to `max_bytes`, else its range.
fn encode_events(batch: &EventBatch, max_bytes: usize) -> Bytes {
    if batch.encoded_len() <= max_bytes {
        return batch.encode_to_vec().into();
    }
    let EventBatch {
        kind,
        first,
        last,
        prev,
        writer,
        ..
    } = batch;
    let (kind, writer) = (kind.clone(), writer.clone());
    let range = EventBatch {
        kind,
        first: *first,
        last: *last,
        prev: *prev,
        events: Vec::new(),
        range_only: true,
        writer,
    };
    range.encode_to_vec().into()
}

type Acks = FuturesUnordered<BoxFuture<'static, Result<(), PublishError>>>;

/// Sends queued events in order until `stop`, then what is left in the queue; ends when all are acknowledged or late.
pub(crate) async fn run(
    jetstream: Context,
    mut queue: QueueReceiver,
    counters: Arc<Counters>,
    stream_wanted: Arc<Notify>,
    stop: CancellationToken,
) {
    let mut acks = Acks::new();
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                queue.close();
            }
            Some(ack) = acks.next() => on_ack(ack, &counters, &stream_wanted),
            next = queue.recv(), if acks.len() < ACKS_OUTSTANDING_MAX => match next {
                Some(outgoing) => send_event(&jetstream, outgoing, &mut acks, &counters).await,
                None if acks.is_empty() => return,
                // The queue is closed and empty: only acknowledgements are left to wait for.
                None => while let Some(ack) = acks.next().await {
                    on_ack(ack, &counters, &stream_wanted);
                },
            },
        }
    }
}

async fn send_event(jetstream: &Context, outgoing: Outgoing, acks: &mut Acks, counters: &Counters) {
    let Outgoing {
        subject,
        headers,
        payload,
        _room,
    } = outgoing;
    match jetstream.publish_with_headers(subject, headers, payload).await {
        Ok(ack) => {
            counters.events_published.add_one();
            acks.push(Box::pin(async move { ack.await.map(drop) }));
        }
        Err(error) => {
            counters.events_dropped.add_one();
            tracing::debug!(%error, "event batch not sent");
        }
    }
}

fn on_ack(ack: Result<(), PublishError>, counters: &Counters, stream_wanted: &Notify) {
    let Err(error) = ack else { return };
    counters.events_unacknowledged.add_one();
    // Nobody answered for the subject: the stream is gone.
    if error.kind() == PublishErrorKind::StreamNotFound {
        stream_wanted.notify_one();
    }
    tracing::debug!(%error, "event batch not acknowledged");
}

#[cfg(test)]
mod tests;
