//! Puts a consumer's view of the log in order: batches arrive late, twice, swapped or not at all, and each event of the
//! kinds it follows leaves exactly once, in sequence. Pure: time comes in as an argument, reading is the caller's.
//!
//! Per kind it keeps a position P, "all events of this kind up to P have left". A batch fits when `prev <= P`: no event
//! of the kind lies between. One that does not fit waits in a small buffer for what is missing, and after a while the
//! caller is told to read the gap from Postgres.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::messages::{EventBatch, EventRecord};

/// Early batches kept per kind. A full buffer drops the newest, which is then read like any other gap.
const EARLY_BATCHES_MAX: usize = 64;

/// A part of the log that must be read from Postgres: events of `kind` after `after`, at least up to `up_to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedRead {
    /// Plural resource name.
    pub kind: String,
    /// The last sequence that is not needed.
    pub after: u64,
    /// The last sequence that is; reading on to the head is welcome.
    pub up_to: u64,
}

/// Orders the batches of the kinds it was made for. See the module's text.
#[derive(Clone, Debug)]
pub struct Sequencer {
    kinds: BTreeMap<String, Kind>,
    patience: Duration,
}

#[derive(Clone, Debug, Default)]
struct Kind {
    /// All events of this kind up to here have left.
    position: u64,
    /// Something of this kind is known to exist up to here.
    known: u64,
    /// Batches that wait for what comes before them, by `first`; never `range_only`.
    early: BTreeMap<u64, EventBatch>,
    /// From when on what is missing is to be read; `None` while nothing is missing.
    due_at: Option<Duration>,
    /// Asked for and not answered yet.
    reading: bool,
}

impl Sequencer {
    /// Follows kinds, each from a position up to which the caller has all its events (0: nothing), e.g. from a list. Kinds
    /// that were listed at different heads start at different positions.
    ///
    /// `patience`: how long a missing batch may be on its way before it is read, e.g. 50 ms.
    pub fn new<K: Into<String>>(starts: impl IntoIterator<Item = (K, u64)>, patience: Duration) -> Self {
        let start = |position| Kind {
            position,
            known: position,
            ..Kind::default()
        };
        Self {
            kinds: starts
                .into_iter()
                .map(|(kind, position)| (kind.into(), start(position)))
                .collect(),
            patience,
        }
    }

    /// A batch has arrived. Returns what can be applied now, in order; nothing if it is old, early or not followed.
    pub fn on_batch(&mut self, batch: EventBatch, now: Duration) -> Vec<EventBatch> {
        let Some(kind) = self.kinds.get_mut(&batch.kind) else {
            return Vec::new();
        };
        if batch.last <= kind.position {
            return Vec::new();
        }
        kind.known = kind.known.max(batch.last);
        if batch.range_only {
            // It will never arrive whole: there is nothing to be patient for.
            kind.due_at = Some(now);
        } else {
            kind.keep(batch);
        }
        kind.take_fitting(now + self.patience)
    }

    /// The heads have been polled: the last sequence of each kind that has any, and of the whole log, in one snapshot.
    ///
    /// Kinds without newer events move up to the head; others are read when their batches don't come.
    pub fn on_heads<'h>(&mut self, heads: impl IntoIterator<Item = (&'h str, u64)>, head: u64, now: Duration) {
        let heads: BTreeMap<&str, u64> = heads.into_iter().collect();
        for (name, kind) in &mut self.kinds {
            let last = heads.get(name.as_str()).copied().unwrap_or(0);
            if last <= kind.position {
                kind.position = kind.position.max(head);
                kind.known = kind.known.max(head);
            } else {
                kind.known = kind.known.max(last);
            }
            kind.note_missing(now + self.patience);
        }
    }

    /// The gaps that have lasted longer than the patience. Each is reported once, until it is answered by
    /// [`Sequencer::on_read`] or [`Sequencer::on_read_failed`].
    pub fn due_reads(&mut self, now: Duration) -> Vec<NeedRead> {
        let mut due = Vec::new();
        for (name, kind) in &mut self.kinds {
            if !kind.reading && kind.due_at.is_some_and(|due_at| due_at <= now) {
                kind.reading = true;
                due.push(NeedRead {
                    kind: name.clone(),
                    after: kind.position,
                    up_to: kind.gap_end(),
                });
            }
        }
        due
    }

    /// When [`Sequencer::due_reads`] is next worth a call, if nothing else happens.
    pub fn next_due(&self) -> Option<Duration> {
        self.kinds
            .values()
            .filter(|kind| !kind.reading)
            .filter_map(|kind| kind.due_at)
            .min()
    }

    /// A gap has been read: `events` are all events of `kind` after [`NeedRead::after`] up to `complete_to`, ascending.
    ///
    /// Returns what can be applied now, in order. A read may end before `up_to` (the rest is due at once) or after it.
    pub fn on_read(&mut self, kind: &str, complete_to: u64, events: Vec<EventRecord>, now: Duration) -> Vec<EventBatch> {
        let name = kind.to_owned();
        let Some(kind) = self.kinds.get_mut(kind) else {
            return Vec::new();
        };
        kind.reading = false;
        kind.known = kind.known.max(complete_to);
        let read = EventBatch {
            kind: name,
            first: kind.position + 1,
            last: complete_to,
            prev: kind.position,
            events,
            range_only: false,
            writer: String::new(),
        };
        let mut fitting: Vec<EventBatch> = kind.advance(read).into_iter().collect();
        fitting.extend(kind.take_fitting(now + self.patience));
        fitting
    }

    /// A gap could not be read; it becomes due again after the patience. The caller adds its own backoff.
    pub fn on_read_failed(&mut self, kind: &str, now: Duration) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.reading = false;
            kind.due_at = kind.due_at.map(|_| now + self.patience);
        }
    }

    /// Up to where all events of `kind` have left; `None` if it is not followed.
    pub fn position_of(&self, kind: &str) -> Option<u64> {
        self.kinds.get(kind).map(|kind| kind.position)
    }

    /// Up to where all events of all followed kinds have left.
    pub fn position(&self) -> u64 {
        self.kinds.values().map(|kind| kind.position).min().unwrap_or(0)
    }
}

impl Kind {
    /// Takes an early or fitting batch into the buffer; a full buffer loses its newest.
    fn keep(&mut self, batch: EventBatch) {
        self.early.insert(batch.first, batch);
        if self.early.len() > EARLY_BATCHES_MAX {
            self.early.pop_last();
        }
    }

    /// Takes all batches from the buffer that follow each other from the position on, and notes what is missing then.
    fn take_fitting(&mut self, due_at: Duration) -> Vec<EventBatch> {
        let mut fitting = Vec::new();
        while let Some(entry) = self.early.first_entry() {
            if entry.get().prev > self.position {
                break;
            }
            let batch = entry.remove();
            fitting.extend(self.advance(batch));
        }
        self.note_missing(due_at);
        fitting
    }

    /// Moves the position to a fitting batch's end and leaves in it what is new; `None` if that is nothing.
    fn advance(&mut self, mut batch: EventBatch) -> Option<EventBatch> {
        if batch.last <= self.position {
            return None;
        }
        let position = self.position;
        batch.events.retain(|event| event.sequence > position);
        self.position = batch.last;
        (!batch.events.is_empty()).then_some(batch)
    }

    /// A new gap becomes due at `due_at`; one that lasts keeps its time.
    fn note_missing(&mut self, due_at: Duration) {
        if self.known <= self.position {
            self.due_at = None;
        } else if self.due_at.is_none() {
            self.due_at = Some(due_at);
        }
    }

    /// Where the present gap ends: before the oldest early batch, or at what is known.
    fn gap_end(&self) -> u64 {
        self.early.first_key_value().map_or(self.known, |(_, batch)| batch.prev)
    }
}

#[cfg(test)]
mod tests;
