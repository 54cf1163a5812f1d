//! ResourceClaim: which devices somebody wants (`spec`), which they got, who uses them and what their drivers report
//! (`status`). Shape of `resource.k8s.io/v1`; the spec is immutable, the status is written apart from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{DeviceId, DeviceName, DriverName, PoolId, PoolName, ShareId, SharedDeviceId};
use crate::meta::{Condition, ObjectMeta};
use crate::node::NodeSelector;
use crate::quantity::Quantity;
use crate::slice::{FullyQualifiedName, QualifiedName, SkipNodeOperation};
use crate::taint::DeviceToleration;
use crate::wire::{RawJson, ResourceV1, Time, is_empty, null_if_empty, open_enum, or_default};

/// A wish for devices and, once allocated, the devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct ResourceClaim {
    pub api_version: ResourceV1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceClaimSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: ResourceClaimStatus,
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimSpec {
    #[serde(deserialize_with = "or_default")]
    pub devices: DeviceClaim,
}

/// Requests, what must hold between their devices, and how to set the devices up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceClaim {
    /// At most 32, may be empty; printed as `null` then.
    #[serde(deserialize_with = "or_default", serialize_with = "null_if_empty")]
    pub requests: Vec<DeviceRequest>,
    /// At most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub constraints: Vec<DeviceConstraint>,
    /// At most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub config: Vec<DeviceClaimConfiguration>,
}

/// One request: exactly one of `exactly` and `first_available`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceRequest {
    /// DNS label, unique in the claim.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<ExactDeviceRequest>,
    /// Alternatives in order of preference, at most 8; the first that fits is used. KEP-4816.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub first_available: Vec<DeviceSubRequest>,
}

open_enum! {
    /// How many devices a request wants. Consumers refuse a word they do not know.
    AllocationMode {
        /// `count` devices.
        ExactCount,
        /// Every matching device, at least one.
        All,
    }
}

/// A request for one sort of device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExactDeviceRequest {
    #[serde(deserialize_with = "or_default")]
    pub device_class_name: String,
    /// All must be true, after those of the class; at most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Defaulted to `ExactCount`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub allocation_mode: AllocationMode,
    /// Devices wanted with `ExactCount` (defaulted to 1); 0 with `All`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub count: i64,
    /// Access to devices that may be in use; the namespace must allow it. KEP-5018.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
    /// At most 32. KEP-6080.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub derived_attributes: Vec<DeviceDerivedAttribute>,
}

/// One alternative of a request. Referenced as `request/subrequest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceSubRequest {
    /// DNS label, unique in the request.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub device_class_name: String,
    /// All must be true, after those of the class; at most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Defaulted to `ExactCount`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub allocation_mode: AllocationMode,
    /// Devices wanted with `ExactCount` (defaulted to 1); 0 with `All`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub count: i64,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
    /// At most 32. KEP-6080.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub derived_attributes: Vec<DeviceDerivedAttribute>,
}

/// Amounts wanted from a shareable device, or the least a device must have. KEP-5075.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapacityRequirements {
    /// By capacity name; neither keys nor values are checked on write.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub requests: BTreeMap<QualifiedName, Quantity>,
}

/// A test that a device must pass; `cel` is the only sort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceSelector {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelDeviceSelector>,
}

/// A CEL expression about `device` that yields a bool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CelDeviceSelector {
    /// At most 10240 bytes.
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
}

/// An attribute that is computed from a device for use in constraints. KEP-6080.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceDerivedAttribute {
    #[serde(deserialize_with = "or_default")]
    pub name: FullyQualifiedName,
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
}

/// What must hold between the devices of several requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceConstraint {
    /// `request` or `request/subrequest`; empty: all requests.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub requests: Vec<String>,
    /// All devices have the same value. Wins if both are set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_attribute: Option<FullyQualifiedName>,
    /// All devices have different values. KEP-5075.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_attribute: Option<FullyQualifiedName>,
}

/// One configuration entry of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceClaimConfiguration {
    /// `request` or `request/subrequest`; empty: all requests.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub requests: Vec<String>,
    /// Required; the only sort of configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueDeviceConfiguration>,
}

/// Configuration that only its driver understands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpaqueDeviceConfiguration {
    #[serde(deserialize_with = "or_default")]
    pub driver: DriverName,
    /// A JSON object of at most 10240 bytes. `None` prints as `null` and is not valid.
    pub parameters: Option<RawJson>,
}

/// What was given, who uses it, what drivers report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimStatus {
    /// Immutable while set; `None`: not allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
    /// Who may use the claim, by uid; at most 256.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub reserved_for: Vec<ResourceClaimConsumerReference>,
    /// Reports of drivers about allocated devices, by driver, pool, device and share. KEP-4817.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub devices: Vec<AllocatedDeviceStatus>,
}

/// A user of a claim, normally a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimConsumerReference {
    /// Empty: the core group.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub api_group: String,
    /// Plural, for example `pods`.
    #[serde(deserialize_with = "or_default")]
    pub resource: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Of whatever system the consumer lives in, so any text.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
}

/// The devices of a claim and where they can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllocationResult {
    #[serde(deserialize_with = "or_default")]
    pub devices: DeviceAllocationResult,
    /// `None`: on every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// Set for devices with binding conditions. KEP-5007.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_timestamp: Option<Time>,
}

/// Allocated devices and their configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceAllocationResult {
    /// At most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub results: Vec<DeviceRequestAllocationResult>,
    /// Entries from classes first, then those of the claim; at most 64.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub config: Vec<DeviceAllocationConfiguration>,
}

/// One allocated device, or one share of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceRequestAllocationResult {
    /// `request` or `request/subrequest` of the claim.
    #[serde(deserialize_with = "or_default")]
    pub request: String,
    #[serde(deserialize_with = "or_default")]
    pub driver: DriverName,
    #[serde(deserialize_with = "or_default")]
    pub pool: PoolName,
    #[serde(deserialize_with = "or_default")]
    pub device: DeviceName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// Copied from the request when it was allocated.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Copied from the device.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub binding_conditions: Vec<String>,
    /// Copied from the device.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// Which share of a shareable device this is.
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<ShareId>,
    /// What this share takes, by the capacity names of the slice.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub consumed_capacity: BTreeMap<QualifiedName, Quantity>,
    /// Copied from the slice.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub skip_node_operations: Vec<SkipNodeOperation>,
}

impl DeviceRequestAllocationResult {
    /// The device.
    pub fn device_id(&self) -> DeviceId {
        DeviceId {
            driver: self.driver.clone(),
            pool: self.pool.clone(),
            device: self.device.clone(),
        }
    }

    /// The pool of the device.
    pub fn pool_id(&self) -> PoolId {
        PoolId {
            driver: self.driver.clone(),
            pool: self.pool.clone(),
        }
    }

    /// The device or the share of it.
    pub fn shared_device_id(&self) -> SharedDeviceId {
        SharedDeviceId {
            device: self.device_id(),
            share_id: self.share_id.clone(),
        }
    }
}

open_enum! {
    /// Where a configuration entry of an allocation comes from.
    AllocationConfigSource { FromClass, FromClaim }
}

/// Configuration that drivers apply in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceAllocationConfiguration {
    #[serde(deserialize_with = "or_default")]
    pub source: AllocationConfigSource,
    /// `request` or `request/subrequest`; empty: all requests.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub requests: Vec<String>,
    /// Required; the only sort of configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueDeviceConfiguration>,
}

/// What a driver reports about one allocated device or share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AllocatedDeviceStatus {
    #[serde(deserialize_with = "or_default")]
    pub driver: DriverName,
    #[serde(deserialize_with = "or_default")]
    pub pool: PoolName,
    #[serde(deserialize_with = "or_default")]
    pub device: DeviceName,
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<ShareId>,
    /// By type, at most 8; printed as `null` when empty.
    #[serde(deserialize_with = "or_default", serialize_with = "null_if_empty")]
    pub conditions: Vec<Condition>,
    /// A JSON object of at most 10240 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NetworkDeviceData>,
}

impl AllocatedDeviceStatus {
    /// The device or share that is reported on.
    pub fn shared_device_id(&self) -> SharedDeviceId {
        let device = DeviceId {
            driver: self.driver.clone(),
            pool: self.pool.clone(),
            device: self.device.clone(),
        };
        SharedDeviceId {
            device,
            share_id: self.share_id.clone(),
        }
    }
}

/// What a network device looks like inside of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkDeviceData {
    /// At most 256 bytes.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub interface_name: String,
    /// Addresses with prefix length, at most 16.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub ips: Vec<String>,
    /// At most 128 bytes.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub hardware_address: String,
}
