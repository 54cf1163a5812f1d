//! Objects as they are stored: JSON text without a version.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

/// One state of an object.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uuid,
    /// Sequence of the event that made this state; of a deleted object, of its deletion.
    pub(crate) sequence: u64,
    /// JSON without `metadata.resourceVersion`.
    pub(crate) body: Arc<str>,
}

impl Entry {
    /// The object with its version.
    ///
    /// Error: what is stored is no JSON, which no write lets happen.
    pub(crate) fn value(&self) -> serde_json::Result<Value> {
        let mut value: Value = serde_json::from_str(&self.body)?;
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), Value::String(self.sequence.to_string()));
        }
        Ok(value)
    }
}
