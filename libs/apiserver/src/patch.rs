//! The bodies of PATCH requests that say what to change: JSON patch, JSON merge patch and strategic merge patch.
//!
//! The object is given as it is stored and comes back conforming to its kind. Server-side apply, which says what is wanted, is in
//! [`crate::apply`].

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use json::{COPIED_BYTES_MAX, OPERATIONS_MAX};

use crate::body::tree::Budget;
use crate::body::{self, BODY_BYTES_MAX, Body, BodyError, Finding, Tree, TreeError};
use crate::schema::{GroupVersionKind, Schema};

/// The kind of a patch, without server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// As [`PatchType::Merge`], with lists merged by the rules of the schema. Not for custom resources.
    Strategic,
}

/// Why a patch does not apply. The texts follow upstream's.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// 413.
    #[error("Request entity too large: limit is {BODY_BYTES_MAX}")]
    TooLarge,
    /// 413.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {found}")]
    TooManyOperations { found: usize },
    /// 400: the patch is not JSON.
    #[error("error decoding patch: {0}")]
    NotJson(#[source] TreeError),
    /// 400: the patch is JSON but no patch of the type.
    #[error("{why}")]
    Malformed { why: String },
    /// 415: the kind has no strategic merge patch.
    #[error("strategic merge patch format is not supported")]
    NotSupported,
    /// 422: the patch does not fit the object.
    #[error("{why}")]
    DoesNotApply { why: String },
    /// 422, with the cause field `patch`: what came out is not an object of the kind.
    #[error("{0}")]
    BadResult(#[source] BodyError),
}

/// Applies a patch to an object of a kind.
///
/// The findings are those of the patch (repeated keys) and of its result (unknown fields).
pub fn apply(
    schema: &Schema,
    kind: &GroupVersionKind,
    patch_type: PatchType,
    object: &Map<String, Value>,
    patch: &[u8],
) -> Result<Body, PatchError> {
    if patch.len() > BODY_BYTES_MAX {
        return Err(PatchError::TooLarge);
    }
    let tree = Tree::from_json(patch, &Budget::default()).map_err(PatchError::NotJson)?;
    let (patch, mut findings) = body::conform::untyped(tree);
    let patched = match patch_type {
        PatchType::Json => {
            findings = findings
                .into_iter()
                .map(|finding| Finding::InJsonPatch(Box::new(finding)))
                .collect();
            findings.extend(json::unknown_fields(&patch));
            json::apply(Value::Object(object.clone()), patch)?
        }
        PatchType::Merge => {
            let Value::Object(patch) = patch else {
                return Err(PatchError::Malformed {
                    why: "Invalid JSON Patch".to_owned(),
                });
            };
            Value::Object(merge::apply(object.clone(), patch))
        }
        PatchType::Strategic => {
            let message = schema.of_kind(kind).ok_or(PatchError::NotSupported)?;
            let Value::Object(patch) = patch else {
                return Err(PatchError::Malformed {
                    why: "invalid JSON document".to_owned(),
                });
            };
            Value::Object(strategic::apply(schema, message, object.clone(), patch)?)
        }
    };
    let Value::Object(patched) = patched else {
        return Err(PatchError::DoesNotApply {
            why: "the patched value is not an object".to_owned(),
        });
    };
    let mut body = body::conform(schema, kind, patched).map_err(PatchError::BadResult)?;
    findings.append(&mut body.findings);
    body.findings = findings;
    Ok(body)
}

/// A value of a patch to be taken as it is; nulls in objects mean nothing then.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let left = entries.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(left.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}
