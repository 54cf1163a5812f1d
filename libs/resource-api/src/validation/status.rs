//! Rules for the status of claims: S1–S39. An allocation is checked once, when it is set; it cannot change after.
//!
//! The API is no allocator: whether devices exist and are free is the business of whoever commits the allocation.

use std::collections::BTreeSet;

use serde_json::json;

use super::AdminAccess;
use super::claim::{CONFIG_MAX, RequestNames, report_admin_access};
use super::common::{
    CONDITIONS_MAX, check_binding_conditions, check_conditions, check_count, check_driver_name, check_json_object, check_length,
    check_opaque, check_pool_name, check_skip_node_operations, check_tolerations, check_unique,
};
use super::meta;
use super::node_selector;
use crate::claim::{
    AllocatedDeviceStatus, AllocationConfigSource, AllocationResult, DeviceAllocationConfiguration,
    DeviceRequestAllocationResult, NetworkDeviceData, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus,
};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::ids::{DriverName, SharedDeviceId};
use crate::names;
use crate::node::NodeSelectorOperator;

/// API limit: `ResourceClaimReservedForMaxSize`.
pub const RESERVED_FOR_MAX: usize = 256;
/// API limit: `AllocationResultsMaxSize`.
pub const RESULTS_MAX: usize = 32;
/// API limit: `NetworkDeviceDataMaxIPs`.
const IPS_MAX: usize = 16;
/// API limit: `NetworkDeviceDataInterfaceNameMaxLength`, bytes.
const INTERFACE_NAME_LENGTH_MAX: usize = 256;
/// API limit: `NetworkDeviceDataHardwareAddressMaxLength`, bytes.
const HARDWARE_ADDRESS_LENGTH_MAX: usize = 128;

const STATUS: FieldPath<'static> = FieldPath::root("status");

/// Every rule that a changed status breaks, except about admin access and authorization.
///
/// `new` carries the stored spec and metadata, see [`crate::prepare`].
pub fn check_update(new: &ResourceClaim, old: &ResourceClaim) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    check_reserved_for(new, &old.status, &mut errors);
    check_device_statuses(&new.status, &mut errors);
    let path = STATUS.child("allocation");
    match (&new.status.allocation, &old.status.allocation) {
        (Some(new), Some(old)) if new != old => errors.invalid(&path, (), "field cannot be modified once set"),
        (Some(allocation), None) => check_allocation(allocation, &RequestNames::of(&new.spec.devices), &path, &mut errors),
        _ => {}
    }
    errors.into_vec()
}

/// S39: the first result with admin access in a namespace that does not allow it. Claims that had such a result before
/// keep it.
pub fn check_admin_access(new: &ResourceClaim, old: &ResourceClaim, namespace: AdminAccess) -> Vec<FieldError> {
    let is_admin = |result: &DeviceRequestAllocationResult| result.admin_access == Some(true);
    let mut errors = FieldErrors::new();
    if !results(&old.status).iter().any(is_admin)
        && let Some(at) = results(&new.status).iter().position(is_admin)
    {
        let allocation = STATUS.child("allocation");
        let devices = allocation.child("devices");
        let list = devices.child("results");
        report_admin_access(namespace, &list.index(at).child("adminAccess"), &mut errors);
    }
    errors.into_vec()
}

/// S40: true if the update needs permission to bind: it changes the allocation or who may use it.
pub fn changes_binding(new: &ResourceClaimStatus, old: &ResourceClaimStatus) -> bool {
    new.allocation != old.allocation || new.reserved_for != old.reserved_for
}

/// S41: the drivers, in name order, for which the update needs permission: reports about their devices were added,
/// removed or changed. None are needed if the claim ends up without allocation.
pub fn changed_drivers(new: &ResourceClaimStatus, old: &ResourceClaimStatus) -> BTreeSet<DriverName> {
    if new.allocation.is_none() {
        return BTreeSet::new();
    }
    let is_in = |status: &ResourceClaimStatus, device: &AllocatedDeviceStatus| status.devices.contains(device);
    let added = new.devices.iter().filter(|device| !is_in(old, device));
    let removed = old.devices.iter().filter(|device| !is_in(new, device));
    added.chain(removed).map(|device| device.driver.clone()).collect()
}

/// The node an allocation is tied to by name: its selector is one term with nothing but that name.
pub fn node_of(allocation: &AllocationResult) -> Option<&str> {
    let [term] = allocation.node_selector.as_ref()?.node_selector_terms.as_slice() else {
        return None;
    };
    let [field] = term.match_fields.as_slice() else { return None };
    let [name] = field.values.as_slice() else { return None };
    let by_name = field.key == "metadata.name" && field.operator == NodeSelectorOperator::In;
    (by_name && term.match_expressions.is_empty()).then_some(name.as_str())
}

fn results(status: &ResourceClaimStatus) -> &[DeviceRequestAllocationResult] {
    status
        .allocation
        .as_ref()
        .map(|allocation| allocation.devices.results.as_slice())
        .unwrap_or_default()
}

/// S1–S5.
fn check_reserved_for(new: &ResourceClaim, old: &ResourceClaimStatus, errors: &mut FieldErrors) {
    let path = STATUS.child("reservedFor");
    let reserved_for = &new.status.reserved_for;
    if check_count(reserved_for.len(), RESERVED_FOR_MAX, &path, errors) {
        for (at, consumer) in reserved_for.iter().enumerate() {
            check_consumer(consumer, &path.index(at), errors);
        }
        check_unique(reserved_for, |consumer| &consumer.uid, |consumer| consumer, &path, errors);
    }
    if reserved_for.is_empty() {
        return;
    }
    if new.status.allocation.is_none() {
        errors.forbidden(&path, "may not be specified when `allocated` is not set");
    } else if new.metadata.is_deleted() && reserved_for.iter().any(|consumer| !old.reserved_for.contains(consumer)) {
        let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(&path, detail);
    }
}

fn check_consumer(consumer: &ResourceClaimConsumerReference, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let required = [
        ("resource", &consumer.resource),
        ("name", &consumer.name),
        ("uid", &consumer.uid),
    ];
    for (field, _) in required.into_iter().filter(|(_, text)| text.is_empty()) {
        errors.required(&path.child(field), "");
    }
}

/// S8–S18: reports of drivers about devices of the new allocation.
fn check_device_statuses(status: &ResourceClaimStatus, errors: &mut FieldErrors) {
    let path = STATUS.child("devices");
    let allocated: BTreeSet<SharedDeviceId> = results(status).iter().map(|result| result.shared_device_id()).collect();
    for (at, device) in status.devices.iter().enumerate() {
        let item = path.index(at);
        if !allocated.contains(&device.shared_device_id()) {
            errors.invalid(
                &item,
                shown_id(&device.shared_device_id()),
                "must be an allocated device in the claim",
            );
        }
        check_device_status(device, &item, errors);
    }
    check_unique(
        &status.devices,
        AllocatedDeviceStatus::shared_device_id,
        |device| shown_id(&device.shared_device_id()),
        &path,
        errors,
    );
}

fn shown_id(id: &SharedDeviceId) -> serde_json::Value {
    let SharedDeviceId { device, share_id } = id;
    json!({ "Driver": device.driver, "Pool": device.pool, "Device": device.device, "ShareID": share_id })
}

fn check_device_status(device: &AllocatedDeviceStatus, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_driver_name(&device.driver, &path.child("driver"), errors);
    check_pool_name(&device.pool, &path.child("pool"), errors);
    errors.invalid_each(&path.child("device"), &device.device, names::dns_label(&device.device));
    if let Some(share) = &device.share_id {
        errors.invalid_each(&path.child("shareID"), share, names::uuid(share));
    }
    check_conditions(&device.conditions, CONDITIONS_MAX, &path.child("conditions"), errors);
    if let Some(data) = device.data.as_ref().filter(|data| data.as_sent().trim_ascii() != "null") {
        check_json_object(data, true, &path.child("data"), errors);
    }
    if let Some(network) = &device.network_data {
        check_network(network, &path.child("networkData"), errors);
    }
}

/// S17, S18.
fn check_network(network: &NetworkDeviceData, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_length(
        &network.interface_name,
        INTERFACE_NAME_LENGTH_MAX,
        &path.child("interfaceName"),
        errors,
    );
    check_length(
        &network.hardware_address,
        HARDWARE_ADDRESS_LENGTH_MAX,
        &path.child("hardwareAddress"),
        errors,
    );
    let ips = path.child("ips");
    if check_count(network.ips.len(), IPS_MAX, &ips, errors) {
        for (at, address) in network.ips.iter().enumerate() {
            errors.invalid_each(&ips.index(at), address, names::interface_address(address));
        }
        check_unique(&network.ips, |address| address, |address| address, &ips, errors);
    }
}

/// S20–S38, only for an allocation that is new.
fn check_allocation(allocation: &AllocationResult, names: &RequestNames<'_>, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let devices = path.child("devices");
    let results = devices.child("results");
    if check_count(allocation.devices.results.len(), RESULTS_MAX, &results, errors) {
        for (at, result) in allocation.devices.results.iter().enumerate() {
            check_result(result, names, &results.index(at), errors);
        }
    }
    let config = devices.child("config");
    // Entries of all classes and of the claim.
    if check_count(allocation.devices.config.len(), 2 * CONFIG_MAX, &config, errors) {
        for (at, entry) in allocation.devices.config.iter().enumerate() {
            check_config(entry, names, &config.index(at), errors);
        }
    }
    if let Some(selector) = &allocation.node_selector {
        node_selector::check(selector, &path.child("nodeSelector"), errors);
    }
}

/// S21–S31.
fn check_result(
    result: &DeviceRequestAllocationResult,
    names: &RequestNames<'_>,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    names.check_reference(&result.request, &path.child("request"), errors);
    check_driver_name(&result.driver, &path.child("driver"), errors);
    check_pool_name(&result.pool, &path.child("pool"), errors);
    errors.invalid_each(&path.child("device"), &result.device, names::dns_label(&result.device));
    check_tolerations(&result.tolerations, &path.child("tolerations"), errors);
    if let Some(share) = &result.share_id {
        errors.invalid_each(&path.child("shareID"), share, names::uuid(share));
    }
    check_binding_conditions(&result.binding_conditions, &result.binding_failure_conditions, path, errors);
    check_skip_node_operations(&result.skip_node_operations, false, &path.child("skipNodeOperations"), errors);
}

/// S32, S33.
fn check_config(entry: &DeviceAllocationConfiguration, names: &RequestNames<'_>, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let source = path.child("source");
    if entry.source.is_empty() {
        errors.required(&source, "");
    } else if !entry.source.is_known() {
        errors.not_supported(&source, entry.source.as_str(), &AllocationConfigSource::supported());
    }
    names.check_references(&entry.requests, &path.child("requests"), errors);
    check_opaque(entry.opaque.as_ref(), true, path, errors);
}
