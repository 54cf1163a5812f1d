//! The follower's loop: arrivals and polled heads into the pure sequencer, reads for what it misses, batches out.

use std::sync::Arc;
use std::time::Duration;

use bus::messages::{EventBatch, EventRecord, Operation};
use bus::order::{NeedRead, Sequencer};
use bus::{Bus, subjects};
use store::{EventRow, Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Batches that wait for the consumer; when full, the follower waits, and NATS drops what it cannot keep: a slow consumer ends up
/// reading Postgres at its own pace.
pub const BATCHES_MAX: usize = 256;
/// How long an announcement may be late before its events are read.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often the heads are polled: the longest time for which a wholly lost announcement stays unseen.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Events read at once.
const READ_MAX: u32 = 2_000;
/// Pauses between reads that fail, doubling up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Events of one kind, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Plural resource name; empty in a batch without events, which only carries a new position.
    pub kind: Arc<str>,
    pub events: Vec<EventRow>,
    /// All events of all followed kinds up to here have been handed out, this batch included.
    pub position: u64,
    /// The last sequence of this kind before these events, and the last that these events complete.
    pub prev: u64,
    pub last: u64,
    /// They had to be read from Postgres: their announcement was lost or late.
    pub read_back: bool,
}

/// Follows some kinds from a position on.
pub struct Follower {
    store: Store,
    bus: Bus,
    kinds: Vec<String>,
    sequencer: Sequencer,
    start: Instant,
    /// The position that the consumer was told last.
    told: u64,
    /// Reads that failed in a row.
    failures: u32,
}

/// Why following ended.
#[derive(Debug)]
enum Ended {
    /// Nobody receives any more.
    Unwanted,
    /// The log's horizon has passed the position: what lies between can never be handed out.
    Overtaken { position: u64, horizon: u64 },
}

enum Arrived {
    Batch(Box<EventBatch>),
    /// The heads should be looked at.
    Poll,
    Nothing,
}

enum ReadError {
    Store(StoreError),
    Overtaken { horizon: u64 },
}

impl Follower {
    /// Follows `kinds`; the caller has everything up to `from`.
    pub fn new(store: Store, bus: Bus, kinds: &[&str], from: u64) -> Self {
        Self {
            store,
            bus,
            kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            sequencer: Sequencer::new(kinds.iter().map(|kind| (*kind, from)), PATIENCE),
            start: Instant::now(),
            told: from,
            failures: 0,
        }
    }

    /// Hands out batches until `stop` or until nobody receives them.
    ///
    /// `out` is also closed when the log's horizon has overtaken the position; the consumer must then load everything anew.
    pub async fn run(self, out: mpsc::Sender<Batch>, stop: CancellationToken) {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = self.follow(&out) => ended,
        };
        if let Ended::Overtaken { position, horizon } = ended {
            tracing::error!(
                position,
                horizon,
                "the log was shortened before it was read up to here; everything must be loaded anew"
            );
        }
    }

    async fn follow(mut self, out: &mpsc::Sender<Batch>) -> Ended {
        let mut inbox = self.bus.inbox::<EventBatch>();
        let topics: Vec<_> = self.kinds.iter().map(|kind| subjects::event(kind)).collect();
        let mut connected = self.bus.connected();
        let mut listening = false;
        let mut poll = tokio::time::interval(POLL_EVERY);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if !listening {
                match inbox.listen_to(&topics).await {
                    Ok(()) => listening = true,
                    Err(error) => tracing::debug!(%error, "not listening yet; reading the log meanwhile"),
                }
            }
            let due = self.sequencer.next_due().map(|at| self.start + at);
            let arrived = tokio::select! {
                biased;
                received = inbox.next() => Arrived::Batch(Box::new(received.message)),
                () = sleep_until(due) => Arrived::Nothing,
                _ = poll.tick() => Arrived::Poll,
                // What was sent while there was no connection never comes.
                Ok(()) = connected.changed() => Arrived::Poll,
            };
            if let Err(ended) = self.on_arrival(arrived, out).await {
                return ended;
            }
        }
    }

    async fn on_arrival(&mut self, arrived: Arrived, out: &mpsc::Sender<Batch>) -> Result<(), Ended> {
        match arrived {
            Arrived::Batch(batch) => {
                let now = self.now();
                let ready = self.sequencer.on_batch(readable(*batch), now);
                self.hand_out(ready, false, out).await?;
            }
            Arrived::Poll => self.poll_heads().await,
            Arrived::Nothing => {}
        }
        self.read_due(out).await?;
        self.tell_position(out).await
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn poll_heads(&mut self) {
        match self.store.kind_heads().await {
            Ok((kinds, head)) => {
                let now = self.now();
                self.sequencer
                    .on_heads(kinds.iter().map(|(kind, seq)| (kind.as_str(), *seq)), head, now);
            }
            Err(error) => tracing::warn!(error = %error, "the log's heads cannot be read; trying again"),
        }
    }

    /// Reads what is missing and due.
    async fn read_due(&mut self, out: &mpsc::Sender<Batch>) -> Result<(), Ended> {
        loop {
            let due = self.sequencer.due_reads(self.now());
            if due.is_empty() {
                return Ok(());
            }
            for gap in due {
                match self.read(&gap).await {
                    Ok((complete_to, records)) => {
                        self.failures = 0;
                        let now = self.now();
                        let ready = self.sequencer.on_read(&gap.kind, complete_to, records, now);
                        self.hand_out(ready, true, out).await?;
                    }
                    Err(ReadError::Overtaken { horizon }) => {
                        return Err(Ended::Overtaken {
                            position: gap.after,
                            horizon,
                        });
                    }
                    Err(ReadError::Store(error)) => {
                        tracing::warn!(kind = gap.kind, after = gap.after, error = %error, "a gap cannot be read; trying again");
                        self.failures += 1;
                        let now = self.now();
                        self.sequencer.on_read_failed(&gap.kind, now);
                        // The sequencer's patience is short; a database that is away needs more.
                        tokio::time::sleep(pause(self.failures)).await;
                    }
                }
            }
        }
    }

    async fn read(&self, gap: &NeedRead) -> Result<(u64, Vec<EventRecord>), ReadError> {
        let (rows, complete_to) = self
            .store
            .events_after(&[gap.kind.as_str()], gap.after, READ_MAX)
            .await
            .map_err(ReadError::Store)?;
        // After the events: what retention removed before they were read is below this horizon.
        let horizon = self.store.head().await.map_err(ReadError::Store)?.horizon;
        if gap.after < horizon {
            return Err(ReadError::Overtaken { horizon });
        }
        Ok((complete_to, rows.iter().map(crate::announce::record_of_row).collect()))
    }

    /// Kinds in which nothing happens move on with the heads: an empty batch says so.
    async fn tell_position(&mut self, out: &mpsc::Sender<Batch>) -> Result<(), Ended> {
        let position = self.sequencer.position();
        if position <= self.told {
            return Ok(());
        }
        self.told = position;
        let nothing = Batch {
            kind: "".into(),
            events: Vec::new(),
            position,
            prev: position,
            last: position,
            read_back: false,
        };
        out.send(nothing).await.map_err(|_| Ended::Unwanted)
    }

    /// Only with the last of the batches is everything up to the sequencer's position handed out.
    async fn hand_out(&mut self, ready: Vec<EventBatch>, read_back: bool, out: &mpsc::Sender<Batch>) -> Result<(), Ended> {
        let n_batches = ready.len();
        for (index, batch) in ready.into_iter().enumerate() {
            if index + 1 == n_batches {
                self.told = self.sequencer.position();
            }
            // Batches that came early and were freed by the read have a writer; the read itself has none.
            let read_back = read_back && batch.writer.is_empty();
            let kind: Arc<str> = batch.kind.as_str().into();
            let (prev, last) = (batch.prev, batch.last);
            let events: Vec<EventRow> = batch.events.into_iter().filter_map(|record| row_of(&kind, record)).collect();
            let batch = Batch {
                kind,
                events,
                position: self.told,
                prev,
                last,
                read_back,
            };
            out.send(batch).await.map_err(|_| Ended::Unwanted)?;
        }
        Ok(())
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Exponential with jitter, so that the followers of an installation do not come back in one instant.
fn pause(failures: u32) -> Duration {
    let bound = PAUSE_FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(8))
        .min(PAUSE_MAX);
    bound.mul_f64(rand::random_range(0.5..=1.0))
}

/// The batch, or only its range if a record in it says something that this version does not know: the log says it in our words.
fn readable(mut batch: EventBatch) -> EventBatch {
    if !batch
        .events
        .iter()
        .all(|record| operation_of(record).is_some() && record.uid.parse::<Uuid>().is_ok())
    {
        tracing::warn!(
            kind = batch.kind,
            first = batch.first,
            last = batch.last,
            "an announced event cannot be read; reading the log"
        );
        batch.events.clear();
        batch.range_only = true;
    }
    batch
}

fn operation_of(record: &EventRecord) -> Option<store::Operation> {
    match Operation::try_from(record.operation).ok()? {
        Operation::Unspecified => None,
        Operation::Added => Some(store::Operation::Added),
        Operation::Modified => Some(store::Operation::Modified),
        Operation::Deleted => Some(store::Operation::Deleted),
    }
}

/// `None` never happens: what arrived was checked to be [`readable`], and what was read was written from rows.
fn row_of(kind: &Arc<str>, record: EventRecord) -> Option<EventRow> {
    let text = |text: String| (!text.is_empty()).then(|| Arc::from(text));
    Some(EventRow {
        sequence: record.sequence,
        kind: kind.clone(),
        operation: operation_of(&record)?,
        uid: record.uid.parse().ok()?,
        namespace: record.namespace.into(),
        name: record.name.into(),
        at_ms: record.time_ms,
        body: record.body.into(),
        cause: text(record.cause),
        trace: text(record.traceparent),
        writer: None,
    })
}
