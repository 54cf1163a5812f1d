//! Commits to the bus. Nothing waits for it, and nothing depends on it but speed: readers close gaps from the log.

use std::sync::Arc;

use bus::Bus;
use bus::messages::{EventBatch, EventRecord, Operation};
use store::{Committed, CommittedEvent, EventRow, KindBatch};
use tokio::sync::mpsc;

/// Commits that wait to be announced; beyond it they are left to the relay.
pub const ANNOUNCE_QUEUE_MAX: usize = 1_024;

/// Announces commits until the writer that makes them is gone.
pub async fn announce(bus: Bus, writer: String, mut committed: mpsc::Receiver<Arc<Committed>>) {
    while let Some(commit) = committed.recv().await {
        for kind in &commit.kinds {
            let trace = kind.events.iter().find_map(|event| event.trace.as_deref());
            bus.publish_events(&batch_of(&commit, kind, &writer), trace);
        }
    }
}

fn batch_of(commit: &Committed, kind: &KindBatch, writer: &str) -> EventBatch {
    EventBatch {
        kind: kind.kind.to_string(),
        first: commit.first,
        last: commit.last,
        prev: kind.prev,
        events: kind.events.iter().map(|event| record_of(event, commit.at_ms)).collect(),
        range_only: false,
        writer: writer.to_owned(),
    }
}

fn record_of(event: &CommittedEvent, at_ms: i64) -> EventRecord {
    EventRecord {
        sequence: event.sequence,
        operation: operation(event.operation).into(),
        namespace: event.namespace.to_string(),
        name: event.name.to_string(),
        uid: event.uid.to_string(),
        body: event.body.to_string(),
        time_ms: at_ms,
        cause: event.cause.as_deref().unwrap_or_default().to_owned(),
        traceparent: event.trace.as_deref().unwrap_or_default().to_owned(),
    }
}

/// Events read from the log, of one kind and ascending, as a batch that follows `prev`.
pub fn to_batch(kind: &str, prev: u64, last: u64, rows: &[EventRow], writer: &str) -> EventBatch {
    EventBatch {
        kind: kind.to_owned(),
        first: rows.first().map_or(last, |row| row.sequence),
        last,
        prev,
        events: rows.iter().map(record_of_row).collect(),
        range_only: false,
        writer: writer.to_owned(),
    }
}

pub(crate) fn record_of_row(row: &EventRow) -> EventRecord {
    EventRecord {
        sequence: row.sequence,
        operation: operation(row.operation).into(),
        namespace: row.namespace.to_string(),
        name: row.name.to_string(),
        uid: row.uid.to_string(),
        body: row.body.to_string(),
        time_ms: row.at_ms,
        cause: row.cause.as_deref().unwrap_or_default().to_owned(),
        traceparent: row.trace.as_deref().unwrap_or_default().to_owned(),
    }
}

fn operation(operation: store::Operation) -> Operation {
    match operation {
        store::Operation::Added => Operation::Added,
        store::Operation::Modified => Operation::Modified,
        store::Operation::Deleted => Operation::Deleted,
    }
}
