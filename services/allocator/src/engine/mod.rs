//! The deciding part of an allocator: state in memory, inputs in, effects out. No I/O, no clock, no async.
//!
//! The engine is a warm replica of the log: all inventory, all that is held, all units that wait. Leases only say for which of it this
//! process decides, so taking a shard over needs no loading, and every process agrees on which unit is oldest.

mod apply;
mod decide;
mod explanation;
mod gates;
mod queue;
mod settle;
mod stats;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use resource_api::class::DeviceClass;
use resource_api::gates::{FeatureGates, Gate};
use resource_api::ids::PoolId;
use resource_api::slice::ResourceSlice;
use resource_api::taint::DeviceTaintRule;
use resource_api::unit::Unit;
use resource_api::wire::Time;
use store::{EventRow, GatesAt, Mutation, Outcome, StoreError, Stored};
use structured::{Cluster, CompiledUnit, Features, NodeFacts};
use uuid::Uuid;

pub(crate) use stats::Stats;

use gates::HeldDevice;
use queue::{Place, Queue};

/// What reaches the engine.
pub(crate) enum Input {
    /// Objects as read at the start, of one kind.
    Loaded(Vec<Stored>),
    /// Events of the log, in order within each kind.
    Events(Vec<EventRow>),
    /// The leases as they are: epochs of all shards, and which of them are ours.
    Leases { epochs: Vec<u64>, mine: Vec<bool> },
    /// A commit asked for by an effect has ended.
    Settled {
        token: u64,
        result: Result<Outcome, StoreError>,
    },
    /// A unit and its claims, read again because a commit lost or is unknown; `None`: it is gone.
    Reread {
        unit: Uuid,
        found: Option<(Stored, Vec<Stored>)>,
    },
    /// Time has passed.
    Tick,
}

/// What the engine wants done. Effects pass through once and are short-lived: a box would only cost.
#[expect(clippy::large_enum_variant, reason = "see above")]
pub(crate) enum Effect {
    /// Commit, then answer with `Settled`.
    Commit { token: u64, mutation: Mutation },
    /// Read the unit again, then answer with `Reread`.
    Reread { unit: Uuid },
}

/// Limits of one engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineLimits {
    /// Commits under way at once; beyond it, deciding pauses.
    pub(crate) in_flight_max: usize,
    /// Units decided between two looks at new inputs.
    pub(crate) burst_max: usize,
    /// A refused unit's recorded reason is renewed at most this often, in milliseconds.
    pub(crate) reason_every_ms: u64,
    /// One unit of each group is tried again after this time without any wake, in milliseconds.
    pub(crate) sweep_every_ms: u64,
    pub(crate) search: structured::Limits<'static>,
    /// How a node is chosen among those that fit.
    pub(crate) policy: structured::Policy,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            in_flight_max: 2048,
            burst_max: 256,
            reason_every_ms: 30_000,
            sweep_every_ms: 60_000,
            search: structured::Limits::default(),
            policy: structured::Policy::FirstFit,
        }
    }
}

/// A claim of a unit that waits.
struct WaitingClaim {
    sequence: u64,
    body: Arc<str>,
}

/// A unit that waits.
struct Waiting {
    place: Place,
    sequence: u64,
    unit: Unit,
    /// W3C traceparent of the submission.
    trace: Option<Arc<str>>,
    compiled: Option<Arc<CompiledUnit>>,
    state: State,
    reason_written_ms: Option<u64>,
    /// Commits lost in a row; the pause before the next try grows with it.
    losses: u32,
}

/// Where a waiting unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Some of its claims have not been seen yet.
    Incomplete,
    /// Not ours to decide; in a group if its owner refused it.
    Foreign,
    Due,
    /// A commit that allocates it is under way.
    Committing,
    /// The commit that records why it waits is under way; `woken`: try it again right after.
    Recording {
        woken: bool,
    },
    Parked,
    /// Waits for a short pause or for a fresh look at the database.
    Paused,
}

/// What a commit under way was for.
struct UnderWay {
    unit: Uuid,
    purpose: Purpose,
    /// Taken in memory for it.
    claims: Vec<Uuid>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Allocate,
    Record,
}

struct PoolFacts {
    shard: u16,
    inventory: u64,
    slices: BTreeMap<Arc<str>, Arc<ResourceSlice>>,
    /// It has counters: what becomes free of one device may help another.
    counted: bool,
}

/// One allocator's mind.
pub(crate) struct Engine {
    limits: EngineLimits,
    cluster: Cluster,
    /// What the cluster was made with.
    gates: GatesAt,
    /// Beside slices and claims, what the cluster was told: when gates are switched, it is made anew.
    classes: BTreeMap<Arc<str>, Arc<DeviceClass>>,
    nodes: HashMap<Arc<str>, NodeFacts>,
    taint_rules: BTreeMap<Arc<str>, Arc<DeviceTaintRule>>,
    pools: HashMap<PoolId, PoolFacts>,
    /// Slice object name to its pool: a deletion names only the slice.
    slice_pools: HashMap<Arc<str>, PoolId>,
    units: HashMap<Uuid, Waiting>,
    /// Units that were seen before all of their claims.
    incomplete: HashSet<Uuid>,
    /// Claims of units that wait, and claims whose unit has not been seen yet.
    claims: HashMap<Uuid, WaitingClaim>,
    /// Claims that are allocated, and what they have.
    held: HashMap<Uuid, Box<[HeldDevice]>>,
    queue: Queue,
    epochs: Vec<u64>,
    mine: Arc<Vec<bool>>,
    under_way: HashMap<u64, UnderWay>,
    next_token: u64,
    /// Paused units by the time at which they are due. One that is gone by then is passed over.
    paused: BTreeSet<(u64, Uuid)>,
    /// Objects read at the start are newer than events up to their sequence.
    loaded: HashMap<Uuid, u64>,
    changes: apply::Changes,
    /// The highest sequence applied.
    position: u64,
    last_sweep_ms: u64,
    /// The time of day that allocations carry.
    wall: Option<Time>,
    stats: Stats,
}

impl Engine {
    /// An engine that knows nothing yet and owns nothing.
    pub(crate) fn new(limits: EngineLimits, stats: Stats) -> Self {
        Self {
            limits,
            cluster: Cluster::new(features_of(FeatureGates::default())),
            gates: GatesAt::default(),
            classes: BTreeMap::new(),
            nodes: HashMap::new(),
            taint_rules: BTreeMap::new(),
            pools: HashMap::new(),
            slice_pools: HashMap::new(),
            units: HashMap::new(),
            incomplete: HashSet::new(),
            claims: HashMap::new(),
            held: HashMap::new(),
            queue: Queue::default(),
            epochs: Vec::new(),
            mine: Arc::new(Vec::new()),
            under_way: HashMap::new(),
            next_token: 0,
            paused: BTreeSet::new(),
            loaded: HashMap::new(),
            changes: apply::Changes::default(),
            position: 0,
            last_sweep_ms: 0,
            wall: None,
            stats,
        }
    }

    /// Takes one input in. Deciding is separate: see [`Engine::decide`].
    pub(crate) fn on_input(&mut self, input: Input, now_ms: u64, effects: &mut Vec<Effect>) {
        match input {
            Input::Loaded(objects) => objects.into_iter().for_each(|object| self.on_loaded(object)),
            Input::Events(events) => events.iter().for_each(|event| self.on_event(event)),
            Input::Leases { epochs, mine } => self.on_leases(epochs, mine),
            Input::Settled { token, result } => self.on_settled(token, result, now_ms, effects),
            Input::Reread { unit, found } => self.on_reread(unit, found),
            Input::Tick => {}
        }
    }

    /// Wakes what the inputs may have helped, then decides due units until the burst is over or too many commits are under way.
    /// Returns whether more is due right now. `wall`: the time of day.
    pub(crate) fn decide(&mut self, now_ms: u64, wall: Time, effects: &mut Vec<Effect>) -> bool {
        self.wall = Some(wall);
        self.complete_units();
        self.wake(now_ms);
        self.resume_paused(now_ms);
        self.sweep(now_ms);
        for _ in 0..self.limits.burst_max {
            if self.under_way.len() >= self.limits.in_flight_max {
                break;
            }
            let Some(place) = self.queue.pop_due() else { break };
            self.decide_unit(place, now_ms, effects);
        }
        self.stats.waiting.set(i64::try_from(self.units.len()).unwrap_or(i64::MAX));
        self.stats
            .parked
            .set(i64::try_from(self.queue.parked_len()).unwrap_or(i64::MAX));
        self.queue.due_len() > 0 && self.under_way.len() < self.limits.in_flight_max
    }

    /// Time of the next thing that happens by itself, in milliseconds.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.paused.first().map(|(at, _)| *at)
    }

    fn owns(mine: &[bool], unit: Uuid) -> bool {
        mine.get(usize::from(resource_api::shard::home_shard(unit)))
            .copied()
            .unwrap_or(false)
    }

    fn is_mine(&self, unit: Uuid) -> bool {
        Self::owns(&self.mine, unit)
    }
}

/// What the gates switch in the allocation core.
fn features_of(gates: FeatureGates) -> Features {
    Features::only(gates.on().map(Gate::name))
}

#[cfg(test)]
mod tests;
