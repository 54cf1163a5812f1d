//! Reads: one object from the store, lists from the cache, which has every write that was answered before.

use std::sync::Arc;

use apiserver::list::{self, Freshness, Horizon, Listed, NextPage, Position};
use apiserver::negotiate::{Accepted, Representation};
use apiserver::object;
use apiserver::request::{ListOptions, ResourceRequest, Target};
use apiserver::resources::ResourceType;
use apiserver::status::Status;
use apiserver::table::{self, Header, IncludeObject, TableStyle};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use store::Stored;

use super::cache::{CacheError, KindCache};
use super::kinds::{shown, stored_kind};
use super::object::Entry;
use super::serve::Body;
use super::{Parts, from_store, respond};

/// The stored state of an object, if there is one.
pub(super) async fn stored(parts: &Parts, resource: &ResourceType, namespace: &str, name: &str) -> Result<Option<Entry>, Status> {
    let found = parts.context.store.object(&stored_kind(resource), namespace, name).await;
    Ok(found.map_err(from_store)?.map(entry))
}

fn entry(stored: Stored) -> Entry {
    Entry {
        namespace: stored.namespace,
        name: stored.name,
        uid: stored.uid,
        sequence: stored.sequence,
        body: stored.body,
    }
}

/// As [`stored`]; 404 if there is none.
pub(super) async fn found(parts: &Parts, request: &ResourceRequest) -> Result<Entry, Status> {
    let resource = &request.resource;
    let found = stored(parts, resource, &request.namespace, &request.name).await?;
    found.ok_or_else(|| Status::not_found(resource.group_resource(), &request.name))
}

pub(super) async fn get(
    parts: &Parts,
    request: &ResourceRequest,
    target: &Target,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let entry = found(parts, request).await?;
    let value = shown(&request.resource, &entry)?;
    object_answer(StatusCode::OK, &request.resource, value, target_style(target)?, accepted)
}

/// How tables of this request are made.
pub(super) fn target_style(target: &Target) -> Result<IncludeObject, Status> {
    IncludeObject::read(&target.query)
}

pub(super) fn style(accepted: Accepted, include_object: IncludeObject) -> TableStyle {
    let version = match accepted.representation {
        Representation::Table(version) | Representation::Metadata(version) => version,
        Representation::Object | Representation::Discovery(_) => apiserver::negotiate::MetaVersion::V1,
    };
    TableStyle {
        version,
        include_object,
        now: Timestamp::now(),
    }
}

/// One object as an answer.
pub(super) fn object_answer(
    code: StatusCode,
    resource: &ResourceType,
    value: Value,
    include_object: IncludeObject,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let shown = match accepted.representation {
        Representation::Object | Representation::Discovery(_) => value,
        Representation::Metadata(version) => table::metadata_only(&value, version),
        Representation::Table(_) => table::object_table(resource, &value, style(accepted, include_object), Header::Shown),
    };
    answer(code, shown, accepted)
}

pub(super) fn answer(code: StatusCode, shown: Value, accepted: Accepted) -> Result<Response<Body>, Status> {
    match shown {
        Value::Object(object) => Ok(respond::encoded(code, &object, accepted)),
        _ => Err(Status::internal("an answer is no object")),
    }
}

/// A cache that is as new as `freshness` says, and the states that can be read.
pub(super) async fn cache_for(parts: &Parts, resource: &ResourceType) -> Result<(Arc<KindCache>, u64), Status> {
    parts.caches.fresh(&stored_kind(resource)).await.map_err(|error| match error {
        CacheError::Store(error) => from_store(error),
        CacheError::Behind => Status::unavailable("the server has not caught up with the log", 1),
    })
}

/// What a list may show: the present state, or one that is kept for its next pages.
pub(super) async fn list(
    parts: &Parts,
    request: &ResourceRequest,
    options: &ListOptions,
    target: &Target,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let resource = &*request.resource;
    let listed = Listed {
        resource,
        namespace: &request.namespace,
    };
    let (cache, current) = cache_for(parts, resource).await?;
    let horizon = Horizon {
        oldest: cache.oldest_snapshot().unwrap_or(current),
        current,
    };
    let plan = list::decide(options, listed, horizon)?;
    let namespace = resource
        .is_namespaced()
        .then_some(request.namespace.as_str())
        .filter(|namespace| !namespace.is_empty());
    let (entries, version) = match plan.freshness {
        Freshness::Exactly(version) => {
            let kept = cache.snapshot_at(version, namespace);
            let kept =
                kept.ok_or_else(|| Status::expired("the state at the resource version of this list is no longer known"))?;
            (kept, version)
        }
        Freshness::Any | Freshness::Latest | Freshness::AtLeast(_) => {
            let (entries, position) = cache.snapshot(namespace);
            (entries, position.max(current))
        }
    };
    let after = plan.after.as_ref();
    let is_after = |entry: &Entry| {
        after.is_none_or(|after| (&*entry.namespace, &*entry.name) > (after.namespace.as_str(), after.name.as_str()))
    };
    let from = entries.partition_point(|entry| !is_after(entry));
    let is_everything = options.selection.is_everything();
    let limit = plan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut items = Vec::new();
    let mut next = None;
    for (at, entry) in entries.iter().enumerate().skip(from) {
        if items.len() >= limit {
            let last = &entries[at - 1];
            next = Some(NextPage {
                after: Position {
                    namespace: last.namespace.to_string(),
                    name: last.name.to_string(),
                },
                remaining: is_everything.then(|| (entries.len() - at) as u64),
            });
            break;
        }
        let value = shown(resource, entry)?;
        if is_everything || options.selection.matches(&value) {
            items.push(value);
        }
    }
    if next.is_some() && !matches!(plan.freshness, Freshness::Exactly(_)) {
        cache.keep_snapshot(version, namespace, &entries);
    }
    let metadata = list::metadata(listed, version, next);
    let shown = match accepted.representation {
        Representation::Object | Representation::Discovery(_) => {
            for item in &mut items {
                // Items of typed lists carry no type.
                object::set_field(item, "kind", None);
                object::set_field(item, "apiVersion", None);
            }
            list::body(resource, items, metadata)
        }
        Representation::Metadata(version) => table::metadata_list(&items, &metadata, version),
        Representation::Table(_) => table::list_table(resource, &items, &metadata, style(accepted, target_style(target)?)),
    };
    answer(StatusCode::OK, shown, accepted)
}
