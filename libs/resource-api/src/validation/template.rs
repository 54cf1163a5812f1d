//! Rules for claim templates: T1–T5.

use super::ValidationContext;
use super::claim;
use super::common::IMMUTABLE;
use super::meta::{self, Scope};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::template::{ResourceClaimTemplate, ResourceClaimTemplateSpec};

const SPEC: FieldPath<'static> = FieldPath::root("spec");

/// Every rule that a new template breaks, except about admin access.
pub fn check_create(template: &ResourceClaimTemplate, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&template.metadata, Scope::Namespace, &mut errors);
    check_spec(&template.spec, ctx, &mut errors);
    errors.into_vec()
}

/// Every rule that a changed template breaks. The spec must be the stored one and keep today's rules (T4, T5).
pub fn check_update(new: &ResourceClaimTemplate, old: &ResourceClaimTemplate, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    check_spec(&new.spec, ctx, &mut errors);
    if new.spec != old.spec {
        errors.invalid(&SPEC, &new.spec, IMMUTABLE);
    }
    errors.into_vec()
}

fn check_spec(spec: &ResourceClaimTemplateSpec, ctx: &ValidationContext<'_>, errors: &mut FieldErrors) {
    meta::check_template(&spec.metadata, &SPEC.child("metadata"), errors);
    claim::check_spec(&spec.spec, &SPEC.child("spec"), ctx, errors);
}
