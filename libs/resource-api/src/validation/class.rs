//! Rules for device classes: D1–D4.

use super::common::{check_count, check_opaque, check_selectors};
use super::meta::{self, Scope};
use super::{ExpressionMode, ValidationContext};
use crate::class::{DeviceClass, DeviceClassSpec};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::names;

/// API limit: `DeviceConfigMaxSize`.
const CONFIG_MAX: usize = 32;

/// Every rule that a new class breaks.
pub fn check_create(class: &DeviceClass, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&class.metadata, Scope::Cluster, &mut errors);
    check_spec(&class.spec, None, ctx, &mut errors);
    errors.into_vec()
}

/// Every rule that a changed class breaks. Lists that are as stored may break rules that came later.
pub fn check_update(new: &DeviceClass, old: &DeviceClass, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    check_spec(&new.spec, Some(&old.spec), ctx, &mut errors);
    errors.into_vec()
}

fn check_spec(spec: &DeviceClassSpec, old: Option<&DeviceClassSpec>, ctx: &ValidationContext<'_>, errors: &mut FieldErrors) {
    let path = FieldPath::root("spec");
    // Reordering counts as a change.
    let stored = old.is_some_and(|old| old.selectors == spec.selectors);
    let mode = if stored { ExpressionMode::Stored } else { ExpressionMode::New };
    check_selectors(&spec.selectors, mode, &path.child("selectors"), ctx, errors);
    let config = path.child("config");
    if check_count(spec.config.len(), CONFIG_MAX, &config, errors) {
        let sized = old.is_none_or(|old| old.config != spec.config);
        for (at, entry) in spec.config.iter().enumerate() {
            check_opaque(entry.opaque.as_ref(), sized, &config.index(at), errors);
        }
    }
    if let Some(name) = &spec.extended_resource_name {
        errors.invalid_each(&path.child("extendedResourceName"), name, names::extended_resource_name(name));
    }
}
