//! Who may do what: roles, and who has them. Pure.
//!
//! A role says which verbs on which resources; a binding gives it to users and groups, where the role allows it only for some
//! namespaces. Nodes need no binding: they are known by user and group, and may change only what is of their own node.

use apiserver::authz::{AUTHENTICATED, Attributes, ResourceAttributes, User};
use serde::Deserialize;

/// The group of node agents; their user is [`NODE_USER_PREFIX`] and the node's name.
pub(crate) const NODES_GROUP: &str = "system:nodes";
pub(crate) const NODE_USER_PREFIX: &str = "system:node:";
/// Whoever is in it may do everything.
pub(crate) const MASTERS_GROUP: &str = "system:masters";

const RESOURCE: &str = "resource.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// What somebody may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Everything.
    Admin,
    /// Own claims, templates, pods and units in some namespaces; reads what is needed to choose devices.
    Submitter,
    /// Reads everything but secrets.
    Viewer,
    /// Publishes slices, reads claims, reports on devices.
    Driver,
    /// Allocates and binds from outside.
    Scheduler,
}

/// Gives a role to users and groups.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Binding {
    pub(crate) role: Role,
    #[serde(default)]
    pub(crate) users: Vec<String>,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    /// Where it holds, for roles that are about namespaces; empty: everywhere.
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
}

impl Binding {
    fn is_for(&self, user: &User) -> bool {
        self.users.contains(&user.name) || self.groups.iter().any(|group| user.groups.contains(group))
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    /// Only for objects that belong to this node; who writes must look.
    OwnNode(String),
    /// Why not, for the log and for those who ask.
    Denied(String),
}

/// Decides. Several roles add up.
pub(crate) fn decide(user: &User, bindings: &[Binding], wanted: &Attributes) -> Decision {
    if user.is_in(MASTERS_GROUP) {
        return Decision::Allowed;
    }
    let is_authenticated = user.is_in(AUTHENTICATED);
    let is_for_all = match wanted {
        Attributes::Path { path, verb } => is_open(verb, path, is_authenticated),
        Attributes::Resource(asked) => is_authenticated && is_about_oneself(asked),
    };
    if is_for_all || bindings.iter().any(|binding| binding.is_for(user) && allows(binding, wanted)) {
        return Decision::Allowed;
    }
    if let (Some(node), Attributes::Resource(asked)) = (node_of(user), wanted) {
        if node_may(asked) {
            return Decision::OwnNode(node.to_owned());
        }
        if node_reads(asked) {
            return Decision::Allowed;
        }
    }
    Decision::Denied(format!("no role of {:?} allows it", user.name))
}

/// The node, of a node agent.
fn node_of(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix(NODE_USER_PREFIX);
    node.filter(|node| user.is_in(NODES_GROUP) && !node.is_empty())
}

/// Everybody may ask who they are and what they may do.
fn is_about_oneself(asked: &ResourceAttributes) -> bool {
    asked.verb == "create"
        && matches!(asked.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
        && matches!(
            asked.resource.as_str(),
            "selfsubjectaccessreviews" | "selfsubjectrulesreviews" | "selfsubjectreviews"
        )
}

/// What is read before anybody is known, and what everybody who is known may read.
fn is_open(verb: &str, path: &str, is_authenticated: bool) -> bool {
    let is_under = |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    let public = ["/version", "/healthz", "/livez", "/readyz"];
    let known = ["/api", "/apis", "/openapi"];
    verb == "get"
        && (public.iter().any(|root| is_under(root))
            || is_authenticated && (path == "/" || known.iter().any(|root| is_under(root))))
}

fn allows(binding: &Binding, wanted: &Attributes) -> bool {
    let Attributes::Resource(asked) = wanted else {
        return binding.role == Role::Admin;
    };
    let (verb, group, resource, subresource) = parts(asked);
    let namespace = &asked.namespace;
    let reads = READ.contains(&verb);
    let writes = WRITE.contains(&verb);
    match binding.role {
        Role::Admin => true,
        Role::Viewer => reads && resource != "secrets",
        Role::Submitter => {
            let is_own = binding.namespaces.is_empty() || binding.namespaces.iter().any(|own| own == namespace);
            let inside = matches!(
                (group, resource, subresource),
                (RESOURCE, "resourceclaims" | "resourceclaimtemplates", "")
                    | ("", "pods" | "configmaps", "")
                    | ("dray.v1", "units", "")
            );
            let seen = matches!(
                (group, resource),
                ("" | "events.k8s.io", "events") | (RESOURCE, _) | ("", "pods")
            );
            let outside = matches!(
                (group, resource),
                (RESOURCE, "deviceclasses" | "resourceslices" | "devicetaintrules") | ("", "nodes" | "namespaces")
            );
            (is_own && inside && writes) || (is_own && seen && reads) || (outside && reads)
        }
        Role::Driver => match (group, resource, subresource) {
            (RESOURCE, "resourceslices", "") => writes,
            (RESOURCE, "resourceclaims", "status") => matches!(verb, "get" | "update" | "patch"),
            (RESOURCE, "resourceclaims", "driver") => verb.starts_with("associated-node:") || verb.starts_with("arbitrary-node:"),
            (RESOURCE, "resourceclaimtemplates", "") => writes,
            (RESOURCE, _, "") => reads,
            ("", "nodes" | "pods", "") => reads || matches!(verb, "update" | "patch"),
            ("", "namespaces", "") => reads,
            ("" | "events.k8s.io", "events", "") => matches!(verb, "create" | "update" | "patch") || reads,
            ("coordination.k8s.io", "leases", "") | ("apps", "daemonsets" | "deployments", "") => writes,
            ("" | "apps" | "coordination.k8s.io" | "dray.v1", ..) => false,
            // What a driver defines for itself.
            (group, _, "" | "status") => writes && !group.ends_with(".k8s.io"),
            _ => false,
        },
        Role::Scheduler => {
            let assigns = matches!(
                (group, resource, subresource),
                (RESOURCE, "resourceclaims", "status" | "binding") | ("", "pods", "status" | "binding") | ("", "bindings", "")
            );
            let claims = matches!((group, resource, subresource), (RESOURCE, "resourceclaims", ""));
            let notes = matches!(
                (group, resource),
                ("" | "events.k8s.io", "events") | ("coordination.k8s.io", "leases")
            );
            (reads && resource != "secrets")
                || (assigns && matches!(verb, "create" | "update" | "patch"))
                || (claims && writes)
                || (notes && matches!(verb, "create" | "update" | "patch" | "delete"))
        }
    }
}

/// Verb, group, resource and subresource.
fn parts(asked: &ResourceAttributes) -> (&str, &str, &str, &str) {
    (&asked.verb, &asked.group, &asked.resource, &asked.subresource)
}

/// What a node agent may do to objects of its own node.
fn node_may(asked: &ResourceAttributes) -> bool {
    let (verb, group, resource, subresource) = parts(asked);
    let changes = matches!(verb, "create" | "update" | "patch" | "delete");
    match (group, resource, subresource) {
        (RESOURCE, "resourceslices", "") => WRITE.contains(&verb) && !READ.contains(&verb),
        (RESOURCE, "resourceclaims", "status") => matches!(verb, "update" | "patch"),
        (RESOURCE, "resourceclaims", "driver") => verb.starts_with("associated-node:"),
        ("", "nodes", "" | "status") => matches!(verb, "create" | "update" | "patch"),
        ("", "pods", "status") => matches!(verb, "update" | "patch"),
        ("", "pods", "") => verb == "delete",
        ("coordination.k8s.io", "leases", "") => changes,
        ("" | "events.k8s.io", "events", "") => matches!(verb, "create" | "update" | "patch"),
        _ => false,
    }
}

/// What a node agent reads: what may be of its node is known only from the object.
fn node_reads(asked: &ResourceAttributes) -> bool {
    let (verb, group, resource, _) = parts(asked);
    READ.contains(&verb)
        && matches!(group, "" | RESOURCE | "coordination.k8s.io" | "events.k8s.io")
        && matches!(
            resource,
            "resourceslices"
                | "resourceclaims"
                | "deviceclasses"
                | "devicetaintrules"
                | "nodes"
                | "pods"
                | "leases"
                | "namespaces"
                | "events"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        }
    }

    fn resource(verb: &str, path: &str, namespace: &str) -> Attributes {
        let (group, resource) = path.split_once(':').unwrap_or(("", path));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes::Resource(ResourceAttributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: "x".to_owned(),
        })
    }

    fn bindings() -> Vec<Binding> {
        serde_yaml_ng::from_str(
            "[{role: submitter, groups: [team-a], namespaces: [a]}, {role: viewer, users: [eve]}, {role: driver, users: [gpu]},
              {role: scheduler, users: [sched]}, {role: admin, users: [root]}]",
        )
        .expect("bindings")
    }

    #[test]
    fn roles_allow_what_they_say_and_nothing_else() {
        let claims = "resource.k8s.io:resourceclaims";
        let slices = "resource.k8s.io:resourceslices";
        let allowed = [
            ("ann", "create", claims, "a"),
            ("ann", "list", slices, ""),
            ("ann", "create", "dray.v1:units", "a"),
            ("eve", "watch", claims, ""),
            ("gpu", "create", slices, ""),
            ("gpu", "update", "resource.k8s.io:resourceclaims/status", "a"),
            ("gpu", "update", "resource.nvidia.com:computedomains/status", "a"),
            ("sched", "update", "resource.k8s.io:resourceclaims/binding", "a"),
            ("root", "delete", "secrets", "a"),
        ];
        let denied = [
            ("ann", "create", claims, "b"),
            ("ann", "list", claims, ""),
            ("ann", "create", slices, ""),
            ("ann", "update", "resource.k8s.io:resourceclaims/status", "a"),
            ("eve", "get", "secrets", "a"),
            ("eve", "create", claims, "a"),
            ("gpu", "delete", claims, "a"),
            ("gpu", "create", "admission.k8s.io:things", ""),
            ("sched", "create", slices, ""),
            ("nobody", "get", claims, "a"),
        ];
        let decide = |name: &str, verb, path, namespace| {
            let groups: &[&str] = if name == "ann" {
                &["team-a", AUTHENTICATED]
            } else {
                &[AUTHENTICATED]
            };
            super::decide(&user(name, groups), &bindings(), &resource(verb, path, namespace))
        };
        for (name, verb, path, namespace) in allowed {
            assert_eq!(
                decide(name, verb, path, namespace),
                Decision::Allowed,
                "{name} {verb} {path} {namespace}"
            );
        }
        for (name, verb, path, namespace) in denied {
            assert!(
                matches!(decide(name, verb, path, namespace), Decision::Denied(_)),
                "{name} {verb} {path} {namespace}"
            );
        }
    }

    #[test]
    fn a_node_changes_only_its_own() {
        let node = user("system:node:n1", &[NODES_GROUP, AUTHENTICATED]);
        let decide = |wanted: Attributes| decide(&node, &[], &wanted);
        assert_eq!(
            decide(resource("create", "resource.k8s.io:resourceslices", "")),
            Decision::OwnNode("n1".into())
        );
        assert_eq!(
            decide(resource("get", "resource.k8s.io:resourceclaims", "a")),
            Decision::Allowed
        );
        assert!(matches!(
            decide(resource("create", "resource.k8s.io:resourceclaims", "a")),
            Decision::Denied(_)
        ));
        let liar = user("system:node:n1", &[AUTHENTICATED]);
        assert!(matches!(
            super::decide(&liar, &[], &resource("create", "resource.k8s.io:resourceslices", "")),
            Decision::Denied(_)
        ));
    }

    #[test]
    fn strangers_read_health_and_version_and_known_users_discovery() {
        let get = |path: &str| Attributes::Path {
            path: path.to_owned(),
            verb: "get".to_owned(),
        };
        let stranger = User::anonymous();
        let known = user("ann", &[AUTHENTICATED]);
        for path in ["/version", "/healthz", "/readyz/ping"] {
            assert_eq!(decide(&stranger, &[], &get(path)), Decision::Allowed, "{path}");
        }
        for path in ["/api", "/apis/resource.k8s.io/v1", "/openapi/v3"] {
            assert!(matches!(decide(&stranger, &[], &get(path)), Decision::Denied(_)), "{path}");
            assert_eq!(decide(&known, &[], &get(path)), Decision::Allowed, "{path}");
        }
        assert!(matches!(decide(&known, &[], &get("/metrics")), Decision::Denied(_)));
        assert!(matches!(decide(&known, &[], &get("/apisx")), Decision::Denied(_)));
    }
}
