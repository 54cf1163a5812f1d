//! Rules for metadata (M1–M5), the same for every kind. Source: `k8s.io/apimachinery/pkg/api/validation`.

use std::collections::BTreeSet;

use super::common::{IMMUTABLE, check_label_key, check_label_value};
use crate::field_path::{FieldErrors, FieldPath};
use crate::meta::{ObjectMeta, OwnerReference, TextMap};
use crate::names;

/// Bytes of all annotations of an object, keys and values.
const ANNOTATIONS_SIZE_MAX: usize = 256 * 1024;

/// Finalizers that an error names.
const FINALIZERS_SHOWN: usize = 16;

const METADATA: FieldPath<'static> = FieldPath::root("metadata");

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Cluster,
    Namespace,
}

/// Metadata of a new object, after its name was generated if it was to be.
pub(super) fn check_create(meta: &ObjectMeta, scope: Scope, errors: &mut FieldErrors) {
    check_name(meta, errors);
    check_namespace(meta, scope, errors);
    check_generation(meta, errors);
    check_changeable(meta, errors);
    check_finalizers(&meta.finalizers, &METADATA.child("finalizers"), errors);
}

/// Metadata of a changed object.
pub(super) fn check_update(new: &ObjectMeta, old: &ObjectMeta, errors: &mut FieldErrors) {
    let finalizers = METADATA.child("finalizers");
    if old.is_deleted() {
        let stored: BTreeSet<&String> = old.finalizers.iter().collect();
        let added = new.finalizers.iter().filter(|finalizer| !stored.contains(finalizer));
        let added: Vec<&String> = added.take(FINALIZERS_SHOWN).collect();
        if !added.is_empty() {
            let detail = format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}");
            errors.forbidden(&finalizers, detail);
        }
    }
    check_generation(new, errors);
    if new.generation < old.generation {
        errors.invalid(&METADATA.child("generation"), new.generation, "must not be decremented");
    }
    check_same(&new.name, &old.name, "name", errors);
    check_same(&new.namespace, &old.namespace, "namespace", errors);
    check_same(&new.uid, &old.uid, "uid", errors);
    check_same(&new.creation_timestamp, &old.creation_timestamp, "creationTimestamp", errors);
    check_same(&new.deletion_timestamp, &old.deletion_timestamp, "deletionTimestamp", errors);
    let (grace, stored_grace) = (new.deletion_grace_period_seconds, old.deletion_grace_period_seconds);
    check_same(&grace, &stored_grace, "deletionGracePeriodSeconds", errors);
    check_changeable(new, errors);
}

/// An update that does not say which version it changes, for kinds that refuse that.
pub(super) fn check_has_resource_version(meta: &ObjectMeta, errors: &mut FieldErrors) {
    if meta.resource_version.is_none() {
        errors.invalid(&METADATA.child("resourceVersion"), "", "must be specified for an update");
    }
}

/// T1, T2: metadata of objects that are made from a template: labels and annotations only.
pub(super) fn check_template(meta: &ObjectMeta, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_annotations(&meta.annotations, &path.child("annotations"), errors);
    check_labels(&meta.labels, &path.child("labels"), errors);
    let set = [
        ("name", !meta.name.is_empty()),
        ("generateName", !meta.generate_name.is_empty()),
        ("namespace", !meta.namespace.is_empty()),
        ("uid", meta.uid.is_some()),
        ("resourceVersion", meta.resource_version.is_some()),
        ("generation", meta.generation != 0),
        ("creationTimestamp", meta.creation_timestamp.is_some()),
        ("deletionTimestamp", meta.deletion_timestamp.is_some()),
        ("deletionGracePeriodSeconds", meta.deletion_grace_period_seconds.is_some()),
        ("ownerReferences", !meta.owner_references.is_empty()),
        ("finalizers", !meta.finalizers.is_empty()),
        ("managedFields", meta.managed_fields.is_some()),
    ];
    for (field, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
        errors.forbidden(&path.child(field), "cannot be set");
    }
}

fn check_name(meta: &ObjectMeta, errors: &mut FieldErrors) {
    if !meta.generate_name.is_empty() {
        // A trailing dash is fine: the generated part comes after it.
        let prefix = format!("{}x", meta.generate_name);
        errors.invalid_each(
            &METADATA.child("generateName"),
            &meta.generate_name,
            names::dns_subdomain(&prefix),
        );
    }
    let path = METADATA.child("name");
    if meta.name.is_empty() {
        errors.required(&path, "name or generateName is required");
    } else {
        errors.invalid_each(&path, &meta.name, names::dns_subdomain(&meta.name));
    }
}

fn check_namespace(meta: &ObjectMeta, scope: Scope, errors: &mut FieldErrors) {
    let path = METADATA.child("namespace");
    match scope {
        Scope::Namespace if meta.namespace.is_empty() => errors.required(&path, ""),
        Scope::Namespace => errors.invalid_each(&path, &meta.namespace, names::dns_label(&meta.namespace)),
        Scope::Cluster if !meta.namespace.is_empty() => errors.forbidden(&path, "not allowed on this type"),
        Scope::Cluster => {}
    }
}

fn check_generation(meta: &ObjectMeta, errors: &mut FieldErrors) {
    if meta.generation < 0 {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&METADATA.child("generation"), meta.generation, detail);
    }
}

/// What clients may change at any time.
fn check_changeable(meta: &ObjectMeta, errors: &mut FieldErrors) {
    check_labels(&meta.labels, &METADATA.child("labels"), errors);
    check_annotations(&meta.annotations, &METADATA.child("annotations"), errors);
    check_owners(&meta.owner_references, &METADATA.child("ownerReferences"), errors);
}

fn check_same<T: PartialEq + serde::Serialize>(new: &T, old: &T, field: &str, errors: &mut FieldErrors) {
    if new != old {
        errors.invalid(&METADATA.child(field), new, IMMUTABLE);
    }
}

fn check_labels(labels: &TextMap, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    for (key, value) in labels {
        check_label_key(key, path, errors);
        check_label_value(value, path, errors);
    }
}

/// Annotation keys are label keys in any case.
fn check_annotations(annotations: &TextMap, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    for key in annotations.keys() {
        errors.invalid_each(path, key, names::label_key(&key.to_lowercase()));
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > ANNOTATIONS_SIZE_MAX {
        errors.too_long(path, ANNOTATIONS_SIZE_MAX);
    }
}

fn check_owners(owners: &[OwnerReference], path: &FieldPath<'_>, errors: &mut FieldErrors) {
    for (at, owner) in owners.iter().enumerate() {
        check_owner(owner, &path.index(at), errors);
    }
    // One error, not one for each further controller as upstream has it: its value is the whole list.
    let mut controllers = owners.iter().filter(|owner| owner.controller == Some(true));
    if let (Some(first), Some(other)) = (controllers.next(), controllers.next()) {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
            first.kind, first.name, other.kind, other.name
        );
        errors.invalid(path, owners, detail);
    }
}

fn check_owner(owner: &OwnerReference, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let required = [
        ("apiVersion", &owner.api_version),
        ("kind", &owner.kind),
        ("name", &owner.name),
        ("uid", &owner.uid),
    ];
    for (field, _) in required.into_iter().filter(|(_, text)| text.is_empty()) {
        errors.required(&path.child(field), "must not be empty");
    }
    let parts: Vec<&str> = owner.api_version.split('/').collect();
    let well_formed = parts.len() <= 2 && parts.last().is_some_and(|version| !version.is_empty());
    if !owner.api_version.is_empty() && !well_formed {
        let detail = "must be <group>/<version> or <version>";
        errors.invalid(&path.child("apiVersion"), &owner.api_version, detail);
    }
    if owner.api_version == "v1" && owner.kind == "Event" {
        errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner");
    }
}

fn check_finalizers(finalizers: &[String], path: &FieldPath<'_>, errors: &mut FieldErrors) {
    for finalizer in finalizers {
        check_label_key(finalizer, path, errors);
    }
    let has = |wanted: &str| finalizers.iter().any(|finalizer| finalizer == wanted);
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}
