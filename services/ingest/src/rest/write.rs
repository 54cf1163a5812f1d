//! Writes: from a body or a patch to a commit, with the rules of the API before and the answer after.
//!
//! Whatever lost a race is done over from what is stored then, unless the client said which state it wants to change.

use std::sync::Arc;

use apiserver::body;
use apiserver::faults::{self, Source};
use apiserver::negotiate::{self, Accepted};
use apiserver::object;
use apiserver::patch;
use apiserver::request::{DeleteOptions, FieldValidation, ListOptions, PatchOptions, ResourceRequest, WriteOptions};
use apiserver::resources::ResourceType;
use apiserver::rules::create::GENERATED_NAME_TRIES;
use apiserver::rules::{
    self, Creation, DeleteStep, Origin, Part, Update, UpdateOutcome, decide_delete, delete_answer, prepare_create, prepare_update,
};
use apiserver::schema::Schema;
use apiserver::status::Status;
use http::{Response, StatusCode};
use jiff::Timestamp;
use resource_api::claim::ResourceClaim;
use resource_api::defaults;
use resource_api::object::{AnyObject, Kind};
use resource_api::unit::UNIT_ANNOTATION;
use resource_api::version::ApiVersion;
use resource_api::wire::Time;
use serde_json::{Map, Value, json};
use store::{Mutation, Op, Outcome, Write};
use uuid::Uuid;

use super::kinds::{decoded, in_version, shown, stored_kind, typed, value_of};
use super::object::Entry;
use super::read::{answer, found, object_answer, stored};
use super::serve::Body;
use super::{Call, Parts, from_grpc, from_store, respond};
use crate::auth::roles::Decision;
use crate::grpc::ObjectsService;

/// Writes that lost a race are done over this often.
const TRIES_MAX: usize = 16;

/// An object on its way into the store.
struct Ready {
    /// In v1, if it is of a kind that has a type.
    value: Value,
    object: Option<AnyObject>,
    body: Arc<str>,
    /// Of the feature gates that it was admitted under.
    gates: Option<u64>,
}

/// How a commit ended, as far as the API cares.
enum Committed {
    At(u64),
    /// Somebody else was faster.
    Lost,
    NameTaken,
}

pub(super) async fn create(
    parts: &Parts,
    request: &ResourceRequest,
    options: &WriteOptions,
    call: &Call,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let resource = &*request.resource;
    if request.subresource.is_some() {
        return Err(Status::method_not_allowed());
    }
    let (object, warnings) = read_object(resource, options.field_validation, call)?;
    if let Some(review) = super::reviews::answer(parts, request, &object, call) {
        return answer(StatusCode::CREATED, review?, accepted);
    }
    let created = create_object(parts, request, None, Value::Object(object), options, call).await?;
    let mut response = object_answer(StatusCode::CREATED, resource, created, Default::default(), accepted)?;
    respond::warn(&mut response, &warnings);
    Ok(response)
}

/// Creates; the answer's object. `name`: of the URL, for a PUT that creates.
async fn create_object(
    parts: &Parts,
    request: &ResourceRequest,
    name: Option<&str>,
    body: Value,
    options: &WriteOptions,
    call: &Call,
) -> Result<Value, Status> {
    let resource = &*request.resource;
    check_namespace(parts, resource, object::meta_text(&body, "name"), &request.namespace).await?;
    for _ in 0..GENERATED_NAME_TRIES {
        let uid = Uuid::new_v4();
        let now = Timestamp::now();
        let mut value = defaulted(resource, body.clone(), now)?;
        let random = Uuid::new_v4().as_u128();
        let creation = Creation {
            resource,
            namespace: &request.namespace,
            name,
            uid: &uid.to_string(),
            now,
            random: std::array::from_fn(|at| (random >> (24 * at)) as u32),
        };
        prepare_create(&mut value, &creation)?;
        check_own_node(call, resource, &value)?;
        let ready = admit_new(parts, resource, value, uid, now)?;
        if options.is_dry_run {
            return in_version(resource, ready.value);
        }
        let name_given = !object::meta_text(&body, "name").is_empty();
        let write = write_of(resource, &ready.value, uid, Op::Create, &ready.body, call);
        match commit(parts, resource, &ready, write, true).await? {
            Committed::At(sequence) => return in_version(resource, at_version(ready.value, sequence)),
            Committed::NameTaken if name_given || name.is_some() => {
                let taken = object::name(&ready.value);
                let existing = stored(parts, resource, &request.namespace, taken).await?;
                let existing = existing.map(|existing| existing.value()).transpose();
                let existing = existing.map_err(|error| Status::internal(error.to_string()))?;
                return Err(rules::create::name_taken(resource, taken, false, existing.as_ref()));
            }
            Committed::NameTaken | Committed::Lost => {}
        }
    }
    Err(rules::create::name_taken(
        resource,
        object::meta_text(&body, "generateName"),
        true,
        None,
    ))
}

pub(super) async fn update(
    parts: &Parts,
    request: &ResourceRequest,
    options: &WriteOptions,
    call: &Call,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let resource = &*request.resource;
    let (object, warnings) = read_object(resource, options.field_validation, call)?;
    let wanted = Value::Object(object);
    let is_there = stored(parts, resource, &request.namespace, &request.name).await?.is_some();
    let (code, value) = if !is_there && resource.update_creates && request.subresource.is_none() {
        let name = Some(request.name.as_str());
        (
            StatusCode::CREATED,
            create_object(parts, request, name, wanted, options, call).await?,
        )
    } else {
        let updated = change(parts, request, options, Origin::Put, call, |_| Ok(wanted.clone())).await?;
        (StatusCode::OK, updated)
    };
    let mut response = object_answer(code, resource, value, Default::default(), accepted)?;
    respond::warn(&mut response, &warnings);
    Ok(response)
}

pub(super) async fn patch(
    parts: &Parts,
    request: &ResourceRequest,
    options: &PatchOptions,
    call: &Call,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let resource = &*request.resource;
    // Server-side apply is not served yet.
    let Some(kind) = options.patch_type.change() else {
        return Err(Status::unsupported_media_type(&[
            negotiate::JSON_PATCH,
            negotiate::MERGE_PATCH,
            negotiate::STRATEGIC_PATCH,
        ]));
    };
    let mut warnings = Vec::new();
    let patched = change(parts, request, &options.write, Origin::Patch, call, |old| {
        let Value::Object(old) = old else {
            return Err(Status::internal("a stored object is no object"));
        };
        let made = patch::apply(Schema::builtin(), &resource.gvk(), kind, old, &call.body);
        let made = made.map_err(|error| faults::patch_status(&error, resource, &request.name))?;
        let source = Source::Patch { name: &request.name };
        warnings = faults::judge_findings(&made.findings, options.write.field_validation, resource, source)?;
        Ok(Value::Object(made.object))
    });
    let value = patched.await?;
    let mut response = object_answer(StatusCode::OK, resource, value, Default::default(), accepted)?;
    respond::warn(&mut response, &warnings);
    Ok(response)
}

/// Brings an object from what is stored to what `make` makes of it. The answer's object.
async fn change(
    parts: &Parts,
    request: &ResourceRequest,
    options: &WriteOptions,
    origin: Origin,
    call: &Call,
    mut make: impl FnMut(&Value) -> Result<Value, Status>,
) -> Result<Value, Status> {
    let resource = &*request.resource;
    let part = match request.subresource.as_deref() {
        None => Part::Main,
        Some("status") => Part::Status,
        Some("finalize") => Part::Finalize,
        Some(_) => return Err(Status::method_not_allowed()),
    };
    for _ in 0..TRIES_MAX {
        let entry = found(parts, request).await?;
        let old_shown = shown(resource, &entry)?;
        let now = Timestamp::now();
        let mut new = defaulted(resource, make(&old_shown)?, now)?;
        let old = entry.value().map_err(|error| Status::internal(error.to_string()))?;
        let update = Update {
            resource,
            part,
            origin,
            namespace: &request.namespace,
            name: &request.name,
        };
        check_own_node(call, resource, &old)?;
        let outcome = prepare_update(&mut new, &old, &update)?;
        check_own_node(call, resource, &new)?;
        match outcome {
            UpdateOutcome::Unchanged => return Ok(old_shown),
            UpdateOutcome::Removed => {
                if options.is_dry_run {
                    return in_version(resource, new);
                }
                if let Some(sequence) = remove(parts, resource, &entry, &new, call).await? {
                    return in_version(resource, at_version(new, sequence));
                }
            }
            UpdateOutcome::Changed => {
                let ready = admit_change(parts, resource, part, new, &old, now)?;
                if ready.body == entry.body {
                    return Ok(old_shown);
                }
                if options.is_dry_run {
                    return in_version(resource, ready.value);
                }
                let op = Op::Update {
                    expected: Some(entry.sequence),
                };
                let write = write_of(resource, &ready.value, entry.uid, op, &ready.body, call);
                if let Committed::At(sequence) = commit(parts, resource, &ready, write, false).await? {
                    return in_version(resource, at_version(ready.value, sequence));
                }
            }
        }
    }
    Err(Status::object_modified(resource.group_resource(), &request.name))
}

pub(super) async fn delete(
    parts: &Parts,
    request: &ResourceRequest,
    options: &DeleteOptions,
    call: &Call,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let options = delete_options(&request.resource, options, call)?;
    let deleted = delete_one(parts, &request.resource, &request.namespace, &request.name, &options, call).await?;
    let deleted = deleted.ok_or_else(|| Status::not_found(request.resource.group_resource(), &request.name))?;
    let is_status = object::text_at(&deleted, &["kind"]) == "Status";
    if is_status {
        return answer(StatusCode::OK, deleted, accepted);
    }
    object_answer(StatusCode::OK, &request.resource, deleted, Default::default(), accepted)
}

pub(super) async fn delete_collection(
    parts: &Parts,
    request: &ResourceRequest,
    list: &ListOptions,
    options: &DeleteOptions,
    call: &Call,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let resource = &*request.resource;
    let options = delete_options(resource, options, call)?;
    let (cache, position) = super::read::cache_for(parts, resource).await?;
    let namespace = Some(request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let (entries, _) = cache.snapshot(namespace);
    let mut deleted = Vec::new();
    for entry in entries {
        let value = shown(resource, &entry)?;
        if !list.selection.matches(&value) {
            continue;
        }
        match delete_one(parts, resource, &entry.namespace, &entry.name, &options, call).await {
            Ok(Some(last)) => deleted.push(last),
            // Somebody else was faster.
            Ok(None) => {}
            Err(status) => return Err(status),
        }
    }
    let metadata = json!({"resourceVersion": position.to_string()});
    let shown = rules::delete::collection_answer(resource, deleted, metadata);
    answer(StatusCode::OK, shown, accepted)
}

/// `None`: there is no such object.
async fn delete_one(
    parts: &Parts,
    resource: &ResourceType,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    call: &Call,
) -> Result<Option<Value>, Status> {
    for _ in 0..TRIES_MAX {
        let Some(entry) = stored(parts, resource, namespace, name).await? else {
            return Ok(None);
        };
        let old = entry.value().map_err(|error| Status::internal(error.to_string()))?;
        check_own_node(call, resource, &old)?;
        check_deletable(resource, &entry)?;
        let step = decide_delete(resource, &old, options, Timestamp::now())?;
        if options.is_dry_run {
            return in_version(resource, delete_answer(resource, &step, &old)).map(Some);
        }
        match &step {
            DeleteStep::Wait => return in_version(resource, delete_answer(resource, &step, &old)).map(Some),
            DeleteStep::Mark { marked } => {
                let ready = Ready {
                    object: decoded_if_typed(resource, marked)?,
                    body: body_of(marked),
                    value: marked.clone(),
                    gates: None,
                };
                let op = Op::Update {
                    expected: Some(entry.sequence),
                };
                let write = write_of(resource, marked, entry.uid, op, &ready.body, call);
                if let Committed::At(sequence) = commit(parts, resource, &ready, write, false).await? {
                    let now = at_version(marked.clone(), sequence);
                    return in_version(resource, delete_answer(resource, &step, &now)).map(Some);
                }
            }
            DeleteStep::Remove { last } => {
                if let Some(sequence) = remove(parts, resource, &entry, last, call).await? {
                    let last = at_version(last.clone(), sequence);
                    let answer = delete_answer(resource, &step, &last);
                    return match object::text_at(&answer, &["kind"]) {
                        "Status" => Ok(Some(answer)),
                        _ => in_version(resource, answer).map(Some),
                    };
                }
            }
        }
    }
    Err(Status::object_modified(resource.group_resource(), name))
}

/// Removes an object in the state in which it was read. `None`: it changed meanwhile.
async fn remove(parts: &Parts, resource: &ResourceType, entry: &Entry, last: &Value, call: &Call) -> Result<Option<u64>, Status> {
    let op = Op::Delete {
        expected: Some(entry.sequence),
    };
    let write = write_of(resource, last, entry.uid, op, &body_of(last), call);
    let objects = ObjectsService(parts.context.clone());
    let mutation = match decoded_if_typed(resource, last)? {
        Some(AnyObject::ResourceSlice(slice)) => objects
            .slice_removal(&slice, write)
            .await
            .map_err(|status| from_grpc(&status))?,
        _ => Mutation {
            writes: vec![write],
            ..Mutation::default()
        },
    };
    match parts.context.writer.try_commit(mutation).await.map_err(from_store)? {
        Outcome::Won { sequences } => Ok(sequences.first().copied()),
        _ => Ok(None),
    }
}

async fn commit(parts: &Parts, resource: &ResourceType, ready: &Ready, write: Write, is_new: bool) -> Result<Committed, Status> {
    let objects = ObjectsService(parts.context.clone());
    let mut mutation = match &ready.object {
        Some(AnyObject::ResourceSlice(slice)) => objects
            .slice_write(slice, is_new, write)
            .await
            .map_err(|status| from_grpc(&status))?,
        _ => Mutation {
            writes: vec![write],
            ..Mutation::default()
        },
    };
    mutation.gates = ready.gates;
    let outcome = parts.context.writer.try_commit(mutation).await.map_err(from_store)?;
    match &outcome {
        Outcome::Won { sequences } => sequences.first().map(|sequence| Committed::At(*sequence)).ok_or_else(|| {
            tracing::error!(kind = %resource.plural, "a commit has no sequence");
            Status::internal("the commit has no sequence")
        }),
        Outcome::Exists { .. } => Ok(Committed::NameTaken),
        _ => {
            parts.context.heed(&outcome).await.map_err(|status| from_grpc(&status))?;
            Ok(Committed::Lost)
        }
    }
}

fn write_of(resource: &ResourceType, value: &Value, uid: Uuid, op: Op, body: &Arc<str>, call: &Call) -> Write {
    Write {
        kind: stored_kind(resource).into(),
        namespace: object::namespace(value).into(),
        name: object::name(value).into(),
        uid,
        op,
        body: Arc::clone(body),
        queue: None,
        part_of: None,
        cause: Some(format!("by {}", call.user.name).into()),
        trace: call.trace.clone(),
    }
}

/// What is stored of an object: everything but its version.
fn body_of(value: &Value) -> Arc<str> {
    let mut value = value.clone();
    object::set_meta(&mut value, "resourceVersion", None);
    value.to_string().into()
}

fn at_version(mut value: Value, sequence: u64) -> Value {
    object::set_meta_text(&mut value, "resourceVersion", &sequence.to_string());
    value
}

/// The object in v1 with its defaults, if its kind has a type; else as it is.
fn defaulted(resource: &ResourceType, value: Value, now: Timestamp) -> Result<Value, Status> {
    let Some((kind, version)) = typed(resource) else {
        return Ok(value);
    };
    let mut object = decoded(kind, version, &value)?;
    defaults::apply_in(version, &mut object, Time::new(now));
    value_of(&object)
}

fn decoded_if_typed(resource: &ResourceType, value: &Value) -> Result<Option<AnyObject>, Status> {
    typed(resource)
        .map(|(kind, _)| decoded(kind, ApiVersion::V1, value))
        .transpose()
}

fn admit_new(parts: &Parts, resource: &ResourceType, value: Value, uid: Uuid, now: Timestamp) -> Result<Ready, Status> {
    let Some(object) = decoded_if_typed(resource, &value)? else {
        return Ok(Ready {
            body: body_of(&value),
            value,
            object: None,
            gates: None,
        });
    };
    if object.metadata().annotations.contains_key(UNIT_ANNOTATION) && object.kind() == Kind::ResourceClaim {
        return Err(unit_annotation_refused(resource, &value));
    }
    let name = object.metadata().name.clone();
    let admission = parts.context.gatekeeper.admission();
    let admitted = admission.create(object, uid, Time::new(now));
    let admitted = admitted.map_err(|errors| Status::invalid(resource.group_kind(), &name, &errors))?;
    ready(admitted, admission.position())
}

fn admit_change(
    parts: &Parts,
    resource: &ResourceType,
    part: Part,
    new: Value,
    old: &Value,
    now: Timestamp,
) -> Result<Ready, Status> {
    let Some(object) = decoded_if_typed(resource, &new)? else {
        return Ok(Ready {
            body: body_of(&new),
            value: new,
            object: None,
            gates: None,
        });
    };
    let Some(before) = decoded_if_typed(resource, old)? else {
        return Err(Status::internal("a stored object has no type"));
    };
    let unit_of = |object: &AnyObject| object.metadata().annotations.get(UNIT_ANNOTATION).cloned();
    if unit_of(&object) != unit_of(&before) {
        return Err(unit_annotation_refused(resource, &new));
    }
    check_allocation(resource, &object, &before)?;
    let name = object.metadata().name.clone();
    let admission = parts.context.gatekeeper.admission();
    let admitted = match part {
        Part::Status => admission.update_status(object, &before),
        Part::Main | Part::Finalize => admission.update(object, &before, Time::new(now)),
    };
    let admitted = admitted.map_err(|errors| Status::invalid(resource.group_kind(), &name, &errors))?;
    ready(admitted, admission.position())
}

fn ready(admitted: crate::admission::Admitted, gates: u64) -> Result<Ready, Status> {
    let body = admitted.body();
    let object = admitted.object().clone();
    let mut value = value_of(&object)?;
    object::set_meta(&mut value, "resourceVersion", None);
    Ok(Ready {
        value,
        object: Some(object),
        body,
        gates: Some(gates),
    })
}

/// Only a submission makes a claim part of a unit, and nothing takes it out again.
fn unit_annotation_refused(resource: &ResourceType, value: &Value) -> Status {
    let mut errors = resource_api::field_path::FieldErrors::new();
    let path = resource_api::field_path::FieldPath::root("metadata");
    errors.forbidden(
        &path.child("annotations").key(UNIT_ANNOTATION),
        "only submitting a unit sets it",
    );
    Status::invalid(resource.group_kind(), object::name(value), &errors.into_vec())
}

/// Devices are given by allocators alone, so far.
fn check_allocation(resource: &ResourceType, new: &AnyObject, old: &AnyObject) -> Result<(), Status> {
    let (AnyObject::ResourceClaim(new), AnyObject::ResourceClaim(old)) = (new, old) else {
        return Ok(());
    };
    if new.status.allocation == old.status.allocation {
        return Ok(());
    }
    let mut errors = resource_api::field_path::FieldErrors::new();
    let path = resource_api::field_path::FieldPath::root("status");
    errors.forbidden(
        &path.child("allocation"),
        "allocations are made and taken back by Dray's allocators",
    );
    Err(Status::invalid(resource.group_kind(), &new.metadata.name, &errors.into_vec()))
}

/// A claim goes with its unit, and not while it holds devices.
fn check_deletable(resource: &ResourceType, entry: &Entry) -> Result<(), Status> {
    if typed(resource).is_none_or(|(kind, _)| kind != Kind::ResourceClaim) {
        return Ok(());
    }
    let claim: ResourceClaim = serde_json::from_str(&entry.body).map_err(|error| Status::internal(error.to_string()))?;
    let why = match claim.metadata.annotations.get(UNIT_ANNOTATION) {
        Some(unit) => format!("it is part of unit {unit}: delete the unit"),
        None if claim.status.allocation.is_some() => "it holds devices: its consumers must go first".to_owned(),
        None => return Ok(()),
    };
    Err(Status::conflict(resource.group_resource(), &entry.name, &why))
}

/// Makes a namespace unless it is there.
pub(super) async fn make_namespace(parts: &Parts, name: &str) -> Result<(), Status> {
    let resource = parts.catalog.find("", "v1", "namespaces");
    let resource = resource.ok_or_else(Status::no_such_resource)?;
    if stored(parts, resource, "", name).await?.is_some() {
        return Ok(());
    }
    let call = Call::of_server();
    let request = ResourceRequest {
        resource: Arc::clone(resource),
        namespace: String::new(),
        name: String::new(),
        subresource: None,
        operation: apiserver::request::Operation::Create(WriteOptions::default()),
        is_pretty: false,
    };
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    match create_object(parts, &request, None, body, &WriteOptions::default(), &call).await {
        Ok(_) => Ok(()),
        // Another ingest was faster.
        Err(status) if status.code == 409 => Ok(()),
        Err(status) => Err(status),
    }
}

/// Namespaces are there before what is in them.
async fn check_namespace(parts: &Parts, resource: &ResourceType, name: &str, namespace: &str) -> Result<(), Status> {
    if !resource.is_namespaced() || namespace.is_empty() {
        return Ok(());
    }
    let found = parts
        .context
        .store
        .object("namespaces", "", namespace)
        .await
        .map_err(from_store)?;
    let found = found.map(|found| serde_json::from_str::<Value>(&found.body));
    let found = found.transpose().map_err(|error| Status::internal(error.to_string()))?;
    rules::create::check_namespace(resource, name, (namespace, found.as_ref()))
}

/// A node agent changes only what is of its own node.
fn check_own_node(call: &Call, resource: &ResourceType, value: &Value) -> Result<(), Status> {
    let Decision::OwnNode(node) = &call.decision else {
        return Ok(());
    };
    let is_own = match resource.plural.as_str() {
        "resourceslices" | "pods" => object::text_at(value, &["spec", "nodeName"]) == node,
        "nodes" | "leases" => object::name(value) == node,
        "resourceclaims" => value
            .pointer("/status/allocation/nodeSelector/nodeSelectorTerms/0/matchFields/0/values/0")
            .and_then(Value::as_str)
            .is_some_and(|own| own == node),
        "events" => true,
        _ => false,
    };
    if is_own {
        return Ok(());
    }
    tracing::warn!(user = %call.user.name, kind = %resource.plural, name = object::name(value), "refused: of another node");
    let why = format!("node {node:?} may change only what is its own");
    Err(Status::forbidden(resource.group_resource(), object::name(value), &why))
}

/// The object of the body, and the warnings about it.
fn read_object(
    resource: &ResourceType,
    validation: FieldValidation,
    call: &Call,
) -> Result<(Map<String, Value>, Vec<String>), Status> {
    let format = negotiate::body_format(call.content_type.as_deref(), !resource.is_custom)?;
    let read = body::decode(Schema::builtin(), &resource.gvk(), format, &call.body);
    let read = read.map_err(|error| faults::body_status(&error))?;
    let warnings = faults::judge_findings(&read.findings, validation, resource, Source::Body)?;
    Ok((read.object, warnings))
}

fn delete_options(resource: &ResourceType, options: &DeleteOptions, call: &Call) -> Result<DeleteOptions, Status> {
    if call.body.is_empty() {
        return Ok(options.clone());
    }
    let format = negotiate::body_format(call.content_type.as_deref(), true)?;
    let version = resource.api_version();
    let read = body::decode_options(Schema::builtin(), &version, "DeleteOptions", format, &call.body);
    let read = read.map_err(|error| faults::body_status(&error))?;
    DeleteOptions::from_body(&Value::Object(read.object))
}
