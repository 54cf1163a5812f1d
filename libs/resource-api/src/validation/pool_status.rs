//! Rules for pool status requests: P1–P8.

use super::ValidationContext;
use super::common::{
    IMMUTABLE, check_conditions, check_count, check_fully_qualified_name, check_length, check_pool_segments, check_unique,
};
use super::meta::{self, Scope};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::gates::Gate;
use crate::names;
use crate::pool_status::{
    LIMIT_MAX, PartitionTypeStatus, PoolStatus, ResourcePoolStatusRequest, ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus, ShareableCapacityStatus, ShareableSummaryStatus,
};

/// API limit on pools in an answer.
const POOLS_MAX: usize = 1000;
/// API limit on conditions of an answer.
const CONDITIONS_MAX: usize = 10;
/// API limit on sorts of partitions of a pool.
const PARTITION_TYPES_MAX: usize = 32;
/// API limit on shareable capacities of a pool.
const CAPACITIES_MAX: usize = 32;
/// API limit on why a pool cannot be counted, bytes.
const VALIDATION_ERROR_LENGTH_MAX: usize = 256;

/// Every rule that a new request breaks.
pub fn check_create(request: &ResourcePoolStatusRequest, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&request.metadata, Scope::Cluster, &mut errors);
    check_spec(&request.spec, ctx, &FieldPath::root("spec"), &mut errors);
    errors.into_vec()
}

/// Every rule that a changed request breaks: its spec is immutable and is not looked at again. M4: the update must say
/// which resource version it changes.
pub fn check_update(new: &ResourcePoolStatusRequest, old: &ResourcePoolStatusRequest) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    meta::check_has_resource_version(&new.metadata, &mut errors);
    if new.spec != old.spec {
        errors.invalid(&FieldPath::root("spec"), (), IMMUTABLE);
    }
    errors.into_vec()
}

/// Every rule that an answer breaks. It is given once and not taken back.
pub fn check_status_update(new: &ResourcePoolStatusRequest, old: &ResourcePoolStatusRequest) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    meta::check_has_resource_version(&new.metadata, &mut errors);
    let path = FieldPath::root("status");
    match (&new.status, &old.status) {
        (new, Some(_)) if *new != old.status => errors.invalid(&path, new, IMMUTABLE),
        (Some(status), None) => check_status(status, &path, &mut errors),
        _ => {}
    }
    errors.into_vec()
}

/// P1–P4.
fn check_spec(spec: &ResourcePoolStatusRequestSpec, ctx: &ValidationContext<'_>, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_driver(&spec.driver, &path.child("driver"), errors);
    if let Some(pool) = &spec.pool_name {
        check_pool_segments(pool, &path.child("poolName"), errors);
    }
    let limit = path.child("limit");
    match spec.limit {
        None => errors.required(&limit, ""),
        Some(n) if n < 1 => errors.invalid(&limit, n, "must be greater than or equal to 1"),
        Some(n) if n > LIMIT_MAX => errors.invalid(&limit, n, format!("must be less than or equal to {LIMIT_MAX}")),
        Some(_) => {}
    }
    if let Some(name) = &spec.default_partition_type_attribute {
        let path = path.child("defaultPartitionTypeAttribute");
        if ctx.gates.is_on(Gate::DRAPartitionableDevicesType) {
            check_fully_qualified_name(name, &path, errors);
        } else {
            errors.forbidden(&path, "");
        }
    }
}

/// A DNS subdomain in any case; unlike elsewhere it may be longer than a driver's name.
fn check_driver(driver: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if driver.is_empty() {
        errors.required(path, "");
    } else {
        errors.invalid_each(path, driver, names::dns_subdomain(&driver.to_ascii_lowercase()));
    }
}

/// P7, P8.
fn check_status(status: &ResourcePoolStatusRequestStatus, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_number(status.pool_count, 0, &path.child("poolCount"), errors);
    let pools = path.child("pools");
    if check_count(status.pools.len(), POOLS_MAX, &pools, errors) {
        for (at, pool) in status.pools.iter().enumerate() {
            check_pool(pool, &pools.index(at), errors);
        }
    }
    check_conditions(&status.conditions, CONDITIONS_MAX, &path.child("conditions"), errors);
}

fn check_pool(pool: &PoolStatus, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_driver(&pool.driver, &path.child("driver"), errors);
    if pool.pool_name.is_empty() {
        errors.required(&path.child("poolName"), "");
    } else {
        check_pool_segments(&pool.pool_name, &path.child("poolName"), errors);
    }
    let generation = path.child("generation");
    match pool.generation {
        0 => errors.required(&generation, ""),
        n if n < 0 => errors.invalid(&generation, n, "must be greater than or equal to 0"),
        _ => {}
    }
    for (field, count, least) in [
        ("resourceSliceCount", pool.resource_slice_count, 1),
        ("totalDevices", pool.total_devices, 0),
        ("allocatedDevices", pool.allocated_devices, 0),
        ("availableDevices", pool.available_devices, 0),
        ("unavailableDevices", pool.unavailable_devices, 0),
    ] {
        if count.is_some() {
            check_number(count, least, &path.child(field), errors);
        }
    }
    if let Some(node) = &pool.node_name {
        errors.invalid_each(&path.child("nodeName"), node, names::dns_subdomain(node));
    }
    if let Some(text) = &pool.validation_error {
        check_length(text, VALIDATION_ERROR_LENGTH_MAX, &path.child("validationError"), errors);
    }
    check_partitions(&pool.partition_summary, &path.child("partitionSummary"), errors);
    if let Some(summary) = &pool.shareable_summary {
        check_shareable(summary, &path.child("shareableSummary"), errors);
    }
}

fn check_partitions(partitions: &[PartitionTypeStatus], path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if !check_count(partitions.len(), PARTITION_TYPES_MAX, path, errors) {
        return;
    }
    check_unique(
        partitions,
        |partition| (&partition.attribute, &partition.kind),
        |partition| partition,
        path,
        errors,
    );
    for (at, partition) in partitions.iter().enumerate() {
        let path = path.index(at);
        for (field, text) in [("attribute", &partition.attribute), ("type", &partition.kind)] {
            if text.is_empty() {
                errors.required(&path.child(field), "");
            }
        }
        check_number(partition.total, 0, &path.child("total"), errors);
        check_number(partition.allocatable, 0, &path.child("allocatable"), errors);
    }
}

fn check_shareable(summary: &ShareableSummaryStatus, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let (fully, partially) = (summary.fully_available_devices, summary.partially_available_devices);
    check_number(fully, 0, &path.child("fullyAvailableDevices"), errors);
    check_number(partially, 0, &path.child("partiallyAvailableDevices"), errors);
    let capacity = path.child("capacity");
    if check_count(summary.capacity.len(), CAPACITIES_MAX, &capacity, errors) {
        for (at, entry) in summary.capacity.iter().enumerate() {
            check_capacity(entry, &capacity.index(at), errors);
        }
    }
}

fn check_capacity(entry: &ShareableCapacityStatus, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let required = [
        ("name", !entry.name.is_empty()),
        ("total", entry.total.is_some()),
        ("consumed", entry.consumed.is_some()),
        ("available", entry.available.is_some()),
    ];
    for (field, _) in required.into_iter().filter(|(_, is_set)| !is_set) {
        errors.required(&path.child(field), "");
    }
}

/// A number that must be there and at least `least`.
fn check_number(number: Option<i32>, least: i32, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    match number {
        None => errors.required(path, ""),
        Some(n) if n < least => errors.invalid(path, n, format!("must be greater than or equal to {least}")),
        Some(_) => {}
    }
}
