//! Rules for device taint rules: R1–R4.

use super::common::{CONDITIONS_MAX, check_conditions, check_driver_name, check_pool_name, check_taint};
use super::meta::{self, Scope};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::names;
use crate::object::Kind;
use crate::taint::{DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector};
use crate::version::ApiVersion;

/// Every rule that a new taint rule breaks.
pub fn check_create(rule: &DeviceTaintRule) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&rule.metadata, Scope::Cluster, &mut errors);
    check_spec(&rule.spec, None, &mut errors);
    errors.into_vec()
}

/// Every rule that a taint rule changed in v1 breaks.
pub fn check_update(new: &DeviceTaintRule, old: &DeviceTaintRule) -> Vec<FieldError> {
    check_update_in(ApiVersion::V1, new, old)
}

/// Every rule that a taint rule changed in a version breaks. M4: in v1 the update must say which resource version it
/// changes.
pub fn check_update_in(version: ApiVersion, new: &DeviceTaintRule, old: &DeviceTaintRule) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    check_metadata(version, new, old, &mut errors);
    check_spec(&new.spec, Some(&old.spec), &mut errors);
    errors.into_vec()
}

/// Every rule that a status changed in v1 breaks.
pub fn check_status_update(new: &DeviceTaintRule, old: &DeviceTaintRule) -> Vec<FieldError> {
    check_status_update_in(ApiVersion::V1, new, old)
}

/// Every rule that a status changed in a version breaks; M4 as in [`check_update_in`].
pub fn check_status_update_in(version: ApiVersion, new: &DeviceTaintRule, old: &DeviceTaintRule) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    check_metadata(version, new, old, &mut errors);
    check_conditions(
        &new.status.conditions,
        CONDITIONS_MAX,
        &FieldPath::root("status").child("conditions"),
        &mut errors,
    );
    errors.into_vec()
}

fn check_metadata(version: ApiVersion, new: &DeviceTaintRule, old: &DeviceTaintRule, errors: &mut FieldErrors) {
    meta::check_update(&new.metadata, &old.metadata, errors);
    if version.needs_resource_version(Kind::DeviceTaintRule) {
        meta::check_has_resource_version(&new.metadata, errors);
    }
}

fn check_spec(spec: &DeviceTaintRuleSpec, old: Option<&DeviceTaintRuleSpec>, errors: &mut FieldErrors) {
    let path = FieldPath::root("spec");
    if let Some(selector) = &spec.device_selector {
        check_selector(selector, &path.child("deviceSelector"), errors);
    }
    check_taint(&spec.taint, old.map(|old| &old.taint), &path.child("taint"), errors);
}

fn check_selector(selector: &DeviceTaintSelector, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if let Some(driver) = &selector.driver {
        check_driver_name(driver, &path.child("driver"), errors);
    }
    if let Some(pool) = &selector.pool {
        check_pool_name(pool, &path.child("pool"), errors);
    }
    if let Some(device) = &selector.device {
        errors.invalid_each(&path.child("device"), device, names::dns_label(device));
    }
}
