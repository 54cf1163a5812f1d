//! What an update does to an object before it is validated and stored, by PUT or after a patch.

use resource_api::field_path::FieldErrors;
use serde_json::{Map, Value, json};

use super::metadata::METADATA;
use super::{metadata, settle_namespace, tidy_metadata};
use crate::object;
use crate::resources::{Deletion, Generation, ResourceType, StatusMetadata};
use crate::status::{GroupResource, Status};

/// Which path an update came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object itself.
    Main,
    /// `…/status`
    Status,
    /// `…/finalize` of a namespace.
    Finalize,
}

/// How the new state came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The client sent all of it. Its uid says which incarnation it means: another one is a conflict.
    Put,
    /// A patch made it out of what is stored. Its uid is a field that cannot be changed.
    Patch,
}

/// What an update is about.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    pub resource: &'a ResourceType,
    pub part: Part,
    pub origin: Origin,
    /// Of the URL; empty for cluster kinds.
    pub namespace: &'a str,
    /// Of the URL.
    pub name: &'a str,
}

/// What is to be done with the prepared object, if it is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Nothing: answer with what is stored. No event, no new version.
    Unchanged,
    /// Store it.
    Changed,
    /// Its deletion was waiting for this: remove it. The answer is the prepared object, the event a deletion.
    Removed,
}

/// Makes a body into the next state of `old`, both in one version of the kind: the server's fields are restored, parts that the
/// path does not write are taken from `old`, and the generation counts changes.
///
/// 400 if the body is not of this object; 409 if it is of another incarnation or version; 422 if it must name a version and
/// does not, or for metadata that breaks rules, see [`metadata::check_update`]. The prepared object has the version of `old`.
pub fn prepare_update(new: &mut Value, old: &Value, update: &Update<'_>) -> Result<UpdateOutcome, Status> {
    let resource = update.resource;
    metadata::check_shape(new)?;
    let name = object::name(new);
    if name != update.name {
        return Err(metadata::other_name(name, update.name));
    }
    settle_namespace(new, update.namespace)?;
    check_incarnation(new, old, update)?;
    check_version(new, old, update)?;
    restore_parts(new, old, update);
    restore_system_fields(new, old);
    tidy_metadata(new);
    let mut tidy_old = old.clone();
    tidy_metadata(&mut tidy_old);
    let old = &tidy_old;
    count_generation(new, old, resource);
    let errors = metadata::check_update(new, old);
    if !errors.is_empty() {
        return Err(Status::invalid(resource.group_kind(), update.name, &errors));
    }
    if is_to_be_removed(new, old, resource) {
        return Ok(UpdateOutcome::Removed);
    }
    forget_new_times(new, old);
    Ok(if same(new, old) {
        UpdateOutcome::Unchanged
    } else {
        UpdateOutcome::Changed
    })
}

fn check_incarnation(new: &Value, old: &Value, update: &Update<'_>) -> Result<(), Status> {
    let (given, stored) = (object::uid(new), object::uid(old));
    if given.is_empty() || given == stored {
        return Ok(());
    }
    if update.origin == Origin::Patch {
        let mut errors = FieldErrors::new();
        errors.invalid(&METADATA.child("uid"), given, metadata::IMMUTABLE);
        return Err(Status::invalid(update.resource.group_kind(), update.name, &errors.into_vec()));
    }
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
    Err(Status::conflict(update.resource.group_resource(), update.name, &why))
}

fn check_version(new: &Value, old: &Value, update: &Update<'_>) -> Result<(), Status> {
    let resource = update.resource;
    let (given, stored) = (object::resource_version(new), object::resource_version(old));
    // Zero is how Go spells "not set".
    if given.is_empty() || given == "0" {
        if !resource.update_needs_version {
            return Ok(());
        }
        let mut errors = FieldErrors::new();
        errors.invalid(&METADATA.child("resourceVersion"), 0, "must be specified for an update");
        // Upstream has the plural where the kind belongs.
        let kind = GroupResource::new(&resource.group, &resource.plural);
        return Err(Status::invalid(kind, update.name, &errors.into_vec()));
    }
    if given.parse::<u64>().is_err() {
        return Err(Status::bad_request(format!(
            "invalid resource version: {given:?} is not a number"
        )));
    }
    if given != stored {
        return Err(Status::object_modified(resource.group_resource(), update.name));
    }
    Ok(())
}

/// Takes from `old` what this path does not write.
fn restore_parts(new: &mut Value, old: &Value, update: &Update<'_>) {
    let resource = update.resource;
    match update.part {
        Part::Main => {
            if resource.has_status() {
                object::set_field(new, "status", old.get("status").cloned());
            }
            if resource.deletion == Deletion::Namespace {
                let finalizers = object::at(old, &["spec", "finalizers"]).cloned();
                set_spec_finalizers(new, finalizers);
            }
        }
        Part::Finalize => object::set_field(new, "status", old.get("status").cloned()),
        Part::Status => {
            let status = new.get("status").cloned();
            let metadata = status_metadata(new, old, resource.status_metadata);
            // Everything else, whatever the kind calls it, is stored already.
            new.clone_from(old);
            object::set_field(new, "status", status.filter(|status| !status.is_null()));
            object::set_field(new, "metadata", Some(Value::Object(metadata)));
        }
    }
}

fn set_spec_finalizers(new: &mut Value, finalizers: Option<Value>) {
    let Some(fields) = new.as_object_mut() else { return };
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    if spec.is_null() {
        *spec = json!({});
    }
    object::set_field(spec, "finalizers", finalizers);
}

/// The metadata after a write to the status.
fn status_metadata(new: &Value, old: &Value, rule: StatusMetadata) -> Map<String, Value> {
    let fields = |object: &Value| object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let (written, stored) = (fields(new), fields(old));
    let (mut base, taken) = match rule {
        // Field ownership records this write; it is not the client's.
        StatusMetadata::Kept => (stored, (written, "managedFields")),
        StatusMetadata::WrittenButLabels => (written, (stored, "labels")),
        StatusMetadata::Written => return written,
    };
    let (from, field) = taken;
    match from.get(field) {
        Some(value) => base.insert(field.to_owned(), value.clone()),
        None => base.remove(field),
    };
    base
}

fn restore_system_fields(new: &mut Value, old: &Value) {
    let stored = |field: &str| object::at(old, &["metadata", field]).cloned();
    for field in ["generation", "uid", "resourceVersion", "namespace"] {
        object::set_meta(new, field, stored(field));
    }
    // Once set, these cannot be changed by an update; that they are not set by one is checked.
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = stored(field).filter(|value| !value.is_null()) {
            object::set_meta(new, field, Some(value));
        }
    }
}

fn count_generation(new: &mut Value, old: &Value, resource: &ResourceType) {
    let spec = |object: &Value| object.get("spec").filter(|spec| !spec.is_null()).cloned();
    let annotations = |object: &Value| object::at(object, &["metadata", "annotations"]).cloned();
    let is_changed = match resource.generation {
        Generation::Unmanaged | Generation::One => false,
        Generation::Spec => spec(new) != spec(old),
        Generation::SpecAndAnnotations => spec(new) != spec(old) || annotations(new) != annotations(old),
        Generation::OutsideMetadata => {
            let rest = |object: &Value| {
                let mut rest = object.as_object().cloned().unwrap_or_default();
                rest.remove("metadata");
                if resource.has_status() {
                    rest.remove("status");
                }
                rest
            };
            rest(new) != rest(old)
        }
    };
    if is_changed {
        let next = object::generation(old).saturating_add(1);
        object::set_meta(new, "generation", Some(json!(next)));
    }
}

/// Nothing keeps an object any more whose deletion was asked for, unless it has time left to stop.
fn is_to_be_removed(new: &Value, old: &Value, resource: &ResourceType) -> bool {
    let is_kept_by_content = resource.deletion == Deletion::Namespace
        && object::at(new, &["spec", "finalizers"])
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty());
    object::deletion_timestamp(old).is_some()
        && object::finalizers(new).is_empty()
        && object::deletion_grace(old).is_none_or(|grace| grace == 0)
        && !is_kept_by_content
}

/// That a manager wrote the same again is no change: times of field ownership count only together with something else.
fn forget_new_times(new: &mut Value, old: &Value) {
    let without_times = |object: &Value| {
        let mut object = object.clone();
        if let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
            for entry in entries {
                object::set_field(entry, "time", None);
            }
        }
        object
    };
    if new != old && without_times(new) == without_times(old) {
        new.clone_from(old);
    }
}

/// `null` and absent are the same at the top of an object.
fn same(new: &Value, old: &Value) -> bool {
    let fields = |object: &Value| {
        let mut fields = object.as_object().cloned().unwrap_or_default();
        fields.retain(|_, value| !value.is_null());
        fields
    };
    new == old || fields(new) == fields(old)
}
