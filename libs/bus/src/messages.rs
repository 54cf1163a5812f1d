//! Every message on the bus. Written by hand as prost types: they never leave an installation, and all of them are here.
//!
//! Field numbers are never reused: processes of two versions may talk for the time of an upgrade. Sequences are
//! positions in the one event log; `body` is an object's JSON as the store keeps it (without `resourceVersion`).

/// A commit's events of one kind, on `dray.event.<kind>`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EventBatch {
    /// Plural resource name, e.g. `resourceclaims`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// First sequence of the whole commit (not only of this kind).
    #[prost(uint64, tag = "2")]
    pub first: u64,
    /// Last sequence of the whole commit.
    #[prost(uint64, tag = "3")]
    pub last: u64,
    /// The last sequence of this kind before this commit: who has seen it has missed nothing of this kind.
    #[prost(uint64, tag = "4")]
    pub prev: u64,
    /// This kind's events, ascending; empty if `range_only`.
    #[prost(message, repeated, tag = "5")]
    pub events: Vec<EventRecord>,
    /// The events were too large for a message: read `first..=last` from Postgres.
    #[prost(bool, tag = "6")]
    pub range_only: bool,
    /// The process that committed, for people.
    #[prost(string, tag = "7")]
    pub writer: String,
}

/// One row of the event log.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EventRecord {
    /// Position in the log; the object's `resourceVersion` after this event.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// What happened to the object.
    #[prost(enumeration = "Operation", tag = "2")]
    pub operation: i32,
    /// Empty for cluster-wide kinds.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// The object's name.
    #[prost(string, tag = "4")]
    pub name: String,
    /// The object's uid, as text.
    #[prost(string, tag = "5")]
    pub uid: String,
    /// The whole object after the event (before it, for a deletion).
    #[prost(string, tag = "6")]
    pub body: String,
    /// Milliseconds since 1970, by the database's clock.
    #[prost(int64, tag = "7")]
    pub time_ms: i64,
    /// Why, in a few words; may be empty.
    #[prost(string, tag = "8")]
    pub cause: String,
    /// W3C trace context of the call that caused it; may be empty.
    #[prost(string, tag = "9")]
    pub traceparent: String,
}

/// What an event did to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Operation {
    /// Never sent.
    Unspecified = 0,
    /// It is new.
    Added = 1,
    /// It changed.
    Modified = 2,
    /// It is gone.
    Deleted = 3,
}

/// New units for their home shard, on `dray.work.<shard>`. All of it is committed; a lost message is found by the sweep.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Work {
    /// In commit order.
    #[prost(message, repeated, tag = "1")]
    pub units: Vec<WorkUnit>,
}

/// A unit with its claims: all that an allocator needs in order to try it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkUnit {
    /// The unit's uid.
    #[prost(string, tag = "1")]
    pub unit_uid: String,
    /// The unit's `resourceVersion`.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    /// The unit's JSON.
    #[prost(string, tag = "3")]
    pub unit_body: String,
    /// In the unit's order.
    #[prost(message, repeated, tag = "4")]
    pub claims: Vec<WorkClaim>,
    /// Higher goes first.
    #[prost(int32, tag = "5")]
    pub priority: i32,
    /// W3C trace context of the submission; may be empty.
    #[prost(string, tag = "6")]
    pub traceparent: String,
}

/// A claim of a unit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WorkClaim {
    /// The claim's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The claim's namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// The claim's uid.
    #[prost(string, tag = "3")]
    pub uid: String,
    /// The claim's `resourceVersion`, which the allocating commit checks.
    #[prost(uint64, tag = "4")]
    pub sequence: u64,
    /// The claim's JSON.
    #[prost(string, tag = "5")]
    pub body: String,
}

/// Asks a shard to place and commit units that it is not home to, on `dray.shard.<shard>.try`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TryRequest {
    /// Whole units: the asked shard reads nothing.
    #[prost(message, repeated, tag = "1")]
    pub units: Vec<WorkUnit>,
    /// The answer must be decided on a state at least as new as this log position.
    #[prost(uint64, tag = "2")]
    pub decided_after: u64,
}

/// What became of each unit of a [`TryRequest`], in its order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TryResponse {
    /// One per unit.
    #[prost(message, repeated, tag = "1")]
    pub outcomes: Vec<TryOutcome>,
}

/// What became of one unit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TryOutcome {
    /// The unit.
    #[prost(string, tag = "1")]
    pub unit_uid: String,
    /// `None` comes only from a newer version; take it as [`try_outcome::Result::Busy`].
    #[prost(oneof = "try_outcome::Result", tags = "2, 3, 4")]
    pub result: Option<try_outcome::Result>,
}

/// The parts of a [`TryOutcome`].
pub mod try_outcome {
    /// What became of the unit.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Result {
        /// Committed.
        #[prost(message, tag = "2")]
        Allocated(Allocated),
        /// Does not fit here.
        #[prost(message, tag = "3")]
        Refused(Refused),
        /// Not looked at: the shard moved, or has too much to do. Try later or elsewhere.
        #[prost(message, tag = "4")]
        Busy(Busy),
    }

    /// The unit is allocated; the commit has happened.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Allocated {
        /// The unit's sequence after the commit.
        #[prost(uint64, tag = "1")]
        pub sequence: u64,
        /// Where it landed; empty if its devices are tied to no node.
        #[prost(string, tag = "2")]
        pub node: String,
    }

    /// The unit does not fit into this shard as it was at `position`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Refused {
        /// The log position of the state that was judged.
        #[prost(uint64, tag = "1")]
        pub position: u64,
        /// Counted reasons, for people.
        #[prost(string, tag = "2")]
        pub reason: String,
    }

    /// Nothing was decided.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Busy {
        /// How long the shard asks to be left alone; 0 if it does not know.
        #[prost(uint64, tag = "1")]
        pub retry_after_ms: u64,
    }
}

/// What a shard has free, on `dray.summary.<shard>`. A hint: wrong or missing ones only cost a refused try.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Summary {
    /// The shard.
    #[prost(uint32, tag = "1")]
    pub shard: u32,
    /// The allocator process that holds it.
    #[prost(string, tag = "2")]
    pub process: String,
    /// The log position of the state that was summed up.
    #[prost(uint64, tag = "3")]
    pub position: u64,
    /// One per kind of demand that the allocator has seen.
    #[prost(message, repeated, tag = "4")]
    pub classes: Vec<ClassCapacity>,
}

/// What is free for one kind of demand.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClassCapacity {
    /// Hash of class and selectors; the same in all processes of a version.
    #[prost(fixed64, tag = "1")]
    pub signature: u64,
    /// Most free devices on any one node.
    #[prost(uint32, tag = "2")]
    pub node_free_max: u32,
    /// Free devices on all nodes of the shard.
    #[prost(uint64, tag = "3")]
    pub total_free: u64,
}

/// What a node agent (or a fleet of nodes) has to say, on `dray.agent.<agent>`; repeated until answered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeReports {
    /// As registered.
    #[prost(string, tag = "1")]
    pub agent_id: String,
    /// Any order; one per claim and allocation.
    #[prost(message, repeated, tag = "2")]
    pub reports: Vec<ClaimReport>,
}

/// The state of one allocation on its node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimReport {
    /// The node.
    #[prost(string, tag = "1")]
    pub node: String,
    /// The claim.
    #[prost(string, tag = "2")]
    pub claim_uid: String,
    /// The sequence of the allocating commit: a claim may be allocated again later.
    #[prost(uint64, tag = "3")]
    pub allocation_sequence: u64,
    /// Where it stands.
    #[prost(enumeration = "ClaimState", tag = "4")]
    pub state: i32,
    /// Why, if it failed.
    #[prost(string, tag = "5")]
    pub message: String,
    /// What was prepared; empty unless [`ClaimState::Prepared`].
    #[prost(message, repeated, tag = "6")]
    pub devices: Vec<PreparedDevice>,
}

/// Where an allocation stands on its node. Silence never means "not prepared".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ClaimState {
    /// Never sent.
    Unspecified = 0,
    /// All drivers have prepared their devices.
    Prepared = 1,
    /// Nothing is prepared, no call is open and none will be made for this allocation: its devices may be given away.
    Unprepared = 2,
    /// A driver refused or does not answer; the agent keeps trying.
    Failed = 3,
}

/// A prepared device (kubelet plugin API, `Device`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreparedDevice {
    /// The driver's name.
    #[prost(string, tag = "1")]
    pub driver: String,
    /// The pool.
    #[prost(string, tag = "2")]
    pub pool: String,
    /// The device.
    #[prost(string, tag = "3")]
    pub device: String,
    /// Fully qualified CDI device names.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    /// The requests of the claim that this device answers.
    #[prost(string, repeated, tag = "5")]
    pub request_names: Vec<String>,
}

/// Which reports are recorded and need not be repeated.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReportAnswer {
    /// A part of the reports that were sent.
    #[prost(message, repeated, tag = "1")]
    pub accepted: Vec<ReportKey>,
}

/// Names one report.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct ReportKey {
    /// The claim.
    #[prost(string, tag = "1")]
    pub claim_uid: String,
    /// The sequence of the allocating commit.
    #[prost(uint64, tag = "2")]
    pub allocation_sequence: u64,
}

impl Work {
    /// Splits units into messages of at most `max_bytes` each, in order; a larger single unit is a message by itself.
    pub fn split(units: Vec<WorkUnit>, max_bytes: usize) -> Vec<Self> {
        let mut messages: Vec<Self> = Vec::new();
        let mut room = 0;
        for unit in units {
            // As a field: tag, length (at most five bytes) and the unit itself.
            let size = prost::Message::encoded_len(&unit) + 6;
            match messages.last_mut() {
                Some(message) if size <= room => message.units.push(unit),
                Some(_) | None => {
                    messages.push(Self { units: vec![unit] });
                    room = max_bytes;
                }
            }
            room = room.saturating_sub(size);
        }
        messages
    }
}
