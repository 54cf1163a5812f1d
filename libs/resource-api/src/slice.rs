//! ResourceSlice: a part of a pool that a driver publishes. Devices and counters are in [`crate::device`].

use serde::{Deserialize, Serialize};

use crate::device::{CounterSet, Device};
use crate::ids::{DriverName, PoolId, PoolName};
use crate::meta::ObjectMeta;
use crate::node::NodeSelector;
use crate::wire::{ResourceV1, is_empty, or_default};

/// `id` or `domain/id`; without a domain it belongs to the driver's.
pub type QualifiedName = String;

/// `domain/id`.
pub type FullyQualifiedName = String;

/// One part of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct ResourceSlice {
    pub api_version: ResourceV1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceSliceSpec,
}

impl ResourceSlice {
    /// The pool that this slice is a part of.
    pub fn pool_id(&self) -> PoolId {
        PoolId {
            driver: self.spec.driver.clone(),
            pool: self.spec.pool.name.clone(),
        }
    }
}

/// Devices or shared counters, and the nodes they can be used from: exactly one of `node_name`, `node_selector`,
/// `all_nodes` and `per_device_node_selection`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceSliceSpec {
    #[serde(deserialize_with = "or_default")]
    pub driver: DriverName,
    #[serde(deserialize_with = "or_default")]
    pub pool: ResourcePool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Exactly one term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// At most 128, or 64 with advanced features. `Some` excludes `shared_counters`, even when empty.
    #[serde(skip_serializing_if = "is_empty")]
    pub devices: Option<Vec<Device>>,
    /// Each device says where it can be used. KEP-4815.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    /// Counter sets of the pool, at most 8. KEP-4815.
    #[serde(skip_serializing_if = "is_empty")]
    pub shared_counters: Option<Vec<CounterSet>>,
    /// String attribute that names the sort of a partition, for summaries. KEP-5677.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_type_attribute: Option<FullyQualifiedName>,
    /// Calls to the node that the driver does not need for these devices. KEP-5945.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub skip_node_operations: Vec<SkipNodeOperation>,
}

impl ResourceSliceSpec {
    /// The devices; empty if there are none.
    pub fn devices(&self) -> &[Device] {
        self.devices.as_deref().unwrap_or_default()
    }

    /// The shared counter sets; empty if there are none.
    pub fn shared_counters(&self) -> &[CounterSet] {
        self.shared_counters.as_deref().unwrap_or_default()
    }
}

/// Which pool, and which state of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourcePool {
    #[serde(deserialize_with = "or_default")]
    pub name: PoolName,
    /// The slices with the highest generation form the pool.
    #[serde(deserialize_with = "or_default")]
    pub generation: i64,
    /// How many slices of this generation exist.
    #[serde(deserialize_with = "or_default")]
    pub resource_slice_count: i64,
}

/// A call to the node that can be left out, or [`SkipNodeOperation::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SkipNodeOperation(pub String);

impl SkipNodeOperation {
    /// Every call.
    pub const ALL: &'static str = "*";
    /// The call before containers start.
    pub const PREPARE: &'static str = "NodePrepareResources";
    /// The call after containers stopped.
    pub const UNPREPARE: &'static str = "NodeUnprepareResources";
}
