//! Reviews: what a user may do, and who it is. Answered, never stored.

use apiserver::object;
use apiserver::resources::ResourceType;
use apiserver::status::Status;
use serde_json::{Map, Value, json};

use super::{Call, Parts};
use crate::auth::roles::{self, Decision, Wanted};

/// The answer, if the resource is a review that is served.
pub(super) fn answer(
    parts: &Parts,
    resource: &ResourceType,
    body: &Map<String, Value>,
    call: &Call,
) -> Option<Result<Value, Status>> {
    if resource.group != "authorization.k8s.io" {
        return None;
    }
    let mut review = Value::Object(body.clone());
    match resource.plural.as_str() {
        "selfsubjectaccessreviews" => {
            let decision = match asked(&review) {
                Some(_) if parts.is_open => Decision::Allowed,
                Some(wanted) => roles::decide(&call.user, &parts.access.bindings, &wanted),
                None => {
                    let rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                    return Some(Err(Status::bad_request(rule)));
                }
            };
            let status = match decision {
                Decision::Allowed => json!({"allowed": true}),
                Decision::OwnNode(node) => json!({"allowed": true, "reason": format!("only for what is of node {node:?}")}),
                Decision::Denied(why) => json!({"allowed": false, "reason": why}),
            };
            object::set_field(&mut review, "status", Some(status));
            Some(Ok(review))
        }
        _ => Some(Err(Status::no_such_resource())),
    }
}

fn asked(review: &Value) -> Option<Wanted<'_>> {
    let text = |part: &'static str, field: &'static str| object::text_at(review, &["spec", part, field]);
    let spec = review.get("spec")?;
    match (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")) {
        (Some(Value::Object(_)), None | Some(Value::Null)) => Some(Wanted::Resource {
            verb: text("resourceAttributes", "verb"),
            group: text("resourceAttributes", "group"),
            resource: text("resourceAttributes", "resource"),
            subresource: text("resourceAttributes", "subresource"),
            namespace: text("resourceAttributes", "namespace"),
            name: text("resourceAttributes", "name"),
        }),
        (None | Some(Value::Null), Some(Value::Object(_))) => Some(Wanted::Path {
            verb: text("nonResourceAttributes", "verb"),
            path: text("nonResourceAttributes", "path"),
        }),
        _ => None,
    }
}
