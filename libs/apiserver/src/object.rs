//! Reading and writing the parts of an object that every kind has, on JSON values. A field of the wrong type reads as absent:
//! whether objects have the right shape is checked where they are decoded.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Labels or annotations by key.
pub type TextMap = BTreeMap<String, String>;

/// What is at a path of field names.
pub fn at<'a>(object: &'a Value, path: &[impl AsRef<str>]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, field| value.get(field.as_ref()))
}

/// The text at a path; empty if there is none.
pub fn text_at<'a>(object: &'a Value, path: &[impl AsRef<str>]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// A text field of the metadata; empty if there is none.
pub fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    text_at(object, &["metadata", field])
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

/// `metadata.resourceVersion`.
pub fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// `metadata.generation`; 0 if there is none.
pub fn generation(object: &Value) -> i64 {
    at(object, &["metadata", "generation"])
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// `metadata.deletionTimestamp`, which an object has once its deletion was asked for.
pub fn deletion_timestamp(object: &Value) -> Option<&str> {
    at(object, &["metadata", "deletionTimestamp"]).and_then(Value::as_str)
}

/// `metadata.deletionGracePeriodSeconds`.
pub fn deletion_grace(object: &Value) -> Option<i64> {
    at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64)
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = at(object, &["metadata", "finalizers"]).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The value of a label.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, &["metadata", "labels", key]).and_then(Value::as_str)
}

/// The metadata, to change; made if it is missing or no object. `None` if the value is no object itself.
pub fn meta_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object
        .as_object_mut()?
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// Sets a field of the metadata; `None` removes it. Nothing happens to a value that is no object.
pub fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(metadata) = meta_mut(object) else { return };
    match value {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
}

/// Sets a text field of the metadata; an empty text removes it.
pub fn set_meta_text(object: &mut Value, field: &str, text: &str) {
    set_meta(object, field, (!text.is_empty()).then(|| Value::String(text.to_owned())));
}

/// Replaces the finalizers; an empty list removes the field.
pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let list = (!finalizers.is_empty()).then(|| Value::Array(finalizers.iter().cloned().map(Value::String).collect()));
    set_meta(object, "finalizers", list);
}

/// Sets or removes a field of the object itself.
pub fn set_field(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(fields) = object.as_object_mut() else { return };
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_types_read_as_absent() {
        let object = json!({"metadata": {"name": 7, "labels": ["a"], "finalizers": "x", "generation": "1"}});
        assert_eq!(name(&object), "");
        assert_eq!(label(&object, "a"), None);
        assert!(finalizers(&object).is_empty());
        assert_eq!(generation(&object), 0);
        assert_eq!(name(&json!([])), "");
    }

    #[test]
    fn metadata_is_made_where_it_is_missing() {
        let mut object = json!({"metadata": 1});
        set_meta_text(&mut object, "name", "c1");
        assert_eq!(object, json!({"metadata": {"name": "c1"}}));
        set_meta_text(&mut object, "name", "");
        assert_eq!(object, json!({"metadata": {}}));
        let mut list = json!([1]);
        set_meta_text(&mut list, "name", "c1");
        assert_eq!(list, json!([1]));
    }
}
