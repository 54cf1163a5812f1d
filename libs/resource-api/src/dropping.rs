//! Clears fields of features that are switched off, silently and before validation.
//!
//! One rule for all: on create a field is cleared while its gate is off; on update it stays if the stored object uses
//! the feature anywhere, so that objects from before the switch stay writable. Source: `dropDisabledFields` of the
//! strategies in `k8s.io/kubernetes/pkg/registry/resource`.

use crate::claim::{DeviceRequest, ResourceClaim, ResourceClaimSpec, ResourceClaimStatus};
use crate::class::DeviceClassSpec;
use crate::device::{Device, DeviceAttribute};
use crate::gates::{FeatureGates, Gate};
use crate::pool_status::ResourcePoolStatusRequestSpec;
use crate::slice::ResourceSliceSpec;

/// Clears switched-off features of a claim's or template's spec. `old`: the stored spec, on update.
pub fn drop_from_claim_spec(spec: &mut ResourceClaimSpec, old: Option<&ResourceClaimSpec>, gates: &FeatureGates) {
    let drops = |gate, in_use: fn(&ResourceClaimSpec) -> bool| !gates.is_on(gate) && !old.is_some_and(in_use);
    if drops(Gate::DRAPrioritizedList, uses_first_available) {
        spec.devices
            .requests
            .iter_mut()
            .for_each(|request| request.first_available.clear());
    }
    if drops(Gate::DRADeviceTaints, uses_tolerations) {
        for request in &mut spec.devices.requests {
            request.exactly.iter_mut().for_each(|exactly| exactly.tolerations.clear());
            request.first_available.iter_mut().for_each(|sub| sub.tolerations.clear());
        }
    }
    if drops(Gate::DRAAdminAccess, uses_admin_access) {
        for exactly in spec.devices.requests.iter_mut().flat_map(|request| &mut request.exactly) {
            exactly.admin_access = None;
        }
    }
    if drops(Gate::DRAConsumableCapacity, uses_consumable_capacity) {
        spec.devices
            .constraints
            .iter_mut()
            .for_each(|constraint| constraint.distinct_attribute = None);
        for request in &mut spec.devices.requests {
            request.exactly.iter_mut().for_each(|exactly| exactly.capacity = None);
            request.first_available.iter_mut().for_each(|sub| sub.capacity = None);
        }
    }
    if drops(Gate::DRADerivedAttributes, uses_derived_attributes) {
        for request in &mut spec.devices.requests {
            request
                .exactly
                .iter_mut()
                .for_each(|exactly| exactly.derived_attributes.clear());
            request
                .first_available
                .iter_mut()
                .for_each(|sub| sub.derived_attributes.clear());
        }
    }
}

/// Clears switched-off features of a claim's status. `old` is the stored claim; its spec counts as a use, too.
pub fn drop_from_claim_status(claim: &mut ResourceClaim, old: &ResourceClaim, gates: &FeatureGates) {
    let drops = |gate, in_use: bool| !gates.is_on(gate) && !in_use;
    if drops(Gate::DRAResourceClaimDeviceStatus, !old.status.devices.is_empty()) {
        claim.status.devices.clear();
    }
    let stored = || {
        old.status
            .allocation
            .iter()
            .flat_map(|allocation| &allocation.devices.results)
    };
    let keeps_admin = uses_admin_access(&old.spec) || stored().any(|result| result.admin_access.is_some());
    let keeps_shares = uses_consumable_capacity(&old.spec) || status_uses_shares(&old.status);
    let keeps_binding =
        stored().any(|result| !result.binding_conditions.is_empty() || !result.binding_failure_conditions.is_empty());
    let keeps_operations = stored().any(|result| !result.skip_node_operations.is_empty());
    for result in claim
        .status
        .allocation
        .iter_mut()
        .flat_map(|allocation| &mut allocation.devices.results)
    {
        if drops(Gate::DRAAdminAccess, keeps_admin) {
            result.admin_access = None;
        }
        if drops(Gate::DRAConsumableCapacity, keeps_shares) {
            result.share_id = None;
            result.consumed_capacity.clear();
        }
        if drops(Gate::DRADeviceBindingConditions, keeps_binding) {
            result.binding_conditions.clear();
            result.binding_failure_conditions.clear();
        }
        if drops(Gate::DRAOptionalNodeOperations, keeps_operations) {
            result.skip_node_operations.clear();
        }
    }
    if drops(Gate::DRAConsumableCapacity, keeps_shares) {
        claim.status.devices.iter_mut().for_each(|device| device.share_id = None);
    }
}

/// Clears switched-off features of a slice. `old`: the stored spec, on update.
pub fn drop_from_slice_spec(spec: &mut ResourceSliceSpec, old: Option<&ResourceSliceSpec>, gates: &FeatureGates) {
    let drops = |gate, in_use: fn(&ResourceSliceSpec) -> bool| !gates.is_on(gate) && !old.is_some_and(in_use);
    if drops(Gate::DRADeviceTaints, uses_taints) {
        each_device(spec, |device| device.taints.clear());
    }
    if drops(Gate::DRAPartitionableDevices, uses_partitions) {
        spec.shared_counters = None;
        spec.per_device_node_selection = None;
        each_device(spec, drop_partitions);
    }
    if drops(Gate::DRADeviceBindingConditions, uses_binding_conditions)
        || drops(Gate::DRAResourceClaimDeviceStatus, uses_binding_conditions)
    {
        each_device(spec, drop_binding_conditions);
    }
    if drops(Gate::DRAConsumableCapacity, uses_shareable_devices) {
        each_device(spec, drop_sharing);
    }
    if drops(Gate::DRADeviceCompatibilityGroups, uses_compatibility_groups) {
        each_device(spec, |device| {
            device
                .consumes_counters
                .iter_mut()
                .for_each(|taken| taken.compatibility_groups.clear())
        });
    }
    if drops(Gate::DRANodeAllocatableResources, uses_node_allocatable) {
        each_device(spec, |device| device.node_allocatable_resources.clear());
    }
    if drops(Gate::DRAListTypeAttributes, uses_list_attributes) {
        each_device(spec, |device| device.attributes.values_mut().for_each(drop_lists));
    }
    if drops(Gate::DRAPartitionableDevicesType, |old| {
        old.partition_type_attribute.is_some()
    }) {
        spec.partition_type_attribute = None;
    }
    if drops(Gate::DRAOptionalNodeOperations, |old| !old.skip_node_operations.is_empty()) {
        spec.skip_node_operations.clear();
    }
}

/// Clears switched-off features of a class. `old`: the stored spec, on update.
pub fn drop_from_class_spec(spec: &mut DeviceClassSpec, old: Option<&DeviceClassSpec>, gates: &FeatureGates) {
    let in_use = old.is_some_and(|old| old.extended_resource_name.is_some());
    if !gates.is_on(Gate::DRAExtendedResource) && !in_use {
        spec.extended_resource_name = None;
    }
}

/// Clears switched-off features of a pool status request. `old`: the stored spec, on update.
pub fn drop_from_pool_status_spec(
    spec: &mut ResourcePoolStatusRequestSpec,
    old: Option<&ResourcePoolStatusRequestSpec>,
    gates: &FeatureGates,
) {
    let in_use = old.is_some_and(|old| old.default_partition_type_attribute.is_some());
    if !gates.is_on(Gate::DRAPartitionableDevicesType) && !in_use {
        spec.default_partition_type_attribute = None;
    }
}

fn each_device(spec: &mut ResourceSliceSpec, change: impl FnMut(&mut Device)) {
    spec.devices.iter_mut().flatten().for_each(change);
}

fn drop_sharing(device: &mut Device) {
    device.allow_multiple_allocations = None;
    device
        .capacity
        .values_mut()
        .for_each(|capacity| capacity.request_policy = None);
}

fn drop_partitions(device: &mut Device) {
    device.consumes_counters.clear();
    device.node_name = None;
    device.node_selector = None;
    device.all_nodes = None;
}

fn drop_binding_conditions(device: &mut Device) {
    device.binding_conditions.clear();
    device.binding_failure_conditions.clear();
    device.binds_to_node = None;
}

fn drop_lists(attribute: &mut DeviceAttribute) {
    attribute.ints = None;
    attribute.bools = None;
    attribute.strings = None;
    attribute.versions = None;
}

fn any_request(spec: &ResourceClaimSpec, is: impl Fn(&DeviceRequest) -> bool) -> bool {
    spec.devices.requests.iter().any(is)
}

fn uses_first_available(spec: &ResourceClaimSpec) -> bool {
    any_request(spec, |request| !request.first_available.is_empty())
}

fn uses_tolerations(spec: &ResourceClaimSpec) -> bool {
    any_request(spec, |request| {
        request
            .exactly
            .as_ref()
            .is_some_and(|exactly| !exactly.tolerations.is_empty())
            || request.first_available.iter().any(|sub| !sub.tolerations.is_empty())
    })
}

/// An explicit `false` counts as a use.
fn uses_admin_access(spec: &ResourceClaimSpec) -> bool {
    any_request(spec, |request| {
        request.exactly.as_ref().is_some_and(|exactly| exactly.admin_access.is_some())
    })
}

fn uses_consumable_capacity(spec: &ResourceClaimSpec) -> bool {
    let capacity = any_request(spec, |request| {
        request.exactly.as_ref().is_some_and(|exactly| exactly.capacity.is_some())
            || request.first_available.iter().any(|sub| sub.capacity.is_some())
    });
    capacity
        || spec
            .devices
            .constraints
            .iter()
            .any(|constraint| constraint.distinct_attribute.is_some())
}

fn uses_derived_attributes(spec: &ResourceClaimSpec) -> bool {
    any_request(spec, |request| {
        request
            .exactly
            .as_ref()
            .is_some_and(|exactly| !exactly.derived_attributes.is_empty())
            || request.first_available.iter().any(|sub| !sub.derived_attributes.is_empty())
    })
}

fn status_uses_shares(status: &ResourceClaimStatus) -> bool {
    let results = status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    let shares = results
        .into_iter()
        .any(|result| result.share_id.is_some() || !result.consumed_capacity.is_empty());
    shares || status.devices.iter().any(|device| device.share_id.is_some())
}

fn any_device(spec: &ResourceSliceSpec, is: impl Fn(&Device) -> bool) -> bool {
    spec.devices().iter().any(is)
}

fn uses_taints(spec: &ResourceSliceSpec) -> bool {
    any_device(spec, |device| !device.taints.is_empty())
}

fn uses_partitions(spec: &ResourceSliceSpec) -> bool {
    let on_devices = any_device(spec, |device| {
        !device.consumes_counters.is_empty()
            || device.node_name.is_some()
            || device.node_selector.is_some()
            || device.all_nodes.is_some()
    });
    on_devices || !spec.shared_counters().is_empty() || spec.per_device_node_selection.is_some()
}

fn uses_binding_conditions(spec: &ResourceSliceSpec) -> bool {
    any_device(spec, |device| {
        !device.binding_conditions.is_empty() || !device.binding_failure_conditions.is_empty() || device.binds_to_node.is_some()
    })
}

fn uses_shareable_devices(spec: &ResourceSliceSpec) -> bool {
    any_device(spec, |device| {
        device.allow_multiple_allocations.is_some() || device.capacity.values().any(|capacity| capacity.request_policy.is_some())
    })
}

fn uses_compatibility_groups(spec: &ResourceSliceSpec) -> bool {
    any_device(spec, |device| {
        device
            .consumes_counters
            .iter()
            .any(|taken| !taken.compatibility_groups.is_empty())
    })
}

fn uses_node_allocatable(spec: &ResourceSliceSpec) -> bool {
    any_device(spec, |device| !device.node_allocatable_resources.is_empty())
}

fn uses_list_attributes(spec: &ResourceSliceSpec) -> bool {
    any_device(spec, |device| {
        device.attributes.values().any(|attribute| {
            attribute.ints.is_some() || attribute.bools.is_some() || attribute.strings.is_some() || attribute.versions.is_some()
        })
    })
}
