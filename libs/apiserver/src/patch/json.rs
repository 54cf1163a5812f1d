//! JSON patch. Source: RFC 6902, and what upstream's library makes of it where that differs.
//!
//! Differences of upstream's that clients may rely on: `replace` of a missing key adds it; negative indices count from the end;
//! `test` takes a missing key for null; an `add` without `value` adds null.

use serde_json::{Map, Value};

use super::PatchError;
use crate::body::{BODY_BYTES_MAX, Finding};

/// Operations of one patch. Source: `maxJSONPatchOperations`.
pub const OPERATIONS_MAX: usize = 10_000;

/// Bytes that the `copy` operations of one patch may write. Source: the request limit of a kube-apiserver.
pub const COPIED_BYTES_MAX: usize = BODY_BYTES_MAX;

/// Applies a patch to a document. `DoesNotApply` at the first operation that fails.
pub(super) fn apply(mut document: Value, patch: Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(malformed(
            "error decoding patch: json: cannot unmarshal into a list of operations".to_owned(),
        ));
    };
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations { found: operations.len() });
    }
    let mut copied = 0;
    for operation in operations {
        let Value::Object(operation) = operation else {
            return Err(malformed("error decoding patch: an operation is not an object".to_owned()));
        };
        run(&mut document, operation, &mut copied)?;
    }
    Ok(document)
}

/// Fields of operations that no operation has, as upstream's strict decoder names them.
pub(super) fn unknown_fields(patch: &Value) -> Vec<Finding> {
    let operations = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    let unknown = operations.iter().enumerate().flat_map(|(index, operation)| {
        let keys = operation.as_object().into_iter().flat_map(Map::keys);
        keys.filter(|key| !matches!(key.as_str(), "op" | "path" | "from" | "value"))
            .map(move |key| format!("[{index}].{key}"))
    });
    unknown
        .take(crate::body::conform::FINDINGS_MAX)
        .map(|path| Finding::InJsonPatch(Box::new(Finding::UnknownField { path })))
        .collect()
}

fn malformed(why: String) -> PatchError {
    PatchError::Malformed { why }
}

fn fails(why: String) -> PatchError {
    PatchError::DoesNotApply { why }
}

fn run(document: &mut Value, mut operation: Map<String, Value>, copied: &mut usize) -> Result<(), PatchError> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).map(str::to_owned);
    let kind = text("op").unwrap_or_else(|| "unknown".to_owned());
    let from = text("from").ok_or_else(|| fails(format!("{kind} operation failed to decode from: missing value")));
    let path = text("path").ok_or_else(|| fails(format!("{kind} operation failed to decode path: missing value")));
    let value = operation.remove("value").unwrap_or(Value::Null);
    match kind.as_str() {
        "add" => add(document, &kind, &path?, value),
        "remove" => remove(document, &kind, &path?).map(drop),
        "replace" => replace(document, &path?, value),
        "move" => {
            let value = remove(document, &kind, &from?)?;
            add(document, &kind, &path?, value)
        }
        "copy" => {
            let (path, from) = (path?, from?);
            let value = get(document, &kind, &from)?.unwrap_or(&Value::Null);
            *copied += size(value, COPIED_BYTES_MAX - *copied)?;
            let value = value.clone();
            add(document, &kind, &path, value)
        }
        "test" => {
            let path = path?;
            let found = if path.is_empty() {
                Some(&*document)
            } else {
                get(document, &kind, &path)?
            };
            if found.unwrap_or(&Value::Null) == &value {
                Ok(())
            } else {
                Err(fails(format!("testing value {path} failed: test failed")))
            }
        }
        other => Err(fails(format!("Unexpected kind: {other}"))),
    }
}

/// Bytes of a value as text, at most `max`.
fn size(value: &Value, max: usize) -> Result<usize, PatchError> {
    struct Counter {
        bytes: usize,
        max: usize,
    }
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.bytes += bytes.len();
            if self.bytes > self.max {
                return Err(std::io::Error::other("too many bytes"));
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter { bytes: 0, max };
    serde_json::to_writer(&mut counter, value).map_err(|_| {
        fails(format!(
            "Unable to complete the copy, the accumulated size increase of copies exceeds the limit {COPIED_BYTES_MAX}"
        ))
    })?;
    Ok(counter.bytes)
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// The container that the last token of a path is in, and that token.
fn parent<'d>(document: &'d mut Value, kind: &str, path: &str) -> Result<(&'d mut Value, String), PatchError> {
    let missing = || {
        fails(format!(
            "{kind} operation does not apply: doc is missing path: \"{path}\": missing value"
        ))
    };
    let (_, tokens) = path.split_once('/').ok_or_else(missing)?;
    let (way, last) = tokens
        .rsplit_once('/')
        .map_or((None, tokens), |(way, last)| (Some(way), last));
    let mut here = document;
    for token in way.into_iter().flat_map(|way| way.split('/')) {
        here = child(here, &unescaped(token)).ok_or_else(missing)?;
    }
    match here {
        Value::Object(_) | Value::Array(_) => Ok((here, unescaped(last))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(missing()),
    }
}

fn child<'d>(container: &'d mut Value, key: &str) -> Option<&'d mut Value> {
    match container {
        Value::Object(entries) => entries.get_mut(key),
        Value::Array(items) => {
            let index = index(key, items.len()).ok()?;
            items.get_mut(index)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// A position in a list of a length; negative ones count from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let number: i64 = key
        .parse()
        .map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    let invalid = || format!("Unable to access invalid index: {number}: invalid index referenced");
    let distance = usize::try_from(number.unsigned_abs()).map_err(|_| invalid())?;
    let position = if number < 0 {
        length.checked_sub(distance)
    } else {
        Some(distance)
    };
    position.filter(|position| *position < length).ok_or_else(invalid)
}

/// The value at a path. `None` if only the last key is missing.
fn get<'d>(document: &'d mut Value, kind: &str, path: &str) -> Result<Option<&'d Value>, PatchError> {
    let (container, key) = parent(document, kind, path)?;
    match container {
        Value::Array(items) => match index(&key, items.len()) {
            Ok(position) => Ok(items.get(position)),
            Err(why) => Err(fails(format!("error in {kind} for path: '{path}': {why}"))),
        },
        other => Ok(other.get(&key)),
    }
}

fn add(document: &mut Value, kind: &str, path: &str, value: Value) -> Result<(), PatchError> {
    let (container, key) = parent(document, kind, path)?;
    match container {
        Value::Object(entries) => {
            entries.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            // One behind the last is a place, too.
            let position =
                index(&key, items.len() + 1).map_err(|why| fails(format!("error in {kind} for path: '{path}': {why}")))?;
            items.insert(position, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

fn remove(document: &mut Value, kind: &str, path: &str) -> Result<Value, PatchError> {
    let (container, key) = parent(document, kind, path)?;
    match container {
        Value::Array(items) => match index(&key, items.len()) {
            Ok(position) => Ok(items.remove(position)),
            Err(why) => Err(fails(format!("error in {kind} for path: '{path}': {why}"))),
        },
        other => other.as_object_mut().and_then(|entries| entries.remove(&key)).ok_or_else(|| {
            fails(format!(
                "error in {kind} for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
            ))
        }),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    let (container, key) = parent(document, "replace", path)?;
    match container {
        Value::Object(entries) => {
            entries.insert(key, value);
        }
        Value::Array(items) => {
            let missing = |_| {
                fails(format!(
                    "replace operation does not apply: doc is missing key: {path}: missing value"
                ))
            };
            let position = index(&key, items.len()).map_err(missing)?;
            items[position] = value;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}
