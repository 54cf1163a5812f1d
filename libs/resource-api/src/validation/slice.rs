//! Rules for resource slices: L1–L58 and LU1–LU3.

use std::collections::BTreeMap;

use super::ValidationContext;
use super::capacity::{self, Sharing};
use super::common::{
    IMMUTABLE, check_binding_conditions, check_count, check_driver_name, check_fully_qualified_name, check_keys, check_length,
    check_pool_name, check_qualified_name, check_required_label, check_skip_node_operations, check_taint, check_unique,
};
use super::meta::{self, Scope};
use super::node_selector;
use crate::device::{
    AttributeValue, Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption, NodeAllocatableMapping,
    NodeAllocatableOverhead, NodeAllocatableResource,
};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::names;
use crate::node::NodeSelector;
use crate::quantity::Quantity;
use crate::slice::{ResourcePool, ResourceSlice, ResourceSliceSpec};

/// API limit: `ResourceSliceMaxDevices`.
pub const DEVICES_MAX: usize = 128;
/// API limit: `ResourceSliceMaxDevicesWithAdvancedFeatures`: some device has a taint, consumes counters or has a list.
pub const ADVANCED_DEVICES_MAX: usize = 64;
/// API limit: `ResourceSliceMaxAttributesAndCapacitiesPerDevice`.
const ATTRIBUTES_AND_CAPACITIES_MAX: usize = 32;
/// API limit: `ResourceSliceMaxAttributeValuesPerDevice`; a list counts its length.
const ATTRIBUTE_VALUES_MAX: usize = 48;
/// API limit: `DeviceAttributeMaxValueLength`, bytes.
const ATTRIBUTE_LENGTH_MAX: usize = 64;
/// API limit: `DeviceTaintsMaxLength`.
const TAINTS_MAX: usize = 16;
/// API limit: `ResourceSliceMaxCounterSets`.
const COUNTER_SETS_MAX: usize = 8;
/// API limits: `ResourceSliceMaxCountersPerCounterSet`, `ResourceSliceMaxCountersPerDeviceCounterConsumption`.
const COUNTERS_MAX: usize = 32;
/// API limit: `ResourceSliceMaxDeviceCounterConsumptionsPerDevice`.
const COUNTER_CONSUMPTIONS_MAX: usize = 2;
/// API limit on compatibility groups of a consumption.
const COMPATIBILITY_GROUPS_MAX: usize = 2;

const SPEC: FieldPath<'static> = FieldPath::root("spec");

/// Every rule that a new slice breaks.
pub fn check_create(slice: &ResourceSlice, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&slice.metadata, Scope::Cluster, &mut errors);
    check_spec(&slice.spec, None, ctx, &mut errors);
    errors.into_vec()
}

/// Every rule that a changed slice breaks. Devices are paired with the stored ones by name; of an unchanged device,
/// taints and capacity are not checked again.
pub fn check_update(new: &ResourceSlice, old: &ResourceSlice, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    check_immutable(&new.spec, &old.spec, &mut errors);
    check_spec(&new.spec, Some(&old.spec), ctx, &mut errors);
    errors.into_vec()
}

/// What a driver should change although it is accepted. Shown as warnings to the client.
pub fn warnings(slice: &ResourceSlice) -> Vec<String> {
    let driver = &slice.spec.driver;
    let has_upper_case = driver.bytes().any(|byte| byte.is_ascii_uppercase());
    let text = format!(
        "spec.driver: driver names should be lowercase; {:?} contains uppercase characters",
        driver.as_str()
    );
    if has_upper_case { vec![text] } else { Vec::new() }
}

/// LU1, LU2.
fn check_immutable(new: &ResourceSliceSpec, old: &ResourceSliceSpec, errors: &mut FieldErrors) {
    if new.driver != old.driver {
        errors.invalid(&SPEC.child("driver"), &new.driver, IMMUTABLE);
    }
    if new.pool.name != old.pool.name {
        errors.invalid(&SPEC.child("pool").child("name"), &new.pool.name, IMMUTABLE);
    }
    if new.node_name != old.node_name {
        errors.invalid(&SPEC.child("nodeName"), &new.node_name, IMMUTABLE);
    }
}

fn check_spec(spec: &ResourceSliceSpec, old: Option<&ResourceSliceSpec>, ctx: &ValidationContext<'_>, errors: &mut FieldErrors) {
    check_driver_name(&spec.driver, &SPEC.child("driver"), errors);
    check_pool(&spec.pool, &SPEC.child("pool"), errors);
    check_nodes(spec, errors);
    if spec.shared_counters.is_some() && spec.devices.is_some() {
        errors.invalid(&SPEC, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    check_devices(spec, old, ctx, errors);
    check_shared_counters(spec.shared_counters(), &SPEC.child("sharedCounters"), errors);
    if let Some(name) = &spec.partition_type_attribute {
        let unchanged = old.is_some_and(|old| old.partition_type_attribute.as_ref() == Some(name));
        check_partition_type(spec, name, unchanged, errors);
    }
    let unchanged = old.is_some_and(|old| old.skip_node_operations == spec.skip_node_operations);
    let operations = SPEC.child("skipNodeOperations");
    check_skip_node_operations(&spec.skip_node_operations, unchanged, &operations, errors);
}

/// L2–L4.
fn check_pool(pool: &ResourcePool, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_pool_name(&pool.name, &path.child("name"), errors);
    if pool.resource_slice_count <= 0 {
        errors.invalid(
            &path.child("resourceSliceCount"),
            pool.resource_slice_count,
            "must be greater than zero",
        );
    }
    if pool.generation < 0 {
        errors.invalid(
            &path.child("generation"),
            pool.generation,
            "must be greater than or equal to zero",
        );
    }
}

/// L5–L10: exactly one way of naming nodes.
fn check_nodes(spec: &ResourceSliceSpec, errors: &mut FieldErrors) {
    let set = [
        check_node_name(spec.node_name.as_deref(), &SPEC.child("nodeName"), errors).then_some("`nodeName`"),
        check_selector(spec.node_selector.as_ref(), &SPEC.child("nodeSelector"), errors).then_some("`nodeSelector`"),
        check_true(spec.all_nodes, &SPEC.child("allNodes"), errors).then_some("`allNodes`"),
        check_true(spec.per_device_node_selection, &SPEC.child("perDeviceNodeSelection"), errors)
            .then_some("`perDeviceNodeSelection`"),
    ];
    if let Some(selector) = &spec.node_selector {
        check_one_term(selector, &SPEC.child("nodeSelector"), errors);
    }
    let detail = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    check_one_set(&set, detail, &SPEC, errors);
}

/// Reports if not exactly one of several fields is set.
fn check_one_set(set: &[Option<&str>], detail: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let names: Vec<&str> = set.iter().flatten().copied().collect();
    match names.as_slice() {
        [] => errors.required(path, detail),
        [_] => {}
        several => {
            let value = format!("{{{}}}", several.join(", "));
            errors.invalid(path, value, format!("{detail}, but multiple fields are set"));
        }
    }
}

/// Returns whether the field counts as set: an empty name is an error and does not.
fn check_node_name(name: Option<&str>, path: &FieldPath<'_>, errors: &mut FieldErrors) -> bool {
    match name {
        None => false,
        Some("") => {
            errors.invalid(path, "", "must be either unset or set to a non-empty string");
            false
        }
        Some(name) => {
            errors.invalid_each(path, name, names::dns_subdomain(name));
            true
        }
    }
}

/// Returns whether the field is set.
fn check_selector(selector: Option<&NodeSelector>, path: &FieldPath<'_>, errors: &mut FieldErrors) -> bool {
    if let Some(selector) = selector {
        node_selector::check(selector, path, errors);
    }
    selector.is_some()
}

/// L9: one term keeps the selectors of several devices mergeable into that of an allocation.
fn check_one_term(selector: &NodeSelector, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if selector.node_selector_terms.len() != 1 {
        let detail = "must have exactly one node selector term";
        errors.invalid(&path.child("nodeSelectorTerms"), &selector.node_selector_terms, detail);
    }
}

/// Returns whether the field counts as set: `false` is an error and does not.
fn check_true(value: Option<bool>, path: &FieldPath<'_>, errors: &mut FieldErrors) -> bool {
    if value == Some(false) {
        errors.invalid(path, false, "must be either unset or set to true");
    }
    value == Some(true)
}

/// L12–L53.
fn check_devices(
    spec: &ResourceSliceSpec,
    old: Option<&ResourceSliceSpec>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) {
    let path = SPEC.child("devices");
    let devices = spec.devices();
    let max = if devices.iter().any(uses_advanced_features) {
        ADVANCED_DEVICES_MAX
    } else {
        DEVICES_MAX
    };
    if !check_count(devices.len(), max, &path, errors) {
        return;
    }
    check_unique(devices, |device| &device.name, |device| &device.name, &path, errors);
    let stored: BTreeMap<&str, &Device> = old
        .map(ResourceSliceSpec::devices)
        .unwrap_or_default()
        .iter()
        .rev()
        .map(|old| (old.name.as_str(), old))
        .collect();
    let nodes_per_device = spec.per_device_node_selection == Some(true);
    for (at, device) in devices.iter().enumerate() {
        let item = path.index(at);
        let old = stored.get(device.name.as_str()).copied();
        check_device(device, old, ctx, &item, errors);
        check_device_nodes(device, old, nodes_per_device, &item, errors);
    }
}

fn uses_advanced_features(device: &Device) -> bool {
    let has_list = |attribute: &DeviceAttribute| {
        attribute.ints.is_some() || attribute.bools.is_some() || attribute.strings.is_some() || attribute.versions.is_some()
    };
    !device.taints.is_empty() || !device.consumes_counters.is_empty() || device.attributes.values().any(has_list)
}

fn check_device(
    device: &Device,
    old: Option<&Device>,
    ctx: &ValidationContext<'_>,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    errors.invalid_each(&path.child("name"), &device.name, names::dns_label(&device.name));
    check_facts_count(device, path, errors);
    let attributes = path.child("attributes");
    check_keys(&device.attributes, &attributes, check_qualified_name, errors);
    for (name, attribute) in &device.attributes {
        check_attribute(attribute, &attributes.key(name), errors);
    }
    if old.is_none_or(|old| old.capacity != device.capacity) {
        check_capacity(device, &path.child("capacity"), ctx, errors);
    }
    if old.is_none_or(|old| old.taints != device.taints) {
        check_taints(device, &path.child("taints"), errors);
    }
    check_consumptions(device, old, &path.child("consumesCounters"), errors);
    check_binding_conditions(&device.binding_conditions, &device.binding_failure_conditions, path, errors);
    let resources = path.child("nodeAllocatableResources");
    for (name, resource) in &device.node_allocatable_resources {
        check_node_allocatable(name, resource, device, &resources.key(name), errors);
    }
}

/// L15, L16.
fn check_facts_count(device: &Device, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let facts = device.attributes.len() + device.capacity.len();
    if facts > ATTRIBUTES_AND_CAPACITIES_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}");
        errors.invalid(path, facts, detail);
    }
    // An attribute without value or with an empty list counts as one, like a scalar.
    let values: usize = device
        .attributes
        .values()
        .map(|attribute| list_length(attribute).max(1))
        .sum();
    if values > ATTRIBUTE_VALUES_MAX {
        let detail = format!("the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}");
        errors.invalid(path, values, detail);
    }
}

fn list_length(attribute: &DeviceAttribute) -> usize {
    let is_list = |value: &AttributeValue<'_>| {
        matches!(
            value,
            AttributeValue::Ints(_) | AttributeValue::Bools(_) | AttributeValue::Strings(_) | AttributeValue::Versions(_)
        )
    };
    attribute.values().filter(is_list).map(|value| value.count()).sum()
}

/// L18–L21.
fn check_attribute(attribute: &DeviceAttribute, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if let Some(text) = &attribute.string {
        check_length(text, ATTRIBUTE_LENGTH_MAX, &path.child("string"), errors);
    }
    if let Some(text) = &attribute.version {
        check_version(text, &path.child("version"), errors);
    }
    check_list(attribute.ints.as_deref(), &path.child("ints"), errors, |_, _, _| {});
    check_list(attribute.bools.as_deref(), &path.child("bools"), errors, |_, _, _| {});
    check_list(
        attribute.strings.as_deref(),
        &path.child("strings"),
        errors,
        |text, path, errors| {
            check_length(text, ATTRIBUTE_LENGTH_MAX, path, errors);
        },
    );
    check_list(
        attribute.versions.as_deref(),
        &path.child("versions"),
        errors,
        |text, path, errors| {
            check_version(text, path, errors);
        },
    );
    match attribute.values().filter(|value| value.count() > 0).count() {
        0 => errors.invalid(path, "", "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(path, attribute, "exactly one value must be specified"),
    }
}

/// L19: an empty list is no value.
fn check_list<T>(
    list: Option<&[T]>,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
    check_item: impl Fn(&T, &FieldPath<'_>, &mut FieldErrors),
) {
    if list.is_some_and(<[T]>::is_empty) {
        errors.invalid(path, serde_json::json!([]), "must not be empty if specified");
    }
    for (at, item) in list.unwrap_or_default().iter().enumerate() {
        check_item(item, &path.index(at), errors);
    }
}

fn check_version(text: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(path, text, names::version(text));
    check_length(text, ATTRIBUTE_LENGTH_MAX, path, errors);
}

fn check_capacity(device: &Device, path: &FieldPath<'_>, ctx: &ValidationContext<'_>, errors: &mut FieldErrors) {
    let sharing = if device.is_shareable() {
        Sharing::Shareable
    } else {
        Sharing::Exclusive
    };
    check_keys(&device.capacity, path, check_qualified_name, errors);
    for (name, capacity) in &device.capacity {
        capacity::check(capacity, sharing, ctx.gates, &path.key(name), errors);
    }
}

/// L35–L38.
fn check_taints(device: &Device, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if check_count(device.taints.len(), TAINTS_MAX, path, errors) {
        for (at, taint) in device.taints.iter().enumerate() {
            check_taint(taint, None, &path.index(at), errors);
        }
    }
}

/// L39–L42.
fn check_consumptions(device: &Device, old: Option<&Device>, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let consumptions = device.consumes_counters.as_slice();
    if !check_count(consumptions.len(), COUNTER_CONSUMPTIONS_MAX, path, errors) {
        return;
    }
    check_unique(
        consumptions,
        |consumption| &consumption.counter_set,
        |consumption| consumption,
        path,
        errors,
    );
    for (at, consumption) in consumptions.iter().enumerate() {
        let path = path.index(at);
        check_required_label(&consumption.counter_set, &path.child("counterSet"), errors);
        check_counters(&consumption.counters, &path.child("counters"), errors);
        if !has_stored_groups(consumption, old) {
            check_groups(&consumption.compatibility_groups, &path.child("compatibilityGroups"), errors);
        }
    }
}

fn has_stored_groups(consumption: &DeviceCounterConsumption, old: Option<&Device>) -> bool {
    let same_groups = |old: &DeviceCounterConsumption| {
        old.counter_set == consumption.counter_set && old.compatibility_groups == consumption.compatibility_groups
    };
    old.is_some_and(|old| old.consumes_counters.iter().any(same_groups))
}

fn check_counters(counters: &BTreeMap<String, Counter>, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if counters.is_empty() {
        errors.required(path, "");
    } else if check_count(counters.len(), COUNTERS_MAX, path, errors) {
        let check_key = |key: &str, path: &FieldPath<'_>, errors: &mut FieldErrors| {
            errors.invalid_each(path, key, names::dns_label(key));
        };
        check_keys(counters, path, check_key, errors);
    }
}

fn check_groups(groups: &[String], path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if check_count(groups.len(), COMPATIBILITY_GROUPS_MAX, path, errors) {
        check_unique(groups, |group| group, |group| group, path, errors);
        for (at, group) in groups.iter().enumerate() {
            errors.invalid_each(&path.index(at), group, names::dns_label(group));
        }
    }
}

/// L43–L45, and L9 for devices: upstream accepts several terms here, but its allocator then cannot use the device and
/// fails for other devices, too. A selector that is stored like that may stay.
fn check_device_nodes(
    device: &Device,
    old: Option<&Device>,
    nodes_per_device: bool,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    if nodes_per_device {
        if let Some(selector) = &device.node_selector
            && old.is_none_or(|old| old.node_selector != device.node_selector)
        {
            check_one_term(selector, &path.child("nodeSelector"), errors);
        }
        let set = [
            check_node_name(device.node_name.as_deref(), &path.child("nodeName"), errors).then_some("`nodeName`"),
            check_selector(device.node_selector.as_ref(), &path.child("nodeSelector"), errors).then_some("`nodeSelector`"),
            check_true(device.all_nodes, &path.child("allNodes"), errors).then_some("`allNodes`"),
        ];
        let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                      set to true in the ResourceSlice spec";
        check_one_set(&set, detail, path, errors);
    } else if device.node_name.is_some() || device.node_selector.is_some() || device.all_nodes.is_some() {
        let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in \
                      the ResourceSlice spec";
        errors.invalid(path, (), detail);
    }
}

/// L47, L48.
fn check_node_allocatable(
    name: &str,
    resource: &NodeAllocatableResource,
    device: &Device,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    if !matches!(name, "cpu" | "memory") && !name.starts_with("hugepages-") {
        errors.invalid(path, name, "must be a node allocatable resource name");
    }
    if resource.mapping.is_none() && resource.overhead.is_none() {
        errors.required(path, "at least one of mapping or overhead must be set");
    }
    if let Some(mapping) = &resource.mapping {
        check_mapping(mapping, device, &path.child("mapping"), errors);
    }
    if let Some(overhead) = &resource.overhead {
        check_overhead(overhead, &path.child("overhead"), errors);
    }
}

/// L49–L52.
fn check_mapping(mapping: &NodeAllocatableMapping, device: &Device, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if mapping.capacity_key.is_some() == mapping.device_multiplier.is_some() {
        errors.invalid(path, mapping, "exactly one of capacityKey or deviceMultiplier must be set");
    }
    let key_path = path.child("capacityKey");
    let multiplier_path = path.child("capacityMultiplier");
    match mapping.capacity_key.as_deref() {
        None if mapping.capacity_multiplier.is_some() => {
            errors.required(&key_path, "capacityKey is required when capacityMultiplier is set");
        }
        Some("") => errors.invalid(&key_path, "", "capacityKey must not be an empty string"),
        Some(key) if !device.capacity.contains_key(key) => errors.not_found(&key_path, key),
        None | Some(_) => {}
    }
    if mapping.capacity_key.is_some() {
        match &mapping.capacity_multiplier {
            None => errors.required(&multiplier_path, "capacityMultiplier is required when capacityKey is set"),
            Some(multiplier) => check_sign(multiplier, 1, &multiplier_path, errors),
        }
    }
    if let Some(multiplier) = &mapping.device_multiplier {
        check_sign(multiplier, 1, &path.child("deviceMultiplier"), errors);
    }
}

/// L53.
fn check_overhead(overhead: &NodeAllocatableOverhead, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if overhead.per_pod.is_none() && overhead.per_container.is_none() {
        errors.invalid(path, "", "at least one of perPod or perContainer must be set");
    }
    for (field, amount) in [("perPod", &overhead.per_pod), ("perContainer", &overhead.per_container)] {
        if let Some(amount) = amount {
            check_sign(amount, 0, &path.child(field), errors);
        }
    }
}

/// `least` is 1 for "positive" and 0 for "not negative".
fn check_sign(amount: &Quantity, least: i32, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if amount.signum() < least {
        let detail = if least > 0 {
            "must be positive"
        } else {
            "must be non-negative"
        };
        errors.invalid(path, amount, detail);
    }
}

/// L54, L55.
fn check_shared_counters(sets: &[CounterSet], path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if check_count(sets.len(), COUNTER_SETS_MAX, path, errors) {
        check_unique(sets, |set| &set.name, |set| set, path, errors);
        for (at, set) in sets.iter().enumerate() {
            let path = path.index(at);
            check_required_label(&set.name, &path.child("name"), errors);
            check_counters(&set.counters, &path.child("counters"), errors);
        }
    }
}

/// L56, L57. `unchanged`: the name is stored already and its form is not checked again.
fn check_partition_type(spec: &ResourceSliceSpec, name: &str, unchanged: bool, errors: &mut FieldErrors) {
    let path = SPEC.child("partitionTypeAttribute");
    let mut form = FieldErrors::new();
    check_fully_qualified_name(name, &path, &mut form);
    let malformed = !form.into_vec().is_empty();
    if malformed && !unchanged {
        check_fully_qualified_name(name, &path, errors);
    }
    let mut partitions = spec
        .devices()
        .iter()
        .enumerate()
        .filter(|(_, device)| !device.consumes_counters.is_empty())
        .peekable();
    if partitions.peek().is_none() {
        errors.invalid(
            &path,
            name,
            "may only be set on a slice which declares devices that consume counters",
        );
    }
    if malformed {
        return; // No device can have it; one error is enough.
    }
    let devices = SPEC.child("devices");
    for (at, device) in partitions {
        let item = devices.index(at);
        let attributes = item.child("attributes");
        check_partition(device, &spec.driver, name, &attributes.key(name), errors);
    }
}

fn check_partition(device: &Device, driver: &str, name: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let bare = name.strip_prefix(driver).and_then(|rest| rest.strip_prefix('/'));
    let attribute = device.attributes.get(name).or_else(|| device.attributes.get(bare?));
    match attribute {
        None => {
            let detail = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set";
            errors.required(path, detail);
        }
        Some(attribute) if attribute.string.is_none() => {
            let detail = "must be a string value because `partitionTypeAttribute` names this attribute";
            errors.invalid(path, attribute, detail);
        }
        Some(_) => {}
    }
}
