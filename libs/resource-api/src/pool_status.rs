//! ResourcePoolStatusRequest: a question about the pools of a driver, and the answer. KEP-5677.
//!
//! Asked once and answered once: the spec never changes, and neither does the status once it is set. Whoever answers
//! removes the object some time later. Served in `resource.k8s.io/v1alpha3` only.

use serde::{Deserialize, Serialize};

use crate::ids::{DriverName, PoolName};
use crate::meta::{Condition, ObjectMeta};
use crate::quantity::Quantity;
use crate::slice::{FullyQualifiedName, QualifiedName};
use crate::wire::{ResourceV1Alpha3, is_empty, or_default};

/// Condition that is true when the question was answered.
pub const COMPLETE: &str = "Complete";
/// Condition that is true when the question could not be answered.
pub const FAILED: &str = "Failed";

/// API limit: `ResourcePoolStatusRequestLimitDefault`.
pub const LIMIT_DEFAULT: i32 = 100;
/// API limit: `ResourcePoolStatusRequestLimitMax`.
pub const LIMIT_MAX: i32 = 1000;

/// A question about pools and its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct ResourcePoolStatusRequest {
    pub api_version: ResourceV1Alpha3,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourcePoolStatusRequestSpec,
    /// `None`: not answered yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ResourcePoolStatusRequestStatus>,
}

/// Which pools are asked about; immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourcePoolStatusRequestSpec {
    /// A DNS subdomain in any case, at most 253 bytes: longer than drivers can be.
    #[serde(deserialize_with = "or_default")]
    pub driver: DriverName,
    /// `None`: all pools of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_name: Option<PoolName>,
    /// Most pools in the answer, 1 to [`LIMIT_MAX`]; defaulted to [`LIMIT_DEFAULT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i32>,
    /// The sort of a partition in slices that do not say themselves which attribute names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_partition_type_attribute: Option<FullyQualifiedName>,
}

/// The answer; immutable once set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourcePoolStatusRequestStatus {
    /// Pools that match, also those that are not in the list. Required, not negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_count: Option<i32>,
    /// By driver and pool name; at most 1000.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub pools: Vec<PoolStatus>,
    /// By type, at most 10: [`COMPLETE`] or [`FAILED`].
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub conditions: Vec<Condition>,
}

/// One pool in its newest generation. Counts are not negative; they are absent if `validation_error` says why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolStatus {
    /// Required.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub driver: DriverName,
    /// Required.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub pool_name: PoolName,
    /// Required, and 0 counts as missing: a pool of generation 0 cannot be reported, as upstream has it.
    #[serde(deserialize_with = "or_default")]
    pub generation: i64,
    /// Slices that make up the pool, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_slice_count: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_devices: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_devices: Option<i32>,
    /// Total less allocated less unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_devices: Option<i32>,
    /// Not allocated, but tainted or otherwise out of use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable_devices: Option<i32>,
    /// `None`: the pool is not one of a single node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Why the pool cannot be counted; at most 256 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_error: Option<String>,
    /// By attribute and type, for pools with shared counters; at most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub partition_summary: Vec<PartitionTypeStatus>,
    /// For pools with shareable devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable_summary: Option<ShareableSummaryStatus>,
}

/// How many devices of one sort of partition there are. All fields are required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PartitionTypeStatus {
    /// The attribute that names the sort.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub attribute: FullyQualifiedName,
    /// The sort.
    #[serde(rename = "type", deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i32>,
    /// How many more could be allocated with what is left of the counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<i32>,
}

/// The shareable devices of a pool, all together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ShareableSummaryStatus {
    /// Devices of which nothing is taken. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fully_available_devices: Option<i32>,
    /// Devices of which something, but not everything, is taken. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partially_available_devices: Option<i32>,
    /// At most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub capacity: Vec<ShareableCapacityStatus>,
}

/// One capacity, summed over the shareable devices of a pool. All fields are required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ShareableCapacityStatus {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub name: QualifiedName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed: Option<Quantity>,
    /// Total less consumed, never negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<Quantity>,
}
