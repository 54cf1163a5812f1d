//! What authorization decides on and how a refusal reads; the reviews by which clients ask who they are and what they may do.
//!
//! Who may do what is decided elsewhere. Source: `k8s.io/apiserver/pkg/authorization`, `k8s.io/api/authorization`,
//! `…/authentication`.

pub mod impersonation;
pub mod review;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::request::Target;
use crate::status::{GroupResource, Status};

/// The name of callers without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of callers without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of callers with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// Empty if the kind of credentials has none.
    pub uid: String,
    pub groups: Vec<String>,
    /// Further facts, such as the node of a pod.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A caller without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// A service account. `node`: name and uid of the node of the pod that its token is bound to.
    pub fn service_account(namespace: &str, name: &str, uid: &str, node: Option<(&str, &str)>) -> Self {
        let mut extra = BTreeMap::new();
        if let Some((node, node_uid)) = node {
            extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()]);
            extra.insert("authentication.kubernetes.io/node-uid".to_owned(), vec![node_uid.to_owned()]);
        }
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.to_owned(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED.to_owned(),
            ],
            extra,
        }
    }

    /// The agent of a node.
    pub fn node(name: &str) -> Self {
        Self {
            name: format!("system:node:{name}"),
            groups: vec!["system:nodes".to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// True if the caller is in the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// The user as reviews show it: `username`, `uid`, `groups`, `extra`; what is empty is left out.
    pub fn to_value(&self) -> Value {
        let mut shown = Map::new();
        for (field, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                shown.insert(field.to_owned(), json!(text));
            }
        }
        if !self.groups.is_empty() {
            shown.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            shown.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(shown)
    }
}

/// What is asked to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    Resource(ResourceAttributes),
    /// A path that is no resource; the verb is the method in lower case.
    Path {
        path: String,
        verb: String,
    },
}

/// What is asked to be done with objects. Empty fields: not said, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes {
    pub verb: String,
    pub group: String,
    pub version: String,
    /// The plural.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

impl Attributes {
    /// What a request asks for. A list or watch of one name by its field selector asks for that name.
    pub fn of(target: &Target) -> Self {
        let Some(addressed) = &target.resource else {
            return Self::Path {
                path: target.path.clone(),
                verb: target.verb.clone(),
            };
        };
        let name = if addressed.name.is_empty() {
            &addressed.selected_name
        } else {
            &addressed.name
        };
        Self::Resource(ResourceAttributes {
            verb: target.verb.clone(),
            group: addressed.group.clone(),
            version: addressed.version.clone(),
            resource: addressed.plural.clone(),
            subresource: addressed.subresource.clone(),
            namespace: addressed.namespace.clone(),
            name: name.clone(),
        })
    }

    /// 403 in the words that clients know. `reason`: why, if that may be told; else empty.
    pub fn forbidden(&self, user: &User, reason: &str) -> Status {
        let (resource, name) = match self {
            Self::Resource(asked) => (GroupResource::new(&asked.group, &asked.resource), asked.name.as_str()),
            Self::Path { .. } => (GroupResource::new("", ""), ""),
        };
        let mut why = escaped(&self.refusal(user));
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        Status::forbidden(resource, name, &why)
    }

    fn refusal(&self, user: &User) -> String {
        let user = &user.name;
        match self {
            Self::Path { path, verb } => format!("User {user:?} cannot {verb} path {path:?}"),
            Self::Resource(asked) => {
                let (verb, group) = (&asked.verb, &asked.group);
                let mut resource = asked.resource.clone();
                if !asked.subresource.is_empty() {
                    resource = format!("{resource}/{}", asked.subresource);
                }
                let place = match asked.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
            }
        }
    }
}

/// Names come from outside; a browser must not take them for markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
