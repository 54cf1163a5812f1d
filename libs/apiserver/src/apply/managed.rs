//! `metadata.managedFields`: which writer owns which fields.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::field_set::{FieldSet, FieldSetError};

/// How a writer came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who owns fields. Prints as upstream names managers in conflicts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for Apply: a manager has one set of applied fields, whatever version it applies in.
    pub api_version: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) set: FieldSet,
    pub(super) api_version: String,
    /// RFC 3339; `None` if the entry has none.
    pub(super) time: Option<String>,
}

/// Every manager with what it owns.
pub(super) type Managed = BTreeMap<Manager, Owned>;

/// An entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("invalid fieldsType {found:?} in managed fields entry {index}")]
    FieldsType { found: String, index: usize },
    #[error("error decoding set")]
    Fields(#[from] FieldSetError),
    #[error("managedFields is not a list of objects")]
    Shape,
}

/// Reads `managedFields`; null and absent are empty.
pub(super) fn decode(entries: Option<&Value>) -> Result<Managed, ManagedFieldsError> {
    let entries = match entries {
        None | Some(Value::Null) => return Ok(Managed::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(ManagedFieldsError::Shape),
    };
    entries
        .iter()
        .enumerate()
        .map(|(index, entry)| decode_entry(index, entry))
        .collect()
}

fn decode_entry(index: usize, entry: &Value) -> Result<(Manager, Owned), ManagedFieldsError> {
    let entry = entry.as_object().ok_or(ManagedFieldsError::Shape)?;
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(ManagedFieldsError::Operation),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(ManagedFieldsError::ApiVersion);
    }
    let fields_type = text("fieldsType");
    if fields_type != "FieldsV1" {
        return Err(ManagedFieldsError::FieldsType {
            found: fields_type,
            index,
        });
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(Value::Object(fields)) => FieldSet::from_fields_v1(fields)?,
        Some(_) => return Err(ManagedFieldsError::Shape),
    };
    let manager = Manager {
        name: text("manager"),
        operation,
        api_version: if operation == Operation::Apply {
            String::new()
        } else {
            api_version.clone()
        },
        subresource: text("subresource"),
    };
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Ok((manager, Owned { set, api_version, time }))
}

/// Writes `managedFields`; `None` if nobody owns anything. Order: Apply first, then by time, name, version and subresource.
pub(super) fn encode(managed: &Managed) -> Option<Value> {
    if managed.is_empty() {
        return None;
    }
    let mut sorted: Vec<_> = managed.iter().collect();
    sorted.sort_by_key(|(manager, owned)| {
        (
            manager.operation,
            &owned.time,
            &manager.name,
            &owned.api_version,
            &manager.subresource,
        )
    });
    Some(
        sorted
            .into_iter()
            .map(|(manager, owned)| encode_entry(manager, owned))
            .collect(),
    )
}

fn encode_entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            entry.insert(key.to_owned(), text.into());
        }
    };
    put("manager", &manager.name);
    put("operation", manager.operation.text());
    put("apiVersion", &owned.api_version);
    put("time", owned.time.as_deref().unwrap_or_default());
    put("fieldsType", "FieldsV1");
    put("subresource", &manager.subresource);
    entry.insert("fieldsV1".to_owned(), Value::Object(owned.set.to_fields_v1()));
    Value::Object(entry)
}

/// True if a client asks with `[{}]` to forget all ownership.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    entries == Some(&json!([{}]))
}
