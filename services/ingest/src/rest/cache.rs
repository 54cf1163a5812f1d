//! What watchers read: per kind all objects as they are now, and the changes of a while. One reader of the log fills it; any number
//! of watchers read it at their own pace, each change decoded once for all of them.
//!
//! Bounded: when changes fall out at the old end, a watcher that still needed them is told to list again (410), which is also what
//! happens to one that does not read fast enough.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bus::Bus;
use follower::{Batch, Follower};
use serde_json::Value;
use store::{Operation, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::object::Entry;

/// Changes kept per kind, and their bytes.
const CHANGES_MAX: usize = 65_536;
const CHANGES_MAX_BYTES: usize = 64 << 20;
/// How long a read waits for the cache to have seen what is committed.
const CATCH_UP_MAX: Duration = Duration::from_secs(10);
/// Pause before a cache that failed is loaded anew.
const RELOAD_PAUSE: Duration = Duration::from_millis(500);

/// Lists that go on at once, per kind.
const SNAPSHOTS_MAX: usize = 64;

type Key = (Arc<str>, Arc<str>);

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) operation: Operation,
    /// The state before; `None` for a new object.
    pub(crate) before: Option<Arc<Entry>>,
    /// The state after; of a deletion, the last state, at the sequence of the deletion.
    pub(crate) after: Arc<Entry>,
    value: OnceLock<Option<Arc<Value>>>,
}

impl Change {
    fn new(operation: Operation, before: Option<Arc<Entry>>, after: Arc<Entry>) -> Self {
        Self {
            operation,
            before,
            after,
            value: OnceLock::new(),
        }
    }

    /// The state after, decoded once for all who ask. `None`: what is stored is no object.
    pub(crate) fn value(&self) -> Option<&Arc<Value>> {
        self.value.get_or_init(|| self.after.value().ok().map(Arc::new)).as_ref()
    }
}

/// Where a watch stands.
#[derive(Debug)]
pub(crate) enum Next {
    /// What happened, oldest first, and the position after it.
    Changes(Vec<Arc<Change>>, u64),
    /// What comes next is no longer kept: list again. Carries the oldest position that could be resumed.
    TooOld(u64),
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Caches(Arc<Shared>);

struct Shared {
    store: Store,
    bus: Bus,
    kinds: Mutex<HashMap<Arc<str>, Arc<KindCache>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The cache of one kind.
pub(crate) struct KindCache {
    kind: Arc<str>,
    state: RwLock<State>,
    /// The position reached; moves after the state.
    reached: watch::Sender<u64>,
    /// States that lists go on with.
    kept: Mutex<VecDeque<Snapshot>>,
}

/// A state that a list has begun to show.
struct Snapshot {
    version: u64,
    namespace: Option<Box<str>>,
    entries: Arc<[Arc<Entry>]>,
}

impl Snapshot {
    fn is_of(&self, version: u64, namespace: Option<&str>) -> bool {
        self.version == version && self.namespace.as_deref() == namespace
    }
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Arc<Entry>>,
    /// Everything up to here is in `objects`.
    position: u64,
    /// The last change of this kind that is in.
    last_change: u64,
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    /// All changes after this position are kept.
    kept_after: u64,
    /// The newest state that the load has seen; before everything up to there is in, the objects are of no one position.
    /// `None`: not loaded.
    ready_at: Option<u64>,
}

/// Why a cache cannot answer now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error("the database cannot be read")]
    Store(#[from] StoreError),
    #[error("the cache has not caught up with the log in time")]
    Behind,
}

impl Caches {
    /// Nothing is loaded before it is asked for.
    pub(crate) fn new(store: Store, bus: Bus, stop: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            store,
            bus,
            kinds: Mutex::default(),
            tasks: TaskTracker::new(),
            stop,
        }))
    }

    /// Waits until everything that fills caches has ended, after the stop.
    pub(crate) async fn closed(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// The cache of a kind (as stored), loading from now on if it is new.
    pub(crate) fn of(&self, kind: &str) -> Arc<KindCache> {
        let mut kinds = self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache) = kinds.get(kind) {
            return Arc::clone(cache);
        }
        let cache = Arc::new(KindCache {
            kind: kind.into(),
            state: RwLock::default(),
            reached: watch::Sender::new(0),
            kept: Mutex::default(),
        });
        kinds.insert(Arc::clone(&cache.kind), Arc::clone(&cache));
        let (shared, filled) = (Arc::clone(&self.0), Arc::clone(&cache));
        self.0.tasks.spawn(async move {
            let stop = shared.stop.clone();
            stop.run_until_cancelled(filled.fill(&shared)).await;
        });
        cache
    }

    /// A cache that has everything committed before the call, and a position of which that is true.
    pub(crate) async fn fresh(&self, kind: &str) -> Result<(Arc<KindCache>, u64), CacheError> {
        let (heads, head) = self.0.store.kind_heads().await?;
        let needed = heads.iter().find(|(other, _)| other == kind).map_or(0, |(_, last)| *last);
        let cache = self.of(kind);
        cache.wait_for_change(needed).await?;
        Ok((cache, head))
    }
}

impl KindCache {
    /// Loads and follows for ever; loads anew when following ends.
    async fn fill(&self, shared: &Shared) {
        loop {
            if let Err(error) = self.load_and_follow(shared).await {
                tracing::warn!(kind = %self.kind, %error, "a watch cache cannot be filled; trying again");
            }
            tokio::time::sleep(RELOAD_PAUSE).await;
        }
    }

    async fn load_and_follow(&self, shared: &Shared) -> Result<(), StoreError> {
        let (objects, position) = shared.store.list_all(&self.kind).await?;
        let entries = objects.into_iter().map(|stored| {
            let entry = Entry {
                namespace: stored.namespace,
                name: stored.name,
                uid: stored.uid,
                sequence: stored.sequence,
                body: stored.body,
            };
            ((Arc::clone(&entry.namespace), Arc::clone(&entry.name)), Arc::new(entry))
        });
        let objects: BTreeMap<_, _> = entries.collect();
        // What the list shows may be newer than its position; the events in between say the same once more.
        let newest = objects.values().map(|entry: &Arc<Entry>| entry.sequence).max().unwrap_or(0);
        self.write(|state| {
            *state = State {
                objects,
                position,
                last_change: position,
                kept_after: position,
                ready_at: Some(newest),
                ..State::default()
            };
        });
        let (out, mut batches) = mpsc::channel(follower::BATCHES_MAX);
        let follow =
            Follower::new(shared.store.clone(), shared.bus.clone(), &[&*self.kind], position).run(out, shared.stop.clone());
        let apply = async {
            while let Some(batch) = batches.recv().await {
                self.write(|state| state.apply(&batch));
            }
        };
        tokio::join!(follow, apply);
        Ok(())
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        let position = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            state.position
        };
        self.reached.send_replace(position);
    }

    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the change of this sequence is in.
    async fn wait_for_change(&self, sequence: u64) -> Result<(), CacheError> {
        let mut reached = self.reached.subscribe();
        let arrived = async {
            while !self.read(|state| state.is_ready() && state.reached() >= sequence) {
                if reached.changed().await.is_err() {
                    return Err(CacheError::Behind);
                }
            }
            Ok(())
        };
        tokio::time::timeout(CATCH_UP_MAX, arrived)
            .await
            .unwrap_or(Err(CacheError::Behind))
    }

    /// All objects (of a namespace) in the order of namespace and name, and a position of which that is the state.
    pub(crate) fn snapshot(&self, namespace: Option<&str>) -> (Vec<Arc<Entry>>, u64) {
        self.read(|state| {
            let objects = match namespace {
                None => state.objects.values().cloned().collect(),
                Some(namespace) => {
                    let from: Key = (namespace.into(), "".into());
                    let own = state
                        .objects
                        .range(from..)
                        .take_while(|((other, _), _)| **other == *namespace);
                    own.map(|(_, entry)| Arc::clone(entry)).collect()
                }
            };
            (objects, state.reached())
        })
    }

    /// The oldest position from which changes can be had.
    pub(crate) fn oldest_resumable(&self) -> u64 {
        self.read(|state| state.kept_after)
    }

    /// Keeps a state for the next pages of its list; the oldest one gives way.
    pub(crate) fn keep_snapshot(&self, version: u64, namespace: Option<&str>, entries: &[Arc<Entry>]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|snapshot| snapshot.is_of(version, namespace)) {
            return;
        }
        if kept.len() >= SNAPSHOTS_MAX {
            kept.pop_front();
        }
        kept.push_back(Snapshot {
            version,
            namespace: namespace.map(Into::into),
            entries: entries.into(),
        });
    }

    /// The oldest state that is kept for a list.
    pub(crate) fn oldest_snapshot(&self) -> Option<u64> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|snapshot| snapshot.version).min()
    }

    /// A state that is kept for a list.
    pub(crate) fn snapshot_at(&self, version: u64, namespace: Option<&str>) -> Option<Vec<Arc<Entry>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|snapshot| snapshot.is_of(version, namespace))?;
        Some(found.entries.to_vec())
    }

    /// Up to `limit` changes after `position`; waits for the first. Ends when the cache does (`None`).
    pub(crate) async fn next(&self, position: u64, limit: usize) -> Option<Next> {
        let mut reached = self.reached.subscribe();
        loop {
            let found = self.read(|state| state.after(position, limit));
            if let Some(found) = found {
                return Some(found);
            }
            reached.changed().await.ok()?;
        }
    }
}

impl State {
    fn apply(&mut self, batch: &Batch) {
        for event in &batch.events {
            if event.sequence <= self.last_change {
                continue;
            }
            let key = (Arc::clone(&event.namespace), Arc::clone(&event.name));
            let after = Arc::new(Entry {
                namespace: Arc::clone(&event.namespace),
                name: Arc::clone(&event.name),
                uid: event.uid,
                sequence: event.sequence,
                body: Arc::clone(&event.body),
            });
            self.last_change = event.sequence;
            if self.objects.get(&key).is_some_and(|known| known.sequence >= event.sequence) {
                // The list showed what came after it.
                continue;
            }
            let before = match event.operation {
                Operation::Deleted => self.objects.remove(&key),
                Operation::Added | Operation::Modified => self.objects.insert(key, Arc::clone(&after)),
            };
            self.bytes += after.body.len();
            self.changes.push_back(Arc::new(Change::new(event.operation, before, after)));
        }
        self.position = self.position.max(batch.position);
        while self.changes.len() > CHANGES_MAX || self.bytes > CHANGES_MAX_BYTES {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.bytes -= oldest.after.body.len();
            self.kept_after = oldest.after.sequence;
        }
    }

    fn reached(&self) -> u64 {
        self.position.max(self.last_change)
    }

    fn is_ready(&self) -> bool {
        self.ready_at.is_some_and(|ready_at| self.reached() >= ready_at)
    }

    /// `None`: nothing new yet.
    fn after(&self, position: u64, limit: usize) -> Option<Next> {
        if !self.is_ready() {
            return None;
        }
        if position < self.kept_after {
            return Some(Next::TooOld(self.kept_after));
        }
        let from = self.changes.partition_point(|change| change.after.sequence <= position);
        let changes: Vec<_> = self.changes.iter().skip(from).take(limit).cloned().collect();
        let is_all = from + changes.len() == self.changes.len();
        let last = changes.last().map_or(position, |change| change.after.sequence);
        let reached = if is_all { last.max(self.position) } else { last };
        (reached > position).then_some(Next::Changes(changes, reached))
    }
}
