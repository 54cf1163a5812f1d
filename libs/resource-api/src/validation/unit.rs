//! Rules for units, Dray's own kind: 1 to 32 different claims, a client, a spec that never changes.

use super::common::{IMMUTABLE, check_count, check_unique};
use super::meta::{self, Scope};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::ids::Uid;
use crate::names;
use crate::shard::SHARDS;
use crate::unit::{UNIT_CLAIMS_MAX, Unit, UnitClaim, UnitPhase, UnitSpec, UnitStatus};

/// Bytes of a client's name.
const CLIENT_ID_LENGTH_MAX: usize = 253;

/// Every rule that a new unit breaks.
pub fn check_create(unit: &Unit) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&unit.metadata, Scope::Namespace, &mut errors);
    check_name_is_uid(unit, &mut errors);
    check_spec(&unit.spec, &mut errors);
    check_status(&unit.status, &mut errors);
    errors.into_vec()
}

/// Every rule that a changed unit breaks: its spec is immutable.
pub fn check_update(new: &Unit, old: &Unit) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    if new.spec != old.spec {
        errors.invalid(&FieldPath::root("spec"), &new.spec, IMMUTABLE);
    }
    errors.into_vec()
}

/// Every rule that a changed status breaks.
pub fn check_status_update(new: &Unit, old: &Unit) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    check_status(&new.status, &mut errors);
    errors.into_vec()
}

fn check_name_is_uid(unit: &Unit, errors: &mut FieldErrors) {
    let name = &unit.metadata.name;
    if unit.metadata.uid.is_none_or(|uid| uid.to_string() != *name) {
        errors.invalid(
            &FieldPath::root("metadata").child("name"),
            name,
            "must be the uid of the unit",
        );
    }
}

fn check_spec(spec: &UnitSpec, errors: &mut FieldErrors) {
    let path = FieldPath::root("spec");
    let client = path.child("clientId");
    if spec.client_id.is_empty() {
        errors.required(&client, "");
    } else if spec.client_id.len() > CLIENT_ID_LENGTH_MAX {
        errors.too_long(&client, CLIENT_ID_LENGTH_MAX);
    }
    if spec.home_shard >= SHARDS {
        errors.invalid(
            &path.child("homeShard"),
            spec.home_shard,
            format!("must be less than {SHARDS}"),
        );
    }
    let claims = path.child("claims");
    if spec.claims.is_empty() {
        errors.required(&claims, "a unit has at least one claim");
    }
    if check_count(spec.claims.len(), UNIT_CLAIMS_MAX, &claims, errors) {
        for (at, claim) in spec.claims.iter().enumerate() {
            check_claim(claim, &claims.index(at), errors);
        }
        check_unique(&spec.claims, |claim| &claim.name, |claim| &claim.name, &claims, errors);
    }
}

fn check_claim(claim: &UnitClaim, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(&path.child("name"), &claim.name, names::dns_subdomain(&claim.name));
    if claim.uid == Uid::NONE {
        errors.required(&path.child("uid"), "must be the uid of the claim");
    }
}

fn check_status(status: &UnitStatus, errors: &mut FieldErrors) {
    let path = FieldPath::root("status");
    let node = path.child("node");
    match &status.phase {
        UnitPhase::Pending | UnitPhase::Releasing => {}
        UnitPhase::Allocated if status.node.as_deref().is_none_or(str::is_empty) => {
            errors.required(&node, "an allocated unit is on a node");
        }
        UnitPhase::Allocated => {}
        UnitPhase::Other(phase) => errors.not_supported(&path.child("phase"), phase, &UnitPhase::supported()),
    }
}
