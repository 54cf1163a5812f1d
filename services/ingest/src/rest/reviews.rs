//! Reviews: what a user may do. Answered, never stored.

use apiserver::authz::review::{self, AccessAnswer, Review};
use apiserver::request::ResourceRequest;
use apiserver::status::Status;
use serde_json::{Map, Value};

use super::{Call, Parts};
use crate::auth::roles::{self, Decision};

/// The answer, if the resource is a review.
pub(super) fn answer(
    parts: &Parts,
    request: &ResourceRequest,
    body: &Map<String, Value>,
    call: &Call,
) -> Option<Result<Value, Status>> {
    (request.resource.group == "authorization.k8s.io").then(|| access(parts, request, &Value::Object(body.clone()), call))
}

fn access(parts: &Parts, request: &ResourceRequest, body: &Value, call: &Call) -> Result<Value, Status> {
    let Review::Access { user, attributes } = review::read(&request.resource, &request.namespace, &call.user, body)? else {
        return Err(Status::no_such_resource());
    };
    let decision = match parts.is_open {
        true => Decision::Allowed,
        false => roles::decide(&user, &parts.access.bindings, &attributes),
    };
    let (is_allowed, reason) = match decision {
        Decision::Allowed => (true, String::new()),
        Decision::OwnNode(node) => (true, format!("only for what is of node {node:?}")),
        Decision::Denied(why) => (false, why),
    };
    let status = review::access_status(&AccessAnswer {
        is_allowed,
        reason,
        ..AccessAnswer::default()
    });
    Ok(review::answered(&request.resource, body, status))
}
