//! Server-side apply: objects that say what a writer wants, and a record of which writer owns which fields.
//!
//! [`apply`] merges what is wanted into what is there, removes what the writer wants no more, and refuses to change what others own.
//! [`update`] keeps the record for all other writes. Everything happens in the version of the request; entries of other versions
//! are compared in theirs. Entries are not rewritten when a list or map becomes atomic or stops to be.
//!
//! Source: `k8s.io/apimachinery/pkg/util/managedfields` and sigs.k8s.io/structured-merge-diff.

mod field_set;
mod managed;
mod owners;
#[cfg(test)]
mod tests;
mod typed;

use serde_json::{Map, Value};

pub use field_set::{FieldSet, FieldSetError, Literal, PathElement};
pub use managed::{ManagedFieldsError, Manager, Operation};

use crate::body::tree::Budget;
use crate::body::{self, BodyError, Finding, Tree, TreeError, kind_of};
use crate::schema::{GroupVersionKind, Schema};
use managed::{Managed, Owned};
use owners::Owners;
use typed::Typed;

/// Entries of writers that do not apply; the oldest are merged beyond that. Source: `DefaultMaxUpdateManagers`.
pub const UPDATERS_MAX: usize = 10;

/// Annotation in which `kubectl apply` without server-side apply keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Bytes of all annotations of an object. API limit: TotalAnnotationSizeLimitB.
const ANNOTATIONS_BYTES_MAX: usize = 262_144;

/// Converts objects between the versions of their kind.
pub trait Versions {
    /// The object in a version; `None` if its kind is not served there, or it cannot be written so.
    fn convert(&self, object: &Map<String, Value>, api_version: &str) -> Option<Map<String, Value>>;
}

/// For kinds that are served in one version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn convert(&self, _: &Map<String, Value>, _: &str) -> Option<Map<String, Value>> {
        None
    }
}

/// A write, as far as ownership goes.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    pub schema: &'a Schema,
    /// Version and kind of the request and of all objects that come with it.
    pub kind: &'a GroupVersionKind,
    /// The `fieldManager` parameter, or what the user agent says.
    pub manager: &'a str,
    /// Such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// When the write happens.
    pub now: resource_api::Time,
    /// What the endpoint does not write, such as `status`: it is owned by nobody through this write.
    pub reset: &'a FieldSet,
    pub versions: &'a dyn Versions,
}

/// A field that another manager owns with a different value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    /// Such as `.spec.devices.requests`.
    pub path: String,
    elements: Vec<PathElement>,
}

/// Why an object cannot be applied. The texts are those that upstream answers with.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// 413.
    #[error("Request entity too large: limit is {}", body::BODY_BYTES_MAX)]
    TooLarge,
    /// 400: the body is neither JSON nor YAML.
    #[error("error decoding patch: {0}")]
    NotYaml(#[source] TreeError),
    /// 400: the body is no object.
    #[error("error decoding patch: the body is not an object")]
    NotAnObject,
    /// 400: another version or kind than that of the path.
    #[error("invalid object type: {}/{}, Kind={}", found.group, found.version, found.kind)]
    OtherKind { found: Box<GroupVersionKind> },
    /// 400: the record of ownership cannot be applied.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
    /// The object does not fit its kind. Upstream answers 500.
    #[error("failed to create typed patch object ({object}): {}", faults_text(faults))]
    Faults { object: String, faults: Vec<String> },
    /// 409: see [`conflict_message`] for the text of a cause.
    #[error("{}", conflicts_text(conflicts))]
    Conflicts { conflicts: Vec<Conflict> },
    /// 500: the record of the stored object is damaged.
    #[error("failed to decode managed fields: {0}")]
    Record(#[source] ManagedFieldsError),
    /// 422: the merged object is not one of its kind.
    #[error("{0}")]
    BadResult(#[source] BodyError),
}

fn faults_text(faults: &[String]) -> String {
    match faults {
        [one] => one.clone(),
        many => many.iter().fold("errors:".to_owned(), |text, fault| text + "\n  " + fault),
    }
}

/// The text of the cause for a conflict; its field is the conflict's path.
pub fn conflict_message(conflict: &Conflict) -> String {
    format!("conflict with {}", conflict.manager)
}

fn conflicts_text(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", conflict_message(one), one.path);
    }
    let mut by_manager: Vec<&Conflict> = conflicts.iter().collect();
    by_manager.sort_by_key(|conflict| &conflict.manager);
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in by_manager {
        if last.replace(&conflict.manager) != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Decodes the body of an apply request, JSON or YAML, as it stands: what it does not name it does not want.
///
/// The findings are the keys that stand twice; for an unknown field [`apply`] fails.
pub fn decode_config(body: &[u8]) -> Result<(Map<String, Value>, Vec<Finding>), ApplyError> {
    if body.len() > body::BODY_BYTES_MAX {
        return Err(ApplyError::TooLarge);
    }
    // Clients send JSON, which is YAML and is read faster as what it is. YAML may begin with a brace, too.
    let is_braced = body.trim_ascii_start().starts_with(b"{");
    let json = is_braced.then(|| Tree::from_json(body, &Budget::default()));
    let tree = match json {
        Some(Ok(tree)) => tree,
        Some(Err(TreeError::Extent(error))) => return Err(ApplyError::NotYaml(error.into())),
        Some(Err(_)) | None => Tree::from_yaml(body, &Budget::default()).map_err(ApplyError::NotYaml)?,
    };
    match body::conform::untyped(tree) {
        (Value::Object(config), findings) => Ok((config, findings)),
        _ => Err(ApplyError::NotAnObject),
    }
}

/// Applies `config` to the stored object, or to nothing. The result conforms to its kind and carries its record of ownership.
///
/// - `config` comes from [`decode_config`]. Values inside are not defaulted.
/// - With `force` what others own is taken from them instead of being a conflict.
/// - The caller defaults and validates the result, and applies the rules of the endpoint (as for any other write).
pub fn apply(
    write: &Write<'_>,
    stored: Option<&Map<String, Value>>,
    config: &Map<String, Value>,
    force: bool,
) -> Result<Map<String, Value>, ApplyError> {
    let found = kind_of(config);
    if found != *write.kind {
        return Err(ApplyError::OtherKind { found: Box::new(found) });
    }
    if managed_fields(config).is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::ManagedFieldsGiven);
    }
    let owners = owners(write);
    let config = owners.typed(config.clone());
    let faults = config.faults();
    if !faults.is_empty() {
        return Err(ApplyError::Faults {
            object: object_text(&config, write.kind),
            faults,
        });
    }
    let empty = zero(write)?;
    let mut live = stored.cloned().unwrap_or_else(|| empty.clone());
    let mut record = managed::decode(managed_fields(&live)).map_err(ApplyError::Record)?;
    remove_managed_fields(&mut live);
    let live = owners.typed(live);
    if record.is_empty() {
        // Everything that was written before ownership was kept has one owner.
        let before = Write {
            manager: "before-first-apply",
            ..*write
        };
        track(&before, &owners.typed(empty), &live, &mut record);
    }
    let merged = apply_with_last_applied(write, &owners, &live, &config, &mut record, force)?;
    let Value::Object(mut object) = merged.value else {
        return Ok(Map::new());
    };
    if write.manager == "kubectl" {
        keep_last_applied(&mut object, &config);
    }
    let conformed = body::conform(write.schema, write.kind, object).map_err(ApplyError::BadResult)?;
    let mut object = conformed.object;
    set_managed_fields(&mut object, &record);
    Ok(object)
}

/// Keeps the record of ownership for a write that replaced the stored object, or nothing, by `new`. Returns `new` with its record.
///
/// The record is that of `new` if it has one that can be read and the write is not to a subresource, else that of the stored
/// object. `managedFields: [{}]` starts a new one. Objects that have none keep none until they are applied to.
pub fn update(write: &Write<'_>, stored: Option<&Map<String, Value>>, mut new: Map<String, Value>) -> Map<String, Value> {
    let of_stored = || {
        let entries = stored.and_then(managed_fields);
        managed::decode(entries).unwrap_or_default()
    };
    let given = managed_fields(&new);
    let mut record = if !write.subresource.is_empty() {
        of_stored()
    } else if managed::is_reset(given) {
        Managed::new()
    } else {
        managed::decode(given)
            .ok()
            .filter(|record| !record.is_empty())
            .unwrap_or_else(of_stored)
    };
    remove_managed_fields(&mut new);
    let is_tracked = stored.is_none() || !record.is_empty();
    let live = match stored {
        Some(stored) => Ok(stored.clone()),
        None => zero(write),
    };
    if let (true, Ok(mut live)) = (is_tracked, live) {
        remove_managed_fields(&mut live);
        let owners = owners(write);
        let (live, typed) = (owners.typed(live), owners.typed(new.clone()));
        track(write, &live, &typed, &mut record);
    }
    set_managed_fields(&mut new, &record);
    new
}

/// True if a write changes nothing: the objects are equal, but for the times in their records and their resource versions.
///
/// Such a write is not stored, as nothing happened. Source: the equality that a kube-apiserver ignores updates by.
pub fn is_unchanged(stored: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let bare = |object: &Map<String, Value>| {
        let mut object = object.clone();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("resourceVersion");
            for entry in metadata
                .get_mut("managedFields")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Value::Object(entry) = entry {
                    entry.remove("time");
                }
            }
            if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
                // Their order depends on the times.
                entries.sort_by_key(Value::to_string);
            }
        }
        object
    };
    bare(stored) == bare(new)
}

fn owners<'a>(write: &Write<'a>) -> Owners<'a> {
    Owners {
        schema: write.schema,
        kind: write.kind,
        reset: write.reset,
        versions: write.versions,
    }
}

/// An object of the kind in which nothing is set.
fn zero(write: &Write<'_>) -> Result<Map<String, Value>, ApplyError> {
    let body = body::conform(write.schema, write.kind, Map::new()).map_err(ApplyError::BadResult)?;
    Ok(body.object)
}

fn managed_fields(object: &Map<String, Value>) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn remove_managed_fields(object: &mut Map<String, Value>) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

fn set_managed_fields(object: &mut Map<String, Value>, record: &Managed) {
    let Some(entries) = managed::encode(record) else {
        return remove_managed_fields(object);
    };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

/// Name and kind of an object in a message.
fn object_text(object: &Typed<'_>, kind: &GroupVersionKind) -> String {
    let metadata = |key: &str| object.value["metadata"][key].as_str().unwrap_or_default().to_owned();
    let kind = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
    format!("{}/{}; {kind}", metadata("namespace"), metadata("name"))
}

/// Fields that nobody owns: the server sets them, or they say which object it is.
fn never_owned() -> FieldSet {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let fields: Vec<[&str; 2]> = metadata.iter().map(|name| ["metadata", *name]).collect();
    let mut paths: Vec<&[&str]> = vec![&["apiVersion"], &["kind"], &["metadata"]];
    paths.extend(fields.iter().map(<[&str; 2]>::as_slice));
    FieldSet::of(&paths)
}

fn manager_of(write: &Write<'_>, operation: Operation) -> Manager {
    Manager {
        name: if write.manager.is_empty() { "unknown" } else { write.manager }.to_owned(),
        operation,
        api_version: match operation {
            Operation::Apply => String::new(),
            Operation::Update => write.kind.api_version(),
        },
        subresource: write.subresource.to_owned(),
    }
}

/// Gives what changed to the writer, and limits the number of writers.
fn track(write: &Write<'_>, old: &Typed<'_>, new: &Typed<'_>, record: &mut Managed) {
    // Apart from what the writer owns already, so that its entry gets a new time only if it changed something.
    let this = Manager {
        name: "current-operation".to_owned(),
        operation: Operation::Update,
        api_version: String::new(),
        subresource: String::new(),
    };
    let owners = owners(write);
    let (old, new) = (owners.typed(object_of(old)), owners.typed(object_of(new)));
    owners.update(&old, &new, record, &this);
    let changed = record.remove(&this).map(|owned| owned.set.difference(&never_owned()));
    if let Some(changed) = changed.filter(|changed| !changed.is_empty()) {
        let manager = manager_of(write, Operation::Update);
        let before = record.remove(&manager).map(|owned| owned.set).unwrap_or_default();
        let owned = Owned {
            set: changed.union(&before),
            api_version: write.kind.api_version(),
            time: Some(write.now.to_string()),
        };
        record.insert(manager, owned);
    }
    limit_updaters(record);
}

fn object_of(object: &Typed<'_>) -> Map<String, Value> {
    object.value.as_object().cloned().unwrap_or_default()
}

/// Merges the oldest entries of a version into one, until there are no more than [`UPDATERS_MAX`].
fn limit_updaters(record: &mut Managed) {
    let mut updaters: Vec<(Option<String>, Manager)> = record
        .iter()
        .filter(|(manager, _)| manager.operation == Operation::Update)
        .map(|(manager, owned)| (owned.time.clone(), manager.clone()))
        .collect();
    let mut number = updaters.len();
    updaters.sort();
    let mut first_of_version: std::collections::BTreeMap<String, Manager> = std::collections::BTreeMap::new();
    for (_, manager) in updaters {
        if number <= UPDATERS_MAX {
            return;
        }
        let Some(first) = first_of_version.get(&manager.api_version) else {
            first_of_version.insert(manager.api_version.clone(), manager);
            continue;
        };
        let bucket = Manager {
            name: "ancient-changes".to_owned(),
            subresource: String::new(),
            ..manager.clone()
        };
        if !record.contains_key(&bucket) {
            record.remove(first).map(|owned| record.insert(bucket.clone(), owned));
        }
        let (Some(merged), Some(old)) = (record.get(&bucket), record.get(&manager)) else {
            continue;
        };
        let owned = Owned {
            set: old.set.union(&merged.set),
            ..old.clone()
        };
        record.remove(&manager);
        record.insert(bucket, owned);
        number -= 1;
    }
}

/// Applies; conflicts of `kubectl` with what it applied itself before it used server-side apply do not count.
fn apply_with_last_applied<'a>(
    write: &Write<'a>,
    owners: &Owners<'a>,
    live: &Typed<'a>,
    config: &Typed<'a>,
    record: &mut Managed,
    force: bool,
) -> Result<Typed<'a>, ApplyError> {
    let before = record.clone();
    match apply_once(write, owners, live, config, record, force) {
        Err(mut conflicts) => {
            let allowed = match write.manager {
                "kubectl" => last_applied_fields(owners, live),
                _ => None,
            };
            if let Some(allowed) = allowed {
                conflicts.retain(|conflict| !contains(&allowed, &conflict.elements));
            }
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts { conflicts });
            }
            *record = before;
            apply_once(write, owners, live, config, record, true).map_err(|conflicts| ApplyError::Conflicts { conflicts })
        }
        Ok(merged) => Ok(merged),
    }
}

fn contains(set: &FieldSet, path: &[PathElement]) -> bool {
    let Some((last, parents)) = path.split_last() else {
        return false;
    };
    let mut node = set;
    for element in parents {
        match node.child(element) {
            Some(child) => node = child,
            None => return false,
        }
    }
    node.has(last)
}

fn apply_once<'a>(
    write: &Write<'a>,
    owners: &Owners<'a>,
    live: &Typed<'a>,
    config: &Typed<'a>,
    record: &mut Managed,
    force: bool,
) -> Result<Typed<'a>, Vec<Conflict>> {
    let manager = manager_of(write, Operation::Apply);
    let merged = owners.apply(live, config, record, &manager, force)?;
    if let Some(mut owned) = record.remove(&manager) {
        owned.set = owned.set.difference(&never_owned());
        if merged.value != live.value {
            owned.time = Some(write.now.to_string());
        }
        if !owned.set.is_empty() {
            record.insert(manager, owned);
        }
    }
    Ok(merged)
}

/// The fields that `kubectl apply` set and that still have the value it gave them.
fn last_applied_fields(owners: &Owners<'_>, live: &Typed<'_>) -> Option<FieldSet> {
    let text = live.value.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    let tree = Tree::from_json(text.as_bytes(), &Budget::default()).ok()?;
    let (Value::Object(last), _) = body::conform::untyped(tree) else {
        return None;
    };
    if kind_of(&last).api_version() != owners.kind.api_version() {
        return None;
    }
    let last = owners.typed(last);
    if !last.faults().is_empty() {
        return None;
    }
    let live = owners.typed(object_of(live));
    let compared = last.compare(&live);
    let set = last.field_set();
    Some(
        set.difference(&compared.modified)
            .difference(&compared.added)
            .difference(&compared.removed),
    )
}

/// If the object has the annotation of `kubectl apply`, writes into it what was applied now.
fn keep_last_applied(object: &mut Map<String, Value>, config: &Typed<'_>) {
    let Some(Value::Object(annotations)) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
    else {
        return;
    };
    if annotations
        .get(LAST_APPLIED)
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        return;
    }
    let mut applied = config.value.clone();
    if let Some(Value::Object(annotations)) = applied
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
    {
        annotations.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED.to_owned(), format!("{applied}\n").into());
    let bytes: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        annotations.remove(LAST_APPLIED);
    }
}
