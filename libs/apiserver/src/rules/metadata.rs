//! Rules for metadata that hold for every kind. The kinds of `resource.k8s.io` are held against the same rules once more by
//! their own validation, which works on typed objects.
//!
//! Source: `k8s.io/apimachinery/pkg/api/validation`.

use std::collections::BTreeSet;

use resource_api::field_path::{FieldError, FieldErrors, FieldPath};
use resource_api::names;
use serde_json::{Map, Value};

use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::object;
use crate::resources::{NameRule, ResourceType};
use crate::status::Status;

/// Bytes of all annotations of an object, keys and values.
pub const ANNOTATIONS_SIZE_MAX: usize = 256 * 1024;

/// Finalizers that an error names.
const FINALIZERS_SHOWN: usize = 16;

pub(super) const IMMUTABLE: &str = "field is immutable";
pub(super) const METADATA: FieldPath<'static> = FieldPath::root("metadata");

const TEXTS: [&str; 7] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
];
const NUMBERS: [&str; 2] = ["generation", "deletionGracePeriodSeconds"];
const MAPS: [&str; 2] = ["labels", "annotations"];

/// Checks that the fields of the metadata have the right types, which matters for kinds without a schema.
///
/// 400 for the first that has not.
pub fn check_shape(object: &Value) -> Result<(), Status> {
    let wrong = |field: &str, wanted: &str| Err(Status::bad_request(format!("metadata{field} must be {wanted}")));
    let metadata = match (object, object.get("metadata")) {
        (Value::Object(_), None | Some(Value::Null)) => return Ok(()),
        (Value::Object(_), Some(Value::Object(metadata))) => metadata,
        (Value::Object(_), Some(_)) => return wrong("", "an object"),
        _ => return Err(Status::bad_request("the body must be an object")),
    };
    for (field, value) in metadata.iter().filter(|(_, value)| !value.is_null()) {
        let is_map_of_texts = |map: &Map<String, Value>| map.values().all(Value::is_string);
        let is_list_of = |is_one: fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().all(is_one));
        let (fits, wanted) = match field.as_str() {
            field if TEXTS.contains(&field) => (value.is_string(), "a string"),
            field if NUMBERS.contains(&field) => (value.is_i64(), "an integer"),
            field if MAPS.contains(&field) => (value.as_object().is_some_and(is_map_of_texts), "an object of strings"),
            "finalizers" => (is_list_of(Value::is_string), "a list of strings"),
            "ownerReferences" | "managedFields" => (is_list_of(Value::is_object), "a list of objects"),
            _ => (true, ""),
        };
        if !fits {
            return wrong(&format!(".{field}"), wanted);
        }
    }
    Ok(())
}

/// 400: the object is not the one of the URL.
pub(super) fn other_name(found: &str, wanted: &str) -> Status {
    Status::bad_request(format!(
        "the name of the object ({found}) does not match the name on the URL ({wanted})"
    ))
}

/// Every rule that the metadata of a new object breaks, after its name was generated if it was to be.
pub fn check_create(object: &Value, resource: &ResourceType) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    check_name(object, resource, &mut errors);
    let (path, namespace) = (METADATA.child("namespace"), object::namespace(object));
    match resource.is_namespaced() {
        true if namespace.is_empty() => errors.required(&path, ""),
        true => errors.invalid_each(&path, namespace, names::dns_label(namespace)),
        false if !namespace.is_empty() => errors.forbidden(&path, "not allowed on this type"),
        false => {}
    }
    check_generation(object, &mut errors);
    check_changeable(object, &mut errors);
    check_finalizers(object, &mut errors);
    errors.into_vec()
}

/// Every rule that the metadata of a changed object breaks. Fields that the server restores have been restored.
pub fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    if object::deletion_timestamp(old).is_some() {
        let stored: BTreeSet<&str> = object::finalizers(old).into_iter().collect();
        let new = object::finalizers(new).into_iter();
        let added: Vec<&str> = new
            .filter(|finalizer| !stored.contains(finalizer))
            .take(FINALIZERS_SHOWN)
            .collect();
        if !added.is_empty() {
            let detail = format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}");
            errors.forbidden(&METADATA.child("finalizers"), detail);
        }
    }
    check_generation(new, &mut errors);
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let of = |object: &Value| object::at(object, &["metadata", field]).cloned().unwrap_or(Value::Null);
        let (new, old) = (of(new), of(old));
        if new != old {
            errors.invalid(&METADATA.child(field), new, IMMUTABLE);
        }
    }
    check_changeable(new, &mut errors);
    check_finalizers(new, &mut errors);
    errors.into_vec()
}

/// The rules that a name breaks.
pub fn name_rules(name: &str, rule: NameRule) -> Vec<String> {
    match rule {
        NameRule::Subdomain => names::dns_subdomain(name),
        NameRule::Label => names::dns_label(name),
        NameRule::PathSegment if matches!(name, "." | "..") => vec![format!("may not be '{name}'")],
        NameRule::PathSegment => {
            let found = ["/", "%"].into_iter().filter(|bad| name.contains(bad));
            found.map(|bad| format!("may not contain '{bad}'")).collect()
        }
    }
}

fn check_name(object: &Value, resource: &ResourceType, errors: &mut FieldErrors) {
    let prefix = object::meta_text(object, "generateName");
    if !prefix.is_empty() {
        // A trailing dash is fine: the generated part comes after it.
        let rules = name_rules(&format!("{prefix}x"), resource.name_rule);
        errors.invalid_each(&METADATA.child("generateName"), prefix, rules);
    }
    let (path, name) = (METADATA.child("name"), object::name(object));
    if name.is_empty() {
        errors.required(&path, "name or generateName is required");
    } else {
        errors.invalid_each(&path, name, name_rules(name, resource.name_rule));
    }
}

fn check_generation(object: &Value, errors: &mut FieldErrors) {
    let generation = object::generation(object);
    if generation < 0 {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&METADATA.child("generation"), generation, detail);
    }
}

/// What clients may change at any time.
fn check_changeable(object: &Value, errors: &mut FieldErrors) {
    let map = |field: &str| object::at(object, &["metadata", field]).and_then(Value::as_object);
    let path = METADATA.child("labels");
    for (key, value) in map("labels").into_iter().flatten() {
        errors.invalid_each(&path, key, names::label_key(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(&path, value, names::label_value(value));
    }
    let path = METADATA.child("annotations");
    let mut size = 0;
    for (key, value) in map("annotations").into_iter().flatten() {
        // Keys are label keys in any case.
        errors.invalid_each(&path, key, names::label_key(&key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_SIZE_MAX {
        errors.too_long(&path, ANNOTATIONS_SIZE_MAX);
    }
    check_owners(object, errors);
}

fn check_owners(object: &Value, errors: &mut FieldErrors) {
    let path = METADATA.child("ownerReferences");
    let owners = object::at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    let owners = owners.map_or(&[][..], Vec::as_slice);
    for (at, owner) in owners.iter().enumerate() {
        let path = path.index(at);
        for field in ["apiVersion", "kind", "name", "uid"] {
            if object::text_at(owner, &[field]).is_empty() {
                errors.required(&path.child(field), "must not be empty");
            }
        }
        let (api_version, kind) = (object::text_at(owner, &["apiVersion"]), object::text_at(owner, &["kind"]));
        let is_well_formed = api_version.split('/').count() <= 2 && !api_version.ends_with('/');
        if !is_well_formed {
            let detail = "must be <group>/<version> or <version>";
            errors.invalid(&path.child("apiVersion"), api_version, detail);
        }
        if api_version == "v1" && kind == "Event" {
            errors.invalid(&path, owner, "/v1, Kind=Event is disallowed from being an owner");
        }
    }
    let is_controller = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
    let mut controllers = owners.iter().filter(is_controller);
    if let (Some(first), Some(other)) = (controllers.next(), controllers.next()) {
        let named = |owner: &Value| format!("{}/{}", object::text_at(owner, &["kind"]), object::text_at(owner, &["name"]));
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            named(first),
            named(other)
        );
        errors.invalid(&path, owners, detail);
    }
}

fn check_finalizers(object: &Value, errors: &mut FieldErrors) {
    let path = METADATA.child("finalizers");
    let finalizers = object::finalizers(object);
    for finalizer in &finalizers {
        errors.invalid_each(&path, finalizer, names::label_key(finalizer));
    }
    if finalizers.contains(&FINALIZER_ORPHAN) && finalizers.contains(&FINALIZER_FOREGROUND) {
        let detail = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        errors.invalid(&path, &finalizers, detail);
    }
}
