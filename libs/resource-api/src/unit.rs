//! Unit: 1 to 32 claims that must land on one node together, Dray's own object (`dray.v1`).
//!
//! The phase is a summary for readers; the truth about devices is in the claims' own status.

use serde::{Deserialize, Serialize};

use crate::ids::{Sequence, Uid};
use crate::meta::ObjectMeta;
use crate::wire::{DrayV1, is_empty, open_enum, or_default};

/// Most claims of one unit.
pub const UNIT_CLAIMS_MAX: usize = 32;

/// Annotation on a claim that was made by a unit: the unit's uid.
pub const UNIT_ANNOTATION: &str = "dray.v1/unit";

/// Claims that are allocated together or not at all. `metadata.name` is the unit's uid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct Unit {
    pub api_version: DrayV1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: UnitSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: UnitStatus,
}

/// What was asked for; immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitSpec {
    /// Who asked; quotas and fairness count by it.
    #[serde(deserialize_with = "or_default")]
    pub client_id: String,
    /// Larger goes first.
    #[serde(deserialize_with = "or_default")]
    pub priority: i32,
    /// The shard that decides about the unit.
    #[serde(deserialize_with = "or_default")]
    pub home_shard: u16,
    /// Claims of the unit's namespace, 1 to [`UNIT_CLAIMS_MAX`].
    #[serde(deserialize_with = "or_default")]
    pub claims: Vec<UnitClaim>,
}

/// One claim of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitClaim {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub uid: Uid,
}

open_enum! {
    /// Where a unit is in its life.
    UnitPhase {
        /// Waits for devices.
        Pending,
        /// All its claims are allocated on one node.
        Allocated,
        /// Its claims are being given back.
        Releasing,
    }
}

/// How far a unit is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitStatus {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub phase: UnitPhase,
    /// Node of the allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why the last decision refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in parts; absent where nothing can be counted, for example for a fault of the claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<UnitExplanation>,
    /// Log position up to which the last refusal had seen the world; a JSON number.
    #[serde(skip_serializing_if = "Option::is_none", with = "position")]
    pub decided_at: Option<Sequence>,
}

/// Why a unit waits, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitExplanation {
    /// One entry per request or alternative.
    #[serde(deserialize_with = "or_default")]
    pub requests: Vec<RequestExplanation>,
    /// What would have to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest_miss: Option<NearestMiss>,
}

/// What became of the devices that a request could look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RequestExplanation {
    /// The claim's place in `spec.claims`.
    pub claim: usize,
    /// `request`, or `request/alternative`.
    #[serde(deserialize_with = "or_default")]
    pub request: String,
    /// Devices needed on one node; absent: all that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
    /// Nodes looked at.
    pub nodes: u64,
    /// Devices looked at.
    pub devices: u64,
    /// Devices that no rule removes.
    pub fit: u64,
    /// The most of them that one node has.
    pub fit_on_one_node: u64,
    /// Devices per first rule that removes them, most first.
    #[serde(deserialize_with = "or_default")]
    pub removed: Vec<RemovedDevices>,
}

/// Devices that a rule removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RemovedDevices {
    /// The rule's name, for example `allocated` or `request-selector`.
    #[serde(deserialize_with = "or_default")]
    pub rule: String,
    /// For people, for example `fail selector #0`.
    #[serde(deserialize_with = "or_default")]
    pub text: String,
    pub devices: u64,
}

/// The smallest change found after which the unit would fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NearestMiss {
    /// Node that it is about; empty if none is known.
    #[serde(deserialize_with = "or_default")]
    pub node: String,
    /// For people: one line.
    #[serde(deserialize_with = "or_default")]
    pub text: String,
    /// All of it has to change; empty: nothing that was tried helps, the node comes closest by count.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub changes: Vec<NearestChange>,
}

/// One change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NearestChange {
    /// For example `free-device`, `tolerate` or `drop-selector`.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// For people.
    #[serde(deserialize_with = "or_default")]
    pub text: String,
    /// `driver/pool/device`, of changes that concern a device.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub device: String,
    /// Uids of the claims that hold it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub holders: Vec<Uid>,
}

/// A [`Sequence`] as a JSON number.
mod position {
    use super::{Deserialize, Sequence, Serialize};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(at: &Option<Sequence>, to: S) -> Result<S::Ok, S::Error> {
        at.map(|at| at.0).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Sequence>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Sequence))
    }
}
