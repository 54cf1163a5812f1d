//! What a caller asks to change: a mutation is atomic, wins or loses as a whole, and shares its commit with others.

use std::borrow::Cow;
use std::sync::Arc;

use resource_api::quantity::Quantity;
use uuid::Uuid;

/// Plural resource name, e.g. `resourceclaims`.
pub type Kind = Cow<'static, str>;

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The name must be free.
    Create,
    /// The object must exist with the given uid and, if `expected` is set, at that sequence.
    Update { expected: Option<u64> },
    /// As `Update`; the event keeps `body`, the last state.
    Delete { expected: Option<u64> },
}

/// Units only: where the unit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitQueue {
    /// Shard that owns the unit.
    pub home_shard: u16,
    /// Higher first.
    pub priority: i32,
    /// False once nobody has to decide about it any more.
    pub pending: bool,
}

/// One object write; becomes one event.
#[derive(Clone, Debug)]
pub struct Write {
    pub kind: Kind,
    /// Empty for cluster-wide kinds.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uuid,
    pub op: Op,
    /// The object's JSON without `metadata.resourceVersion`: after the change, or before it for a deletion.
    pub body: Arc<str>,
    pub queue: Option<UnitQueue>,
    /// Slices: `driver/pool`, for [`crate::Store::parts_of`].
    pub part_of: Option<Arc<str>>,
    /// Why, in a few words, for people who read the log.
    pub cause: Option<Arc<str>>,
    /// W3C traceparent.
    pub trace: Option<Arc<str>>,
}

/// The epoch that the writer believes it holds a shard with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    pub shard: u16,
    pub epoch: u64,
}

/// A pool's inventory that a decision was based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCheck {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    /// 0: the pool must not exist.
    pub inventory: u64,
}

/// A pool's row after slice writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPut {
    /// Index in [`Mutation::writes`] of the last write of a slice of this pool; its sequence is the new inventory version.
    pub write: usize,
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    /// Used when the pool is new.
    pub shard: u16,
    pub node: Option<Arc<str>>,
    /// How many slice objects it has now; 0 removes the pool.
    pub slices: u32,
}

/// A whole device for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Index in [`Mutation::writes`] of the claim's update.
    pub write: usize,
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
    pub claim: Uuid,
}

/// A share of a device for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeShare {
    /// Index in [`Mutation::writes`] of the claim's update.
    pub write: usize,
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
    /// Unique among the shares of the device.
    pub share_id: Arc<str>,
    pub claim: Uuid,
    pub consumed: Vec<Consumed>,
}

/// What a share takes of one capacity of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumed {
    pub capacity: Arc<str>,
    pub amount: Quantity,
    /// What the device has, at the inventory version that the mutation checks; `None`: nobody publishes the device.
    pub top: Option<Quantity>,
}

/// A result that occupies nothing but that the node prepares: admin access, or (all names empty) an allocation without devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Index in [`Mutation::writes`] of the claim's update.
    pub write: usize,
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
    /// Empty: not of a share.
    pub share_id: Arc<str>,
    pub claim: Uuid,
}

/// What a device that is taken draws on a counter of its pool, if it was not in use before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
    pub counter_set: Arc<str>,
    pub counter: Arc<str>,
    pub amount: Quantity,
    /// What the pool has, at the inventory version that the mutation checks.
    pub top: Quantity,
}

/// What all devices of a pool draw on its counters from now on; goes with a write of a slice of a pool with counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDraws {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    /// The pool has counters.
    pub counted: bool,
    pub draws: Vec<DeviceDraw>,
}

/// What a published device draws on one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDraw {
    pub device: Arc<str>,
    pub counter_set: Arc<str>,
    pub counter: Arc<str>,
    pub amount: Quantity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseMode {
    /// The devices are free with this commit.
    Free,
    /// The claim has let go, the node not yet.
    Drain,
}

/// Everything of one claim: devices, shares, presences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub claim: Uuid,
    pub mode: ReleaseMode,
}

/// The record that lets a repeated submission get the first one's answer.
#[derive(Clone, Debug)]
pub struct Submission {
    pub namespace: Arc<str>,
    pub client_id: Arc<str>,
    /// Of everything in the request that matters.
    pub digest: Vec<u8>,
    pub answer: Arc<str>,
    pub unit: Uuid,
}

/// An atomic change.
#[derive(Clone, Debug, Default)]
pub struct Mutation {
    pub writes: Vec<Write>,
    pub fences: Vec<Fence>,
    pub pool_checks: Vec<PoolCheck>,
    pub pool_puts: Vec<PoolPut>,
    pub pool_draws: Vec<PoolDraws>,
    pub takes: Vec<Take>,
    pub shares: Vec<TakeShare>,
    pub presences: Vec<Presence>,
    /// Of the devices in `takes` and `shares`.
    pub draws: Vec<Draw>,
    pub releases: Vec<Release>,
    /// Nodes on which no agent may be registered.
    pub without_agent: Vec<Arc<str>>,
    pub submission: Option<Submission>,
    /// Position of the feature gates that it was prepared under (see [`crate::GatesAt`]); `None`: they do not matter.
    pub gates: Option<u64>,
}

impl Mutation {
    /// Rough size on the wire, for bounding batches.
    pub(crate) fn size_bytes(&self) -> usize {
        let consumed: usize = self.shares.iter().map(|share| share.consumed.len()).sum();
        let stated: usize = self.pool_draws.iter().map(|pool| pool.draws.len()).sum();
        let rows = self.takes.len() + self.shares.len() + self.presences.len() + self.draws.len() + consumed + stated;
        self.writes.iter().map(|w| w.body.len() + 200).sum::<usize>() + rows * 100 + 100
    }
}

/// How a mutation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed; `sequences[i]` belongs to `writes[i]`.
    Won { sequences: Vec<u64> },
    /// An object is at another sequence than expected.
    Conflict { name: String, found: u64 },
    /// An object to create exists.
    Exists { name: String },
    /// An object to change is gone, or is another one under the same name.
    Gone { name: String },
    /// A lease was lost.
    Fenced,
    /// A device is held by someone else, or wanted whole while shares of it are out.
    Taken { device: String },
    /// A share of that id is out already.
    ShareTaken { device: String, share_id: String },
    /// The device has too little left of a capacity.
    CapacityExceeded { device: String, capacity: String },
    /// The pool has too little left of a counter.
    CounterOverdrawn {
        pool: String,
        counter_set: String,
        counter: String,
    },
    /// The feature gates were switched at `position`: prepare it again.
    GatesChanged { position: u64 },
    /// A pool's inventory changed.
    PoolChanged { pool: String },
    /// The submission was recorded before; this is its answer.
    Repeated { answer: String, sequence: u64 },
    /// The client id was used for something else.
    IdReused,
    /// An agent answers for the node.
    AgentPresent { node: String },
    /// Committed or lost by a call whose answer never came, and it lost: read again.
    Lost,
}
