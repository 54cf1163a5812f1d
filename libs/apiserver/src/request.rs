//! From method, path and query to a typed request, in two steps: [`Target`] says what is addressed, which is all that
//! authorization needs; [`resolve`] holds it against the [`Catalog`] and reads the options.
//!
//! Bodies are not looked at here. Source: `k8s.io/apiserver/pkg/endpoints/request`, `pkg/endpoints/handlers`.

pub mod options;
pub mod query;
pub mod target;

use std::sync::Arc;

pub use options::{
    DeleteOptions, FieldValidation, ListOptions, PatchOptions, Propagation, VersionMatch, WatchOptions, WriteOptions,
};
pub use query::Query;
pub use target::{ResourceTarget, Target};

use crate::negotiate::{self, PatchType};
use crate::resources::{Catalog, ResourceType, Scope, Verb};
use crate::status::Status;

/// The parts of an HTTP request that decide what is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incoming<'a> {
    pub method: &'a str,
    /// As sent: percent-encoded, without query.
    pub path: &'a str,
    /// As sent, without the question mark.
    pub query: &'a str,
    pub content_type: Option<&'a str>,
    pub user_agent: Option<&'a str>,
}

/// A request, understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Document(Document),
    Resource(Box<ResourceRequest>),
}

/// Something to read that is no object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// `/`
    Index,
    /// `/version`
    Version,
    /// `/healthz`, `/livez` or `/readyz`, and the check below it, if one is named.
    Health { check: String, part: String },
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/api/V` or `/apis/G/V`
    Resources { group: String, version: String },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/V` or `/openapi/v3/apis/G/V`, with the hash that the client knows.
    OpenApi {
        group: String,
        version: String,
        hash: Option<String>,
    },
}

/// A request for objects.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceRequest {
    pub resource: Arc<ResourceType>,
    /// Empty for cluster kinds and across all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Name of the path below the object, if it is meant.
    pub subresource: Option<String>,
    pub operation: Operation,
    /// Indented JSON was asked for.
    pub is_pretty: bool,
}

/// What is to be done, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// `at_least`: the answer must not be older.
    Get {
        at_least: Option<u64>,
    },
    List(ListOptions),
    Watch(WatchOptions),
    Create(WriteOptions),
    Update(WriteOptions),
    Patch(PatchOptions),
    /// The options of the query; those of a body, if there is one, replace them: [`DeleteOptions::from_body`].
    Delete(DeleteOptions),
    /// Options as for [`Operation::Delete`].
    DeleteCollection(ListOptions, DeleteOptions),
}

impl Operation {
    /// The verb, as authorization and discovery have it.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Get { .. } => Verb::Get,
            Self::List(_) => Verb::List,
            Self::Watch(_) => Verb::Watch,
            Self::Create(_) => Verb::Create,
            Self::Update(_) => Verb::Update,
            Self::Patch(_) => Verb::Patch,
            Self::Delete(_) => Verb::Delete,
            Self::DeleteCollection(..) => Verb::DeleteCollection,
        }
    }

    /// True if nothing is to be stored.
    pub const fn is_dry_run(&self) -> bool {
        match self {
            Self::Get { .. } | Self::List(_) | Self::Watch(_) => false,
            Self::Create(options) | Self::Update(options) => options.is_dry_run,
            Self::Patch(options) => options.write.is_dry_run,
            Self::Delete(options) | Self::DeleteCollection(_, options) => options.is_dry_run,
        }
    }
}

/// A request that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An answer in the form of the API.
    Status(Status),
    /// 404 with the plain text `404 page not found`: no such group or version, or no path of the API at all.
    PageNotFound,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Finds what a target is in the catalog, and reads the options of the operation.
///
/// `PageNotFound` for unknown groups and versions; else 404 for unknown resources and subresources, 405 for methods that a path
/// does not have, 400 and 422 for bad options, 415 for patches of unknown type.
pub fn resolve(target: &Target, incoming: &Incoming<'_>, catalog: &Catalog) -> Result<Request, Refusal> {
    let Some(addressed) = &target.resource else {
        return document(target, incoming.method, catalog).map(Request::Document);
    };
    if !catalog.serves(&addressed.group, &addressed.version) {
        return Err(Refusal::PageNotFound);
    }
    let resource = catalog.find(&addressed.group, &addressed.version, &addressed.plural);
    let resource = resource.ok_or_else(Status::no_such_resource)?;
    let place = place(addressed, resource)?;
    let verb = verb(addressed, resource, place, incoming.method)?;
    let operation = operation(verb, addressed, resource, &target.query, incoming)?;
    let namespace = match resource.scope {
        Scope::Cluster => String::new(),
        Scope::Namespaced => addressed.namespace.clone(),
    };
    Ok(Request::Resource(Box::new(ResourceRequest {
        resource: Arc::clone(resource),
        namespace,
        name: if addressed.is_watch_path {
            String::new()
        } else {
            addressed.name.clone()
        },
        subresource: (!addressed.subresource.is_empty()).then(|| addressed.subresource.clone()),
        operation,
        is_pretty: is_pretty(&target.query, incoming.user_agent),
    })))
}

fn document(target: &Target, method: &str, catalog: &Catalog) -> Result<Document, Refusal> {
    let parts: Vec<&str> = target.parts.iter().map(String::as_str).collect();
    let served = |group: &str, version: &str| catalog.serves(group, version).then_some(());
    let text = |text: &str| text.to_owned();
    let found = match parts.as_slice() {
        [] => Some(Document::Index),
        ["version"] => Some(Document::Version),
        [check @ ("healthz" | "livez" | "readyz"), part @ ..] => Some(Document::Health {
            check: text(check),
            part: part.join("/"),
        }),
        ["api"] => Some(Document::CoreVersions),
        ["apis"] => Some(Document::Groups),
        ["apis", group] => {
            let is_served = !group.is_empty() && catalog.versions().iter().any(|known| known.group == *group);
            is_served.then(|| Document::Group(text(group)))
        }
        ["api", version] => served("", version).map(|()| Document::Resources {
            group: String::new(),
            version: text(version),
        }),
        ["apis", group, version] if !group.is_empty() => served(group, version).map(|()| Document::Resources {
            group: text(group),
            version: text(version),
        }),
        ["openapi", "v2"] => Some(Document::OpenApiV2),
        ["openapi", "v3"] => Some(Document::OpenApiIndex),
        ["openapi", "v3", path @ ..] => match path {
            ["api", version] => Some(("", *version)),
            ["apis", group, version] if !group.is_empty() => Some((*group, *version)),
            _ => None,
        }
        .filter(|(group, version)| catalog.serves(group, version))
        .map(|(group, version)| Document::OpenApi {
            group: text(group),
            version: text(version),
            hash: target.query.first("hash").map(str::to_owned),
        }),
        _ => None,
    };
    match found {
        None => Err(Refusal::PageNotFound),
        Some(_) if method != "GET" => Err(Status::method_not_allowed().into()),
        Some(found) => Ok(found),
    }
}

/// Which kind of path a resource request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Objects of one namespace, or of a cluster kind.
    Collection,
    /// Objects of all namespaces.
    AllNamespaces,
    Item,
    Subresource,
}

fn place(addressed: &ResourceTarget, resource: &ResourceType) -> Result<Place, Status> {
    if addressed.is_too_deep || (!resource.is_namespaced() && addressed.is_in_namespace) {
        return Err(Status::no_such_resource());
    }
    let lacks_namespace = resource.is_namespaced() && addressed.namespace.is_empty();
    if addressed.name.is_empty() {
        let is_named = !addressed.subresource.is_empty();
        return match (is_named, lacks_namespace) {
            (true, _) => Err(Status::no_such_resource()),
            (false, true) => Ok(Place::AllNamespaces),
            (false, false) => Ok(Place::Collection),
        };
    }
    let has_items = [Verb::Get, Verb::Update, Verb::Patch, Verb::Delete]
        .iter()
        .any(|verb| resource.allows(*verb));
    if lacks_namespace || !has_items {
        return Err(Status::no_such_resource());
    }
    if addressed.subresource.is_empty() {
        return Ok(Place::Item);
    }
    match resource.subresource(&addressed.subresource) {
        Some(_) => Ok(Place::Subresource),
        None => Err(Status::no_such_resource()),
    }
}

fn verb(addressed: &ResourceTarget, resource: &ResourceType, place: Place, method: &str) -> Result<Verb, Status> {
    let verb = match (method, place) {
        ("GET", Place::Collection | Place::AllNamespaces) if addressed.is_watch => Some(Verb::Watch),
        ("GET", Place::Item) if addressed.is_watch_path => Some(Verb::Watch),
        _ if addressed.is_watch_path => None,
        ("GET", Place::Collection | Place::AllNamespaces) => Some(Verb::List),
        ("GET", Place::Item | Place::Subresource) => Some(Verb::Get),
        ("POST", Place::Collection | Place::Subresource) => Some(Verb::Create),
        ("PUT", Place::Item | Place::Subresource) => Some(Verb::Update),
        ("PATCH", Place::Item | Place::Subresource) => Some(Verb::Patch),
        ("DELETE", Place::Item | Place::Subresource) => Some(Verb::Delete),
        ("DELETE", Place::Collection) => Some(Verb::DeleteCollection),
        _ => None,
    };
    let is_allowed = |verb: &Verb| match resource.subresource(&addressed.subresource) {
        Some(subresource) => subresource.verbs.contains(verb),
        None => resource.allows(*verb),
    };
    verb.filter(is_allowed).ok_or_else(Status::method_not_allowed)
}

fn operation(
    verb: Verb,
    addressed: &ResourceTarget,
    resource: &ResourceType,
    query: &Query,
    incoming: &Incoming<'_>,
) -> Result<Operation, Status> {
    Ok(match verb {
        Verb::Get => Operation::Get {
            at_least: options::version(query)?.filter(|version| *version > 0),
        },
        Verb::List => Operation::List(ListOptions::read(query, resource)?),
        Verb::Watch => {
            let mut watch = WatchOptions::read(query, resource)?;
            if addressed.is_watch_path && !addressed.name.is_empty() {
                watch.select_name(&addressed.name, resource)?;
            }
            Operation::Watch(watch)
        }
        Verb::Create => Operation::Create(WriteOptions::read(query, "CreateOptions")?),
        Verb::Update => Operation::Update(WriteOptions::read(query, "UpdateOptions")?),
        Verb::Patch => {
            let patch_type: PatchType = negotiate::patch_type(incoming.content_type, resource.is_custom)?;
            Operation::Patch(PatchOptions::read(query, patch_type)?)
        }
        Verb::Delete => Operation::Delete(DeleteOptions::read(query)?),
        Verb::DeleteCollection => Operation::DeleteCollection(ListOptions::read(query, resource)?, DeleteOptions::read(query)?),
    })
}

/// What the query says; without it, people with a browser or curl get indented JSON.
fn is_pretty(query: &Query, user_agent: Option<&str>) -> bool {
    match query.first("pretty").filter(|text| !text.is_empty()) {
        Some(text) => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => {
            let agent = user_agent.unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|human| agent.starts_with(human))
        }
    }
}

#[cfg(test)]
mod tests;
