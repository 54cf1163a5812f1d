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
    /// Log position up to which the last refusal had seen the world; a JSON number.
    #[serde(skip_serializing_if = "Option::is_none", with = "position")]
    pub decided_at: Option<Sequence>,
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
