//! What is new, for those who wait: one follower of the log per process, a bounded broadcast for watchers, and waiters by unit.
//!
//! A slow watcher loses nothing: when the broadcast has moved on without it, it reads the log where it stopped.

use std::sync::Arc;

use follower::Batch;
use store::{EventRow, Operation, Store};
use tokio::sync::{broadcast, mpsc};
use tonic::Status;
use uuid::Uuid;

use crate::error;
use crate::gatekeeper::Gatekeeper;
use crate::metrics::Metrics;
use crate::waiters::{Waiter, Waiters};

/// Batches that a watcher may be behind before it reads the log instead. A batch of a large commit is a megabyte.
const BROADCAST_MAX: usize = 128;
/// Events read from the log at once.
const READ_MAX: u32 = 500;

/// Shared by all handlers of a process; cheap to clone.
#[derive(Clone)]
pub(crate) struct Live {
    batches: broadcast::Sender<Arc<Batch>>,
    waiters: Waiters,
    metrics: Metrics,
}

/// The client has left.
struct Left;

impl Live {
    pub(crate) fn new(waiters_max: usize, metrics: Metrics) -> Self {
        let (batches, _) = broadcast::channel(BROADCAST_MAX);
        Self {
            batches,
            waiters: Waiters::new(waiters_max, metrics.waiters.clone()),
            metrics,
        }
    }

    /// Hands on what the follower gives, until it ends.
    pub(crate) async fn run(self, mut batches: mpsc::Receiver<Batch>, gatekeeper: Gatekeeper) {
        while let Some(batch) = batches.recv().await {
            if batch.kind.as_ref() == store::GATES_KIND {
                batch.events.iter().for_each(|event| gatekeeper.on_event(event));
            }
            self.metrics.position.set(i64::try_from(batch.position).unwrap_or(i64::MAX));
            self.metrics.read_back.inc_by(u64::from(batch.read_back));
            if batch.kind.as_ref() == "units" {
                self.waiters.resolve(batch.events.iter().filter(|event| is_settled(event)));
            }
            // Nobody listens: nobody misses it.
            drop(self.batches.send(Arc::new(batch)));
        }
    }

    /// Registers interest in the unit's next event that ends its waiting. Register first, then read the unit: nothing falls in between.
    ///
    /// Error: too many are waiting already.
    pub(crate) fn wait_for(&self, unit: Uuid) -> Result<Waiter, Status> {
        self.waiters
            .register(unit)
            .ok_or_else(|| error::overloaded("too many callers wait for units; watch units instead"))
    }

    /// Sends every event of `kind` after `after` to `out`, in order, until its client leaves. `make`: the message, if it is for this client.
    pub(crate) async fn follow_kind<T>(
        &self,
        store: &Store,
        kind: &'static str,
        after: u64,
        make: impl Fn(&EventRow) -> Option<T>,
        out: &mpsc::Sender<Result<T, Status>>,
    ) -> Result<(), Status> {
        let mut position = after;
        loop {
            let mut batches = self.batches.subscribe();
            position = match catch_up(store, &[kind], position, &make, out).await? {
                Ok(reached) => reached,
                Err(Left) => return Ok(()),
            };
            loop {
                let batch = match batches.recv().await {
                    Ok(batch) => batch,
                    Err(broadcast::error::RecvError::Lagged(_)) => break, // read the log where we are
                    Err(broadcast::error::RecvError::Closed) => return Err(error::stopping()),
                };
                if batch.kind.as_ref() == kind {
                    for event in batch.events.iter().filter(|event| event.sequence > position) {
                        if send(&make, event, out).await.is_err() {
                            return Ok(());
                        }
                    }
                    position = position.max(batch.last);
                }
            }
        }
    }

    /// Sends every event of `kinds` (empty: all) after `after`, in the order of the whole log. News only say that there is something to read.
    pub(crate) async fn follow_log<T>(
        &self,
        store: &Store,
        kinds: &[&str],
        after: u64,
        make: impl Fn(&EventRow) -> Option<T>,
        out: &mpsc::Sender<Result<T, Status>>,
    ) -> Result<(), Status> {
        let mut position = after;
        let mut batches = self.batches.subscribe();
        loop {
            position = match catch_up(store, kinds, position, &make, out).await? {
                Ok(reached) => reached,
                Err(Left) => return Ok(()),
            };
            loop {
                match batches.recv().await {
                    Ok(batch) if batch.last <= position => {}
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => break,
                    Err(broadcast::error::RecvError::Closed) => return Err(error::stopping()),
                }
            }
        }
    }
}

/// The unit no longer waits.
fn is_settled(event: &EventRow) -> bool {
    event.operation == Operation::Deleted || !event.body.contains("\"phase\":\"Pending\"")
}

/// Sends what the log has, and returns up to where.
async fn catch_up<T>(
    store: &Store,
    kinds: &[&str],
    after: u64,
    make: &impl Fn(&EventRow) -> Option<T>,
    out: &mpsc::Sender<Result<T, Status>>,
) -> Result<Result<u64, Left>, Status> {
    let mut position = after;
    loop {
        let (events, reached) = store
            .events_after(kinds, position, READ_MAX)
            .await
            .map_err(error::from_store)?;
        // After the events: what retention removed before they were read is below this horizon.
        let head = store.head().await.map_err(error::from_store)?;
        if position < head.horizon {
            return Err(error::expired(position, head.horizon));
        }
        for event in &events {
            if let Err(left) = send(make, event, out).await {
                return Ok(Err(left));
            }
        }
        position = position.max(reached);
        if position >= head.sequence {
            return Ok(Ok(position));
        }
    }
}

async fn send<T>(
    make: &impl Fn(&EventRow) -> Option<T>,
    event: &EventRow,
    out: &mpsc::Sender<Result<T, Status>>,
) -> Result<(), Left> {
    match make(event) {
        Some(message) => out.send(Ok(message)).await.map_err(|_| Left),
        None => Ok(()),
    }
}
