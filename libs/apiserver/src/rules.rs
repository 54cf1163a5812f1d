//! What a write does to the parts of an object that belong to the server, and what it may not do.
//!
//! Pure: time, uids and randomness come in as arguments; what is stored comes in as it was read. Rules of kinds are in their
//! [`ResourceType`](crate::resources::ResourceType). Validation of specs is not here.
//! Source: `k8s.io/apiserver/pkg/registry/rest`, `pkg/registry/generic/registry/store.go`.

pub mod create;
pub mod delete;
pub mod metadata;
pub mod update;

use serde_json::Value;

pub use create::{Creation, check_namespace, generated_name, name_taken, prepare_create};
pub use delete::{DeleteStep, collection_answer, decide_delete, delete_answer};
pub use update::{Origin, Part, Update, UpdateOutcome, prepare_update};

use crate::object;
use crate::status::Status;

/// The finalizer by which the garbage collector makes dependents stay.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer by which the garbage collector deletes dependents first.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a namespace's spec, removed when its content is gone.
pub const FINALIZER_NAMESPACE: &str = "kubernetes";

/// Holds the object's namespace against that of the URL, which is empty for cluster kinds, and fills it in.
///
/// 400 if they differ.
fn settle_namespace(object: &mut Value, namespace: &str) -> Result<(), Status> {
    let given = object::namespace(object);
    if !given.is_empty() && !namespace.is_empty() && given != namespace {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(text));
    }
    if given != namespace {
        object::set_meta_text(object, "namespace", namespace);
    }
    Ok(())
}

/// Removes metadata that says nothing, so that equal objects are equal values.
fn tidy_metadata(object: &mut Value) {
    let Some(metadata) = object::meta_mut(object) else { return };
    metadata.remove("selfLink");
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
}

/// An instant as objects have it: in UTC, whole seconds.
fn seconds(now: jiff::Timestamp) -> Value {
    Value::String(resource_api::Time::new(now).to_string())
}

#[cfg(test)]
mod tests;
