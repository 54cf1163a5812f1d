//! What a create does to an object before it is validated and stored.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{FINALIZER_NAMESPACE, metadata, seconds, settle_namespace, tidy_metadata};
use crate::object;
use crate::resources::{Deletion, Generation, ResourceType};
use crate::status::{GroupResource, Status};

/// How often a create with a generated name is tried while the name is taken.
pub const GENERATED_NAME_TRIES: usize = 8;

/// Characters of a generated name: no vowels, so that no words come out.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const PREFIX_BYTES_MAX: usize = 63 - SUFFIX_LENGTH;

/// What a new object gets.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    pub resource: &'a ResourceType,
    /// Of the URL; empty for cluster kinds.
    pub namespace: &'a str,
    /// Of the URL, if the object is created by PUT or apply.
    pub name: Option<&'a str>,
    pub uid: &'a str,
    pub now: Timestamp,
    /// Random numbers for a generated name.
    pub random: [u32; SUFFIX_LENGTH],
}

/// Makes an object of a body into one that can be validated by its kind and stored.
///
/// The server's fields are set or cleared whatever the client says; the status is cleared if it has a path of its own.
///
/// 400 if name or namespace are not those of the URL; 500 if the body has a version; 422 for metadata that breaks rules, see
/// [`metadata::check_create`]: kinds with a stricter validation of their own repeat these.
pub fn prepare_create(object: &mut Value, creation: &Creation<'_>) -> Result<(), Status> {
    let resource = creation.resource;
    metadata::check_shape(object)?;
    settle_namespace(object, creation.namespace)?;
    if let Some(name) = creation.name.filter(|name| *name != object::name(object)) {
        return Err(metadata::other_name(object::name(object), name));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        object::set_meta(object, field, None);
    }
    object::set_meta_text(object, "uid", creation.uid);
    object::set_meta(object, "creationTimestamp", Some(seconds(creation.now)));
    let prefix = object::meta_text(object, "generateName").to_owned();
    if object::name(object).is_empty() && !prefix.is_empty() {
        object::set_meta_text(object, "name", &generated_name(&prefix, creation.random));
    }
    match resource.generation {
        Generation::Unmanaged => {}
        Generation::One | Generation::Spec | Generation::SpecAndAnnotations | Generation::OutsideMetadata => {
            object::set_meta(object, "generation", Some(json!(1)));
        }
    }
    tidy_metadata(object);
    reset_status(object, resource);
    let errors = metadata::check_create(object, resource);
    if !errors.is_empty() {
        return Err(Status::invalid(resource.group_kind(), object::name(object), &errors));
    }
    // Only now, as upstream: a bad object is told what is wrong with it first.
    if !object::resource_version(object).is_empty() {
        return Err(Status::resource_version_on_create());
    }
    Ok(())
}

/// Checks that a namespace takes new objects. `namespace`: its name and what is stored of it. `name`: of the new object, if it
/// has one.
///
/// 404 if it does not exist, 403 if it is being deleted.
pub fn check_namespace(resource: &ResourceType, name: &str, namespace: (&str, Option<&Value>)) -> Result<(), Status> {
    let (namespace, stored) = namespace;
    let Some(stored) = stored else {
        return Err(Status::not_found(GroupResource::new("", "namespaces"), namespace));
    };
    let is_ending =
        object::deletion_timestamp(stored).is_some() || object::text_at(stored, &["status", "phase"]) == "Terminating";
    if is_ending {
        return Err(Status::namespace_terminating(resource.group_resource(), name, namespace));
    }
    Ok(())
}

/// The answer to a create whose name is taken by `existing`, if that is still there. `is_generated`: the server chose the name,
/// and tried [`GENERATED_NAME_TRIES`] of them.
pub fn name_taken(resource: &ResourceType, name: &str, is_generated: bool, existing: Option<&Value>) -> Status {
    let resource = resource.group_resource();
    if is_generated {
        return Status::generated_name_taken(resource, name);
    }
    match existing.and_then(object::deletion_timestamp) {
        Some(_) => Status::still_being_deleted(resource, name),
        None => Status::already_exists(resource, name),
    }
}

/// A prefix and five random characters, 63 bytes at most.
pub fn generated_name(prefix: &str, random: [u32; SUFFIX_LENGTH]) -> String {
    let mut name = prefix[..prefix.floor_char_boundary(PREFIX_BYTES_MAX)].to_owned();
    name.extend(random.iter().map(|number| {
        let at = *number as usize % SUFFIX_ALPHABET.len();
        char::from(SUFFIX_ALPHABET[at])
    }));
    name
}

fn reset_status(object: &mut Value, resource: &ResourceType) {
    if resource.has_status() && !resource.create_takes_status {
        object::set_field(object, "status", None);
    }
    match resource.deletion {
        Deletion::Namespace => {
            object::set_field(object, "status", Some(json!({"phase": "Active"})));
            set_namespace_finalizer(object);
            let name = json!(object::name(object));
            if let Some(labels) = object::meta_mut(object).map(|metadata| metadata.entry("labels").or_insert_with(|| json!({}))) {
                object::set_field(labels, "kubernetes.io/metadata.name", Some(name));
            }
        }
        Deletion::Graceful => object::set_field(object, "status", Some(json!({"phase": "Pending"}))),
        Deletion::Plain | Deletion::Uncollected => {}
    }
}

/// A namespace is not gone before its content is.
fn set_namespace_finalizer(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    if !spec.is_object() {
        *spec = json!({});
    }
    let given = spec.get("finalizers").and_then(Value::as_array).cloned();
    let mut finalizers = given.unwrap_or_default();
    let wanted = json!(FINALIZER_NAMESPACE);
    if !finalizers.contains(&wanted) {
        finalizers.push(wanted);
    }
    object::set_field(spec, "finalizers", Some(Value::Array(finalizers)));
}
