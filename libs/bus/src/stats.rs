//! Counts of what happened on the bus, for the services' metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The live counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) events_published: Counter,
    pub(crate) events_unacknowledged: Counter,
    pub(crate) events_dropped: Counter,
    pub(crate) connects: Counter,
    pub(crate) slow_consumers: Counter,
    pub(crate) unreadable: Counter,
}

/// One number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened on this process's bus since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusStats {
    /// Event batches handed to NATS.
    pub events_published: u64,
    /// Of these, without JetStream's acknowledgement: live consumers may have them all the same.
    pub events_unacknowledged: u64,
    /// Event batches never sent because the queue was full: consumers read them from Postgres.
    pub events_dropped: u64,
    /// Times a connection came up; more than one means that it was lost in between.
    pub connects: u64,
    /// Times a subscription was too slow and lost messages.
    pub slow_consumers: u64,
    /// Messages that were not what their subject carries.
    pub unreadable: u64,
}

impl Counters {
    pub(crate) fn read(&self) -> BusStats {
        BusStats {
            events_published: self.events_published.get(),
            events_unacknowledged: self.events_unacknowledged.get(),
            events_dropped: self.events_dropped.get(),
            connects: self.connects.get(),
            slow_consumers: self.slow_consumers.get(),
            unreadable: self.unreadable.get(),
        }
    }
}
