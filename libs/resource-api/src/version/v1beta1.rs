//! The shapes that `resource.k8s.io/v1beta1` does not share with v1, and the way between them: requests are flat, what a
//! device has is in `basic`, and slices cannot tell an unset node name from an empty one.
//!
//! Source: `k8s.io/kubernetes/pkg/apis/resource/v1beta1/conversion.go`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::claim::{
    self, AllocationMode, CapacityRequirements, DeviceClaimConfiguration, DeviceConstraint, DeviceDerivedAttribute,
    DeviceSelector, DeviceSubRequest, ExactDeviceRequest, ResourceClaimStatus,
};
use crate::device::{self, CounterSet, DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, NodeAllocatableResource};
use crate::ids::{DeviceName, DriverName};
use crate::meta::ObjectMeta;
use crate::node::NodeSelector;
use crate::object::Kind;
use crate::slice::{self, FullyQualifiedName, QualifiedName, ResourcePool, SkipNodeOperation};
use crate::taint::{DeviceTaint, DeviceToleration};
use crate::template;
use crate::wire::{IgnoredAny, api_version, is_empty, null_if_empty, or_default};

api_version!(/** `resource.k8s.io/v1beta1`. */ ResourceV1Beta1 = "resource.k8s.io/v1beta1");

/// See [`claim::ResourceClaim`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct ResourceClaim {
    pub api_version: ResourceV1Beta1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceClaimSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: ResourceClaimStatus,
}

/// See [`template::ResourceClaimTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct ResourceClaimTemplate {
    pub api_version: ResourceV1Beta1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceClaimTemplateSpec,
}

/// See [`template::ResourceClaimTemplateSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimTemplateSpec {
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceClaimSpec,
}

/// See [`claim::ResourceClaimSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimSpec {
    #[serde(deserialize_with = "or_default")]
    pub devices: DeviceClaim,
}

/// See [`claim::DeviceClaim`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceClaim {
    #[serde(deserialize_with = "or_default", serialize_with = "null_if_empty")]
    pub requests: Vec<DeviceRequest>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub constraints: Vec<DeviceConstraint>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub config: Vec<DeviceClaimConfiguration>,
}

/// A request with the fields of [`ExactDeviceRequest`] in it, or alternatives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceRequest {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub device_class_name: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub selectors: Vec<DeviceSelector>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub allocation_mode: AllocationMode,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub count: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub first_available: Vec<DeviceSubRequest>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub derived_attributes: Vec<DeviceDerivedAttribute>,
}

/// See [`slice::ResourceSlice`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct ResourceSlice {
    pub api_version: ResourceV1Beta1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceSliceSpec,
}

/// See [`slice::ResourceSliceSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceSliceSpec {
    #[serde(deserialize_with = "or_default")]
    pub driver: DriverName,
    #[serde(deserialize_with = "or_default")]
    pub pool: ResourcePool,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub node_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub all_nodes: bool,
    #[serde(skip_serializing_if = "is_empty")]
    pub devices: Option<Vec<Device>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    #[serde(skip_serializing_if = "is_empty")]
    pub shared_counters: Option<Vec<CounterSet>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_type_attribute: Option<FullyQualifiedName>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub skip_node_operations: Vec<SkipNodeOperation>,
}

/// A device with everything but its name in `basic`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Device {
    #[serde(deserialize_with = "or_default")]
    pub name: DeviceName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicDevice>,
}

/// See [`device::Device`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BasicDevice {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub attributes: BTreeMap<QualifiedName, DeviceAttribute>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub capacity: BTreeMap<QualifiedName, DeviceCapacity>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub consumes_counters: Vec<DeviceCounterConsumption>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub taints: Vec<DeviceTaint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds_to_node: Option<bool>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub binding_conditions: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub binding_failure_conditions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_multiple_allocations: Option<bool>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub node_allocatable_resources: BTreeMap<String, NodeAllocatableResource>,
}

/// Where what is at a path of v1 is in v1beta1. Paths of kinds without differences stay.
pub fn path(kind: Kind, path: &str) -> Cow<'_, str> {
    let changed = match kind {
        Kind::ResourceClaim => without_exactly("spec.devices.requests[", path),
        Kind::ResourceClaimTemplate => without_exactly("spec.spec.devices.requests[", path),
        Kind::ResourceSlice => with_basic(path),
        Kind::DeviceClass | Kind::DeviceTaintRule | Kind::ResourcePoolStatusRequest | Kind::Node | Kind::Unit => None,
    };
    changed.map_or(Cow::Borrowed(path), Cow::Owned)
}

/// `…requests[0].exactly.count` → `…requests[0].count`.
fn without_exactly(requests: &str, path: &str) -> Option<String> {
    let (index, field) = path.strip_prefix(requests)?.split_once(']')?;
    let rest = field.strip_prefix(".exactly")?;
    Some(format!("{requests}{index}]{rest}"))
}

/// `spec.devices[0].taints` → `spec.devices[0].basic.taints`.
fn with_basic(path: &str) -> Option<String> {
    const DEVICES: &str = "spec.devices[";
    let (index, field) = path.strip_prefix(DEVICES)?.split_once(']')?;
    let in_basic = !field.is_empty() && field != ".name";
    in_basic.then(|| format!("{DEVICES}{index}].basic{field}"))
}

impl From<ResourceClaim> for claim::ResourceClaim {
    fn from(claim: ResourceClaim) -> Self {
        Self {
            metadata: claim.metadata,
            spec: claim.spec.into(),
            status: claim.status,
            ..Self::default()
        }
    }
}

impl From<&claim::ResourceClaim> for ResourceClaim {
    fn from(claim: &claim::ResourceClaim) -> Self {
        Self {
            metadata: claim.metadata.clone(),
            spec: (&claim.spec).into(),
            status: claim.status.clone(),
            ..Self::default()
        }
    }
}

impl From<ResourceClaimTemplate> for template::ResourceClaimTemplate {
    fn from(template: ResourceClaimTemplate) -> Self {
        let ResourceClaimTemplateSpec { metadata, spec } = template.spec;
        let spec = template::ResourceClaimTemplateSpec {
            metadata,
            spec: spec.into(),
        };
        Self {
            metadata: template.metadata,
            spec,
            ..Self::default()
        }
    }
}

impl From<&template::ResourceClaimTemplate> for ResourceClaimTemplate {
    fn from(template: &template::ResourceClaimTemplate) -> Self {
        let template::ResourceClaimTemplateSpec { metadata, spec } = &template.spec;
        let spec = ResourceClaimTemplateSpec {
            metadata: metadata.clone(),
            spec: spec.into(),
        };
        Self {
            metadata: template.metadata.clone(),
            spec,
            ..Self::default()
        }
    }
}

impl From<ResourceClaimSpec> for claim::ResourceClaimSpec {
    fn from(spec: ResourceClaimSpec) -> Self {
        let DeviceClaim {
            requests,
            constraints,
            config,
        } = spec.devices;
        let requests = requests.into_iter().map(Into::into).collect();
        Self {
            devices: claim::DeviceClaim {
                requests,
                constraints,
                config,
            },
        }
    }
}

impl From<&claim::ResourceClaimSpec> for ResourceClaimSpec {
    fn from(spec: &claim::ResourceClaimSpec) -> Self {
        let claim::DeviceClaim {
            requests,
            constraints,
            config,
        } = &spec.devices;
        let requests = requests.iter().map(Into::into).collect();
        Self {
            devices: DeviceClaim {
                requests,
                constraints: constraints.clone(),
                config: config.clone(),
            },
        }
    }
}

/// Both forms at once are kept, so that validation can refuse them.
impl From<DeviceRequest> for claim::DeviceRequest {
    fn from(request: DeviceRequest) -> Self {
        let exactly = ExactDeviceRequest {
            device_class_name: request.device_class_name,
            selectors: request.selectors,
            allocation_mode: request.allocation_mode,
            count: request.count,
            admin_access: request.admin_access,
            tolerations: request.tolerations,
            capacity: request.capacity,
            derived_attributes: request.derived_attributes,
        };
        let is_set = exactly != ExactDeviceRequest::default();
        Self {
            name: request.name,
            exactly: is_set.then_some(exactly),
            first_available: request.first_available,
        }
    }
}

impl From<&claim::DeviceRequest> for DeviceRequest {
    fn from(request: &claim::DeviceRequest) -> Self {
        let exactly = request.exactly.clone().unwrap_or_default();
        Self {
            name: request.name.clone(),
            device_class_name: exactly.device_class_name,
            selectors: exactly.selectors,
            allocation_mode: exactly.allocation_mode,
            count: exactly.count,
            admin_access: exactly.admin_access,
            first_available: request.first_available.clone(),
            tolerations: exactly.tolerations,
            capacity: exactly.capacity,
            derived_attributes: exactly.derived_attributes,
        }
    }
}

impl From<ResourceSlice> for slice::ResourceSlice {
    fn from(slice: ResourceSlice) -> Self {
        Self {
            metadata: slice.metadata,
            spec: slice.spec.into(),
            ..Self::default()
        }
    }
}

impl From<&slice::ResourceSlice> for ResourceSlice {
    fn from(slice: &slice::ResourceSlice) -> Self {
        Self {
            metadata: slice.metadata.clone(),
            spec: (&slice.spec).into(),
            ..Self::default()
        }
    }
}

impl From<ResourceSliceSpec> for slice::ResourceSliceSpec {
    fn from(spec: ResourceSliceSpec) -> Self {
        Self {
            driver: spec.driver,
            pool: spec.pool,
            node_name: Some(spec.node_name).filter(|name| !name.is_empty()),
            node_selector: spec.node_selector,
            all_nodes: spec.all_nodes.then_some(true),
            devices: spec.devices.map(|devices| devices.into_iter().map(Into::into).collect()),
            per_device_node_selection: spec.per_device_node_selection,
            shared_counters: spec.shared_counters,
            partition_type_attribute: spec.partition_type_attribute,
            skip_node_operations: spec.skip_node_operations,
        }
    }
}

impl From<&slice::ResourceSliceSpec> for ResourceSliceSpec {
    fn from(spec: &slice::ResourceSliceSpec) -> Self {
        Self {
            driver: spec.driver.clone(),
            pool: spec.pool.clone(),
            node_name: spec.node_name.clone().unwrap_or_default(),
            node_selector: spec.node_selector.clone(),
            all_nodes: spec.all_nodes.unwrap_or_default(),
            devices: spec.devices.as_ref().map(|devices| devices.iter().map(Into::into).collect()),
            per_device_node_selection: spec.per_device_node_selection,
            shared_counters: spec.shared_counters.clone(),
            partition_type_attribute: spec.partition_type_attribute.clone(),
            skip_node_operations: spec.skip_node_operations.clone(),
        }
    }
}

/// A device without `basic` is a device with a name only.
impl From<Device> for device::Device {
    fn from(device: Device) -> Self {
        let basic = device.basic.unwrap_or_default();
        Self {
            name: device.name,
            attributes: basic.attributes,
            capacity: basic.capacity,
            consumes_counters: basic.consumes_counters,
            node_name: basic.node_name,
            node_selector: basic.node_selector,
            all_nodes: basic.all_nodes,
            taints: basic.taints,
            binds_to_node: basic.binds_to_node,
            binding_conditions: basic.binding_conditions,
            binding_failure_conditions: basic.binding_failure_conditions,
            allow_multiple_allocations: basic.allow_multiple_allocations,
            node_allocatable_resources: basic.node_allocatable_resources,
        }
    }
}

impl From<&device::Device> for Device {
    fn from(device: &device::Device) -> Self {
        let device = device.clone();
        let basic = BasicDevice {
            attributes: device.attributes,
            capacity: device.capacity,
            consumes_counters: device.consumes_counters,
            node_name: device.node_name,
            node_selector: device.node_selector,
            all_nodes: device.all_nodes,
            taints: device.taints,
            binds_to_node: device.binds_to_node,
            binding_conditions: device.binding_conditions,
            binding_failure_conditions: device.binding_failure_conditions,
            allow_multiple_allocations: device.allow_multiple_allocations,
            node_allocatable_resources: device.node_allocatable_resources,
        };
        Self {
            name: device.name,
            basic: Some(basic),
        }
    }
}
