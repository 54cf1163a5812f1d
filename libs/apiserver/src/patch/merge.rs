//! JSON merge patch. Source: RFC 7386.
//!
//! Nulls in the objects of new lists are dropped, as upstream does and the RFC does not.

use serde_json::{Map, Value};

use super::without_nulls;

/// Merges `patch` into `object`: null removes, objects merge, everything else replaces.
///
/// Recursion is bounded by the depth of the patch.
pub(super) fn apply(mut object: Map<String, Value>, patch: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in patch {
        match value {
            Value::Null => {
                object.remove(&key);
            }
            Value::Object(patch) => {
                let inner = match object.remove(&key) {
                    Some(Value::Object(inner)) => inner,
                    _ => Map::new(),
                };
                object.insert(key, Value::Object(apply(inner, patch)));
            }
            other => {
                object.insert(key, without_nulls(other));
            }
        }
    }
    object
}
