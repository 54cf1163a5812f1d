//! Who waits for which unit. Bounded by the number of waiting callers; one that leaves is forgotten at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use store::EventRow;
use tokio::sync::oneshot;
use uuid::Uuid;

/// Waiting callers by unit; cheap to clone.
#[derive(Clone)]
pub(crate) struct Waiters {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    waiters_max: usize,
    n_waiting: IntGauge,
}

#[derive(Default)]
struct Waiting {
    by_unit: HashMap<Uuid, Vec<(u64, oneshot::Sender<EventRow>)>>,
    n_waiting: usize,
    next_id: u64,
}

/// A caller that waits for a unit; dropping it ends the waiting.
pub(crate) struct Waiter {
    waiters: Waiters,
    unit: Uuid,
    id: u64,
    settled: oneshot::Receiver<EventRow>,
}

impl Waiters {
    /// Room for `waiters_max` callers; their number is shown in `n_waiting`.
    pub(crate) fn new(waiters_max: usize, n_waiting: IntGauge) -> Self {
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::default(),
                waiters_max,
                n_waiting,
            }),
        }
    }

    /// Registers interest in the unit's next settling event; `None` if too many wait already.
    pub(crate) fn register(&self, unit: Uuid) -> Option<Waiter> {
        let mut waiting = self.lock();
        if waiting.n_waiting >= self.shared.waiters_max {
            return None;
        }
        let (sender, settled) = oneshot::channel();
        let id = waiting.next_id;
        waiting.next_id += 1;
        waiting.n_waiting += 1;
        waiting.by_unit.entry(unit).or_default().push((id, sender));
        self.shared.n_waiting.inc();
        Some(Waiter {
            waiters: self.clone(),
            unit,
            id,
            settled,
        })
    }

    /// Tells those who wait for these units.
    pub(crate) fn resolve<'e>(&self, settled: impl Iterator<Item = &'e EventRow>) {
        let mut waiting = self.lock();
        if waiting.by_unit.is_empty() {
            return;
        }
        for event in settled {
            for (_, waiter) in waiting.by_unit.remove(&event.uid).unwrap_or_default() {
                waiting.n_waiting -= 1;
                self.shared.n_waiting.dec();
                drop(waiter.send(event.clone())); // the caller may just have gone away
            }
        }
    }

    fn forget(&self, unit: Uuid, id: u64) {
        let mut waiting = self.lock();
        let Some(list) = waiting.by_unit.get_mut(&unit) else { return };
        let before = list.len();
        list.retain(|(other, _)| *other != id);
        let (gone, is_empty) = (before - list.len(), list.is_empty());
        if is_empty {
            waiting.by_unit.remove(&unit);
        }
        waiting.n_waiting -= gone;
        self.shared.n_waiting.sub(i64::try_from(gone).unwrap_or(0));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// The event that ended the waiting; `None` if the service no longer hears of events.
    pub(crate) async fn settled(&mut self) -> Option<EventRow> {
        (&mut self.settled).await.ok()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.forget(self.unit, self.id);
    }
}

#[cfg(test)]
mod tests;
