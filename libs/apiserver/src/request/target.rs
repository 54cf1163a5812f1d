//! What a request addresses, by its method and URL alone. Authorization decides on this, before anyone learns what exists.

use super::query::{Query, URL_PART_BYTES_MAX, decode};
use crate::selectors::FieldSelector;
use crate::status::Status;

/// What a URL addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The path, decoded.
    pub path: String,
    /// A verb of the API for resources, else the method in lower case.
    pub verb: String,
    /// `None` for everything that is not objects.
    pub resource: Option<ResourceTarget>,
    pub query: Query,
    /// The path's segments.
    pub(super) parts: Vec<String>,
}

/// Objects that a URL addresses, whether there are such or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTarget {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub plural: String,
    /// Empty if none is addressed.
    pub subresource: String,
    /// Empty across all namespaces and for cluster kinds. For the object of a namespace, its name.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The only name that the field selector of a list or watch lets through; empty if there is none.
    pub selected_name: String,
    /// The query asks for a watch.
    pub is_watch: bool,
    /// A path below `/watch/`, the old way to ask for a watch.
    pub is_watch_path: bool,
    /// The path has a namespace before the plural.
    pub(super) is_in_namespace: bool,
    /// The path goes on after the subresource.
    pub(super) is_too_deep: bool,
}

impl Target {
    /// Reads method, path and query. 400 if they cannot be decoded or are too long.
    pub fn parse(method: &str, path: &str, query: &str) -> Result<Self, Status> {
        if path.len() > URL_PART_BYTES_MAX {
            return Err(Status::bad_request(format!("path has more than {URL_PART_BYTES_MAX} bytes")));
        }
        let query = Query::parse(query)?;
        let path = decode(path, false).ok_or_else(|| Status::bad_request("path is not well-formed"))?;
        let trimmed = path.trim_matches('/');
        let parts: Vec<String> = match trimmed {
            "" => Vec::new(),
            _ => trimmed.split('/').map(str::to_owned).collect(),
        };
        let mut target = Self {
            path,
            verb: method.to_ascii_lowercase(),
            resource: None,
            query,
            parts,
        };
        if let Some(resource) = resource(&target.parts, &target.query) {
            target.verb = verb(method, &resource).to_owned();
            target.resource = Some(resource);
        }
        Ok(target)
    }
}

fn resource(parts: &[String], query: &Query) -> Option<ResourceTarget> {
    let (group, version, rest) = match parts {
        [prefix, version, rest @ ..] if prefix == "api" && !rest.is_empty() => ("", version, rest),
        [prefix, group, version, rest @ ..] if prefix == "apis" && !rest.is_empty() => (group.as_str(), version, rest),
        _ => return None,
    };
    // Without anything after it, `watch` is the name of a resource that does not exist.
    let (is_watch_path, rest) = match rest {
        [watch, rest @ ..] if watch == "watch" && !rest.is_empty() => (true, rest),
        _ => (false, rest),
    };
    let (namespace, is_in_namespace, rest) = match rest {
        // These two belong to the namespace itself.
        [first, namespace, third, ..] if first == "namespaces" && (third == "status" || third == "finalize") => {
            (namespace.as_str(), false, rest)
        }
        [first, namespace, _, ..] if first == "namespaces" => (namespace.as_str(), true, &rest[2..]),
        [first, namespace] if first == "namespaces" => (namespace.as_str(), false, rest),
        _ => ("", false, rest),
    };
    let part = |at: usize| rest.get(at).cloned().unwrap_or_default();
    let name = part(1);
    let mut found = ResourceTarget {
        group: group.to_owned(),
        version: version.clone(),
        plural: part(0),
        subresource: part(2),
        namespace: namespace.to_owned(),
        name,
        selected_name: String::new(),
        is_watch: is_watch_path || query.flag("watch").unwrap_or_default(),
        is_watch_path,
        is_in_namespace,
        is_too_deep: rest.len() > 3,
    };
    if found.name.is_empty() {
        let selector = query.first("fieldSelector").map(FieldSelector::parse);
        if let Some(name) = selector
            .as_ref()
            .and_then(|selector| selector.as_ref().ok()?.exact("metadata.name"))
        {
            found.selected_name = name.to_owned();
        }
    }
    Some(found)
}

fn verb(method: &str, resource: &ResourceTarget) -> &'static str {
    let is_collection = resource.name.is_empty();
    match method {
        _ if resource.is_watch_path => "watch",
        "GET" | "HEAD" if is_collection && resource.is_watch => "watch",
        "GET" | "HEAD" if is_collection => "list",
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if is_collection => "deletecollection",
        "DELETE" => "delete",
        _ => "",
    }
}
