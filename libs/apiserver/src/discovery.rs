//! The documents from which clients learn what is served: aggregated and by version.
//!
//! Source: `k8s.io/api/apidiscovery`, `k8s.io/apiserver/pkg/endpoints/discovery`.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::negotiate::DiscoveryVersion;
use crate::resources::{Catalog, ResourceType, Scope, Subresource, Verb, api_version};

/// The two places where groups are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// `/api`: the core group.
    Core,
    /// `/apis`: every other group.
    Groups,
}

impl Root {
    const fn has(self, group: &str) -> bool {
        match self {
            Self::Core => group.is_empty(),
            Self::Groups => !group.is_empty(),
        }
    }
}

/// Everything below a root in one document.
pub fn aggregated(catalog: &Catalog, root: Root, version: DiscoveryVersion) -> Value {
    let groups = catalog.groups().into_iter().filter(|(group, _)| root.has(group));
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> = catalog.in_version(group, version).map(|it| aggregated_resource(it)).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let version = match version {
        DiscoveryVersion::V2 => "apidiscovery.k8s.io/v2",
        DiscoveryVersion::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": version, "metadata": {}, "items": items})
}

fn aggregated_resource(resource: &ResourceType) -> Value {
    let mut shown = Map::new();
    shown.insert("resource".to_owned(), json!(resource.plural));
    shown.insert("responseKind".to_owned(), own_kind(resource));
    let scope = match resource.scope {
        Scope::Cluster => "Cluster",
        Scope::Namespaced => "Namespaced",
    };
    shown.insert("scope".to_owned(), json!(scope));
    shown.insert("singularResource".to_owned(), json!(resource.singular));
    shown.insert("verbs".to_owned(), verbs(&resource.verbs));
    put_list(&mut shown, "shortNames", &resource.short_names);
    put_list(&mut shown, "categories", &resource.categories);
    let subresources: Vec<Value> = sorted(resource)
        .into_iter()
        .map(|subresource| {
            let kind = match &subresource.body {
                None => own_kind(resource),
                Some(body) => json!({"group": body.group, "version": body.version, "kind": body.kind}),
            };
            json!({"subresource": subresource.name, "responseKind": kind, "verbs": verbs(&subresource.verbs)})
        })
        .collect();
    if !subresources.is_empty() {
        shown.insert("subresources".to_owned(), Value::Array(subresources));
    }
    Value::Object(shown)
}

/// Empty group and version: those of the version in which the resource is listed.
fn own_kind(resource: &ResourceType) -> Value {
    json!({"group": "", "version": "", "kind": resource.kind})
}

fn sorted(resource: &ResourceType) -> Vec<&Subresource> {
    let mut subresources: Vec<&Subresource> = resource.subresources.iter().collect();
    subresources.sort_by(|a, b| a.name.cmp(&b.name));
    subresources
}

fn verbs(verbs: &[Verb]) -> Value {
    let mut words: Vec<&str> = verbs.iter().map(|verb| verb.text()).collect();
    words.sort_unstable();
    json!(words)
}

fn put_list(shown: &mut Map<String, Value>, field: &str, list: &[String]) {
    if !list.is_empty() {
        shown.insert(field.to_owned(), json!(list));
    }
}

/// The answer of `/api` to clients that do not know aggregated discovery. `address`: where this server is reached, `host:port`.
pub fn core_versions(catalog: &Catalog, address: &str) -> Value {
    let groups = catalog.groups();
    let versions = groups
        .iter()
        .find(|(group, _)| group.is_empty())
        .map(|(_, versions)| versions.clone());
    json!({
        "kind": "APIVersions",
        "versions": versions.unwrap_or_default(),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// The answer of `/apis` to clients that do not know aggregated discovery.
pub fn groups(catalog: &Catalog) -> Value {
    let groups = catalog.groups().into_iter().filter(|(group, _)| !group.is_empty());
    let groups: Vec<Value> = groups.map(|(group, versions)| group_fields(group, &versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The answer of `/apis/G`. `None` if the group is not served.
pub fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    let (group, versions) = catalog
        .groups()
        .into_iter()
        .find(|(group, _)| *group == name && !name.is_empty())?;
    let mut shown = group_fields(group, &versions);
    let fields = shown.as_object_mut()?;
    fields.insert("kind".to_owned(), json!("APIGroup"));
    fields.insert("apiVersion".to_owned(), json!("v1"));
    Some(shown)
}

fn group_fields(group: &str, versions: &[&str]) -> Value {
    let shown = |version: &&str| json!({"groupVersion": api_version(group, version), "version": version});
    let all: Vec<Value> = versions.iter().map(shown).collect();
    json!({"name": group, "preferredVersion": all.first(), "versions": all})
}

/// The answer of `/api/V` and `/apis/G/V`: resources and, after each, what is below its objects. Empty if nothing is served
/// there.
pub fn resources(catalog: &Catalog, group: &str, version: &str) -> Value {
    let mut listed = Vec::new();
    for resource in catalog.in_version(group, version) {
        let mut shown = Map::new();
        shown.insert("name".to_owned(), json!(resource.plural));
        shown.insert("singularName".to_owned(), json!(resource.singular));
        shown.insert("namespaced".to_owned(), json!(resource.is_namespaced()));
        shown.insert("kind".to_owned(), json!(resource.kind));
        shown.insert("verbs".to_owned(), verbs(&resource.verbs));
        put_list(&mut shown, "shortNames", &resource.short_names);
        put_list(&mut shown, "categories", &resource.categories);
        listed.push(Value::Object(shown));
        for subresource in sorted(resource) {
            listed.push(listed_subresource(resource, subresource));
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": listed,
    })
}

fn listed_subresource(resource: &ResourceType, subresource: &Subresource) -> Value {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(format!("{}/{}", resource.plural, subresource.name)));
    shown.insert("singularName".to_owned(), json!(""));
    shown.insert("namespaced".to_owned(), json!(resource.is_namespaced()));
    let body = subresource.body.as_ref();
    if let Some(body) = body.filter(|body| body.group != resource.group || body.version != resource.version) {
        shown.insert("group".to_owned(), json!(body.group));
        shown.insert("version".to_owned(), json!(body.version));
    }
    shown.insert("kind".to_owned(), json!(body.map_or(&resource.kind, |body| &body.kind)));
    shown.insert("verbs".to_owned(), verbs(&subresource.verbs));
    Value::Object(shown)
}

/// The answer of `/`: the paths that are served. `others`: paths beside the API, such as `/metrics`.
pub fn index(catalog: &Catalog, others: &[&str]) -> Value {
    let mut paths: Vec<String> = others.iter().map(|path| (*path).to_owned()).collect();
    for known in catalog.versions() {
        if known.group.is_empty() {
            paths.extend(["/api".to_owned(), format!("/api/{}", known.version)]);
        } else {
            paths.extend(["/apis".to_owned(), format!("/apis/{}", known.group)]);
            paths.push(format!("/apis/{}/{}", known.group, known.version));
        }
        let root = if known.group.is_empty() { "api" } else { "apis" };
        paths.push(format!("/openapi/v3/{root}/{}", api_version(&known.group, &known.version)));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    paths.sort_unstable();
    paths.dedup();
    json!({ "paths": paths })
}

/// What the server says that it is. `kubectl version` and drivers parse `git_version` as a semantic version and decide by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// Version of Kubernetes whose API is served: 1 in 1.37.
    pub major: u32,
    /// 37 in 1.37.
    pub minor: u32,
    /// With leading `v`, such as `v1.37.2`.
    pub git_version: String,
    pub git_commit: String,
    /// RFC 3339.
    pub build_date: String,
    /// Of the program, in the place where others name their Go.
    pub compiler_version: String,
    /// `linux/amd64`
    pub platform: String,
}

impl ServerVersion {
    /// The answer of `/version`.
    pub fn to_value(&self) -> Value {
        let (major, minor) = (self.major.to_string(), self.minor.to_string());
        json!({
            "major": major,
            "minor": minor,
            "emulationMajor": major,
            "emulationMinor": minor,
            "minCompatibilityMajor": major,
            "minCompatibilityMinor": self.minor.saturating_sub(1).to_string(),
            "gitVersion": self.git_version,
            "gitCommit": self.git_commit,
            "gitTreeState": "clean",
            "buildDate": self.build_date,
            "goVersion": self.compiler_version,
            "compiler": "gc",
            "platform": self.platform,
        })
    }
}

/// The header `ETag` of a document: a digest of its bytes, in quotes.
pub fn etag(body: &[u8]) -> String {
    let mut tag = String::with_capacity(130);
    tag.push('"');
    for byte in Sha512::digest(body) {
        tag.push_str(&format!("{byte:02X}"));
    }
    tag.push('"');
    tag
}

/// True if a client that sends this `If-None-Match` has the document already: answer 304 without a body.
pub fn is_known(if_none_match: Option<&str>, etag: &str) -> bool {
    let known = if_none_match.unwrap_or_default();
    known
        .split(',')
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
}

#[cfg(test)]
mod tests;
