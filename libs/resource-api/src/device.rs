//! Devices as drivers publish them: attributes, capacity and how it is shared, counters, and what a device costs the node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::DeviceName;
use crate::node::NodeSelector;
use crate::quantity::Quantity;
use crate::slice::QualifiedName;
use crate::taint::DeviceTaint;
use crate::wire::{is_empty, or_default};

/// One device of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Device {
    /// DNS label, unique in the pool.
    #[serde(deserialize_with = "or_default")]
    pub name: DeviceName,
    /// Facts for selectors and constraints. With `capacity` at most 32, and at most 48 values.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub attributes: BTreeMap<QualifiedName, DeviceAttribute>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub capacity: BTreeMap<QualifiedName, DeviceCapacity>,
    /// What the device takes from shared counters when allocated; at most 2 sets. KEP-4815.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub consumes_counters: Vec<DeviceCounterConsumption>,
    /// Where the device can be used: one of these three, only with `perDeviceNodeSelection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// At most 16, duplicates allowed.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub taints: Vec<DeviceTaint>,
    /// The allocation is usable on the chosen node only. KEP-5007.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds_to_node: Option<bool>,
    /// All must be true in the device status before a pod is bound; at most 4.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub binding_conditions: Vec<String>,
    /// Any true one makes binding fail; at most 4.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// Several claims or requests may share the device. KEP-5075.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_multiple_allocations: Option<bool>,
    /// How using the device counts against the node, by resource name. KEP-5517.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub node_allocatable_resources: BTreeMap<String, NodeAllocatableResource>,
}

impl Device {
    /// True if several claims or requests may share the device.
    pub fn is_shareable(&self) -> bool {
        self.allow_multiple_allocations == Some(true)
    }
}

/// One fact about a device: exactly one field is set. List values are KEP-5491.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceAttribute {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bool: Option<bool>,
    /// At most 64 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
    /// A semantic version without leading `v`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "is_empty")]
    pub ints: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "is_empty")]
    pub bools: Option<Vec<bool>>,
    #[serde(skip_serializing_if = "is_empty")]
    pub strings: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_empty")]
    pub versions: Option<Vec<String>>,
}

/// The value of a [`DeviceAttribute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttributeValue<'a> {
    Int(i64),
    Bool(bool),
    String(&'a str),
    Version(&'a str),
    Ints(&'a [i64]),
    Bools(&'a [bool]),
    Strings(&'a [String]),
    Versions(&'a [String]),
}

impl DeviceAttribute {
    /// Every value that is set, in field order: one for a valid attribute.
    pub fn values(&self) -> impl Iterator<Item = AttributeValue<'_>> {
        [
            self.int.map(AttributeValue::Int),
            self.bool.map(AttributeValue::Bool),
            self.string.as_deref().map(AttributeValue::String),
            self.version.as_deref().map(AttributeValue::Version),
            self.ints.as_deref().map(AttributeValue::Ints),
            self.bools.as_deref().map(AttributeValue::Bools),
            self.strings.as_deref().map(AttributeValue::Strings),
            self.versions.as_deref().map(AttributeValue::Versions),
        ]
        .into_iter()
        .flatten()
    }

    /// The value. `None` if nothing is set, for example because a newer API has another sort of value.
    pub fn value(&self) -> Option<AttributeValue<'_>> {
        self.values().next()
    }
}

impl AttributeValue<'_> {
    /// How many single values this is: 1, or the length of a list.
    pub fn count(&self) -> usize {
        match self {
            Self::Int(_) | Self::Bool(_) | Self::String(_) | Self::Version(_) => 1,
            Self::Ints(list) => list.len(),
            Self::Bools(list) => list.len(),
            Self::Strings(list) | Self::Versions(list) => list.len(),
        }
    }
}

/// An amount that a device has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceCapacity {
    #[serde(deserialize_with = "or_default")]
    pub value: Quantity,
    /// How requested amounts are adjusted, for shareable devices only. KEP-5075.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<CapacityRequestPolicy>,
}

/// Which amounts can be taken from a capacity. With neither values nor range: any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapacityRequestPolicy {
    /// Taken when a request names no amount. Printed as `null` when unset.
    pub default: Option<Quantity>,
    /// Allowed amounts in ascending order, at most 10; a request is rounded up to the next.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub valid_values: Vec<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<CapacityRequestPolicyRange>,
}

/// Amounts `min + k·step` up to `max`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapacityRequestPolicyRange {
    /// Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Quantity>,
}

/// Counters that devices of the same pool take from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CounterSet {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// 1 to 32, by DNS label.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub counters: BTreeMap<String, Counter>,
}

/// A total, or an amount taken from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Counter {
    #[serde(deserialize_with = "or_default")]
    pub value: Quantity,
}

/// What a device takes from one counter set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceCounterConsumption {
    #[serde(deserialize_with = "or_default")]
    pub counter_set: String,
    /// 1 to 32, by counter name.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub counters: BTreeMap<String, Counter>,
    /// Devices that take from one set at the same time must share a group; at most 2. KEP-5963.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub compatibility_groups: Vec<String>,
}

/// How using a device counts against one resource of the node; at least one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAllocatableResource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<NodeAllocatableMapping>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<NodeAllocatableOverhead>,
}

/// An amount that depends on what is allocated: by capacity or by device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAllocatableMapping {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<QualifiedName>,
    /// Goes with `capacity_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_multiplier: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_multiplier: Option<Quantity>,
}

/// A fixed amount; at least one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAllocatableOverhead {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Quantity>,
}
