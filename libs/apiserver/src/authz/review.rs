//! Reviews: questions about access that are posted as objects and answered in their status. They are not stored.

use std::collections::BTreeMap;

use resource_api::field_path::{FieldErrors, FieldPath};
use serde_json::{Map, Value, json};

use super::{Attributes, ResourceAttributes, User};
use crate::object::{self, text_at};
use crate::resources::ResourceType;
use crate::status::Status;

/// Entries of a list in a review: groups, audiences, values of an extra.
const LIST_MAX: usize = 1024;

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub enum Review {
    /// May this user do this? `SelfSubjectAccessReview` asks for the caller.
    Access { user: User, attributes: Attributes },
    /// What may the caller do in this namespace?
    Rules { namespace: String },
    /// Who is the caller?
    Caller { user: User },
    /// Whose token is this? `audiences` may be empty.
    Token { token: String, audiences: Vec<String> },
}

/// Reads a posted review. `namespace`: of the URL, for local reviews. `caller`: who posted it.
///
/// 400 for reviews that cannot be read, 422 for those that ask for nothing or for two things, 404 if the kind is no review.
pub fn read(resource: &ResourceType, namespace: &str, caller: &User, body: &Value) -> Result<Review, Status> {
    let spec = body.get("spec").unwrap_or(&Value::Null);
    match resource.kind.as_str() {
        "SelfSubjectAccessReview" => Ok(Review::Access {
            user: caller.clone(),
            attributes: attributes(resource, spec, FieldErrors::new())?,
        }),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let user = subject(spec)?;
            let mut errors = FieldErrors::new();
            let path = FieldPath::root("spec");
            if user.name.is_empty() && user.groups.is_empty() {
                errors.invalid(&path.child("user"), "", "at least one of user or group must be specified");
            }
            if resource.is_namespaced() {
                check_local(spec, namespace, &path, &mut errors);
            }
            let attributes = attributes(resource, spec, errors)?;
            Ok(Review::Access { user, attributes })
        }
        "SelfSubjectRulesReview" => match text_at(spec, &["namespace"]) {
            "" => Err(Status::bad_request("no namespace on request")),
            namespace => Ok(Review::Rules {
                namespace: namespace.to_owned(),
            }),
        },
        "SelfSubjectReview" => Ok(Review::Caller { user: caller.clone() }),
        "TokenReview" => match text_at(spec, &["token"]) {
            "" => Err(Status::bad_request("token is required for TokenReview in authentication")),
            token => Ok(Review::Token {
                token: token.to_owned(),
                audiences: texts(spec.get("audiences"), "spec.audiences")?,
            }),
        },
        _ => Err(Status::no_such_resource()),
    }
}

fn check_local(spec: &Value, namespace: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let asked = text_at(spec, &["resourceAttributes", "namespace"]);
    if asked != namespace {
        let path = path.child("resourceAttributes");
        let detail = format!("must match the namespace on the request: {namespace}");
        errors.invalid(&path.child("namespace"), asked, detail);
    }
    if is_set(spec, "nonResourceAttributes") {
        let detail = "disallowed on this kind of request";
        errors.invalid(
            &path.child("nonResourceAttributes"),
            spec.get("nonResourceAttributes"),
            detail,
        );
    }
}

fn is_set(spec: &Value, field: &str) -> bool {
    spec.get(field).is_some_and(|value| !value.is_null())
}

fn attributes(resource: &ResourceType, spec: &Value, mut errors: FieldErrors) -> Result<Attributes, Status> {
    let path = FieldPath::root("spec");
    match (is_set(spec, "resourceAttributes"), is_set(spec, "nonResourceAttributes")) {
        (true, true) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.invalid(
                &path.child("nonResourceAttributes"),
                spec.get("nonResourceAttributes"),
                detail,
            );
        }
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.invalid(&path.child("resourceAttributes"), Value::Null, detail);
        }
        (true, false) | (false, true) => {}
    }
    let errors = errors.into_vec();
    if !errors.is_empty() {
        return Err(Status::invalid(resource.group_kind(), "", &errors));
    }
    if let Some(asked) = spec.get("nonResourceAttributes").filter(|asked| !asked.is_null()) {
        return Ok(Attributes::Path {
            path: text_at(asked, &["path"]).to_owned(),
            verb: text_at(asked, &["verb"]).to_owned(),
        });
    }
    let text = |field: &str| text_at(spec, &["resourceAttributes", field]).to_owned();
    Ok(Attributes::Resource(ResourceAttributes {
        verb: text("verb"),
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    }))
}

fn subject(spec: &Value) -> Result<User, Status> {
    let mut extra = BTreeMap::new();
    for (key, values) in spec.get("extra").and_then(Value::as_object).into_iter().flatten() {
        extra.insert(key.clone(), texts(Some(values), "spec.extra")?);
    }
    Ok(User {
        name: text_at(spec, &["user"]).to_owned(),
        uid: text_at(spec, &["uid"]).to_owned(),
        groups: texts(spec.get("groups"), "spec.groups")?,
        extra,
    })
}

fn texts(list: Option<&Value>, path: &str) -> Result<Vec<String>, Status> {
    let list = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= LIST_MAX => list,
        Some(_) => {
            return Err(Status::bad_request(format!(
                "{path} must be a list of at most {LIST_MAX} strings"
            )));
        }
    };
    let texts = list
        .iter()
        .map(|text| text.as_str().map(str::to_owned))
        .collect::<Option<_>>();
    texts.ok_or_else(|| Status::bad_request(format!("{path} must be a list of strings")))
}

/// Whether something may be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessAnswer {
    pub is_allowed: bool,
    /// Not only not allowed, but denied, whatever others say.
    pub is_denied: bool,
    /// Why; may be empty.
    pub reason: String,
    /// What could not be looked at; may be empty.
    pub evaluation_error: String,
}

/// What may be done in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesAnswer {
    pub resource_rules: Vec<ResourceRule>,
    pub non_resource_rules: Vec<NonResourceRule>,
    /// There may be more that is allowed.
    pub is_incomplete: bool,
    /// Why it is incomplete; may be empty.
    pub evaluation_error: String,
}

/// Verbs that are allowed on resources. `*` stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    /// Empty for all.
    pub names: Vec<String>,
}

/// Verbs that are allowed on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonResourceRule {
    pub verbs: Vec<String>,
    pub paths: Vec<String>,
}

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenAnswer {
    /// `audiences`: those of the question that the token is for.
    Known { user: User, audiences: Vec<String> },
    /// Why not; may be empty.
    Unknown { error: String },
}

/// The status of an access review.
pub fn access_status(answer: &AccessAnswer) -> Value {
    let mut status = Map::new();
    status.insert("allowed".to_owned(), json!(answer.is_allowed));
    if answer.is_denied {
        status.insert("denied".to_owned(), json!(true));
    }
    put_text(&mut status, "reason", &answer.reason);
    put_text(&mut status, "evaluationError", &answer.evaluation_error);
    Value::Object(status)
}

/// The status of a rules review.
pub fn rules_status(answer: &RulesAnswer) -> Value {
    let resource_rules = answer.resource_rules.iter().map(|rule| {
        let mut shown = Map::new();
        shown.insert("verbs".to_owned(), json!(rule.verbs));
        shown.insert("apiGroups".to_owned(), json!(rule.groups));
        shown.insert("resources".to_owned(), json!(rule.resources));
        if !rule.names.is_empty() {
            shown.insert("resourceNames".to_owned(), json!(rule.names));
        }
        Value::Object(shown)
    });
    let paths = answer.non_resource_rules.iter();
    let paths: Vec<Value> = paths
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths}))
        .collect();
    let mut status = Map::new();
    status.insert("resourceRules".to_owned(), Value::Array(resource_rules.collect()));
    status.insert("nonResourceRules".to_owned(), Value::Array(paths));
    status.insert("incomplete".to_owned(), json!(answer.is_incomplete));
    put_text(&mut status, "evaluationError", &answer.evaluation_error);
    Value::Object(status)
}

/// The status of a review of the caller.
pub fn caller_status(user: &User) -> Value {
    json!({ "userInfo": user.to_value() })
}

/// The status of a token review.
pub fn token_status(answer: &TokenAnswer) -> Value {
    let mut status = Map::new();
    match answer {
        TokenAnswer::Known { user, audiences } => {
            status.insert("authenticated".to_owned(), json!(true));
            status.insert("user".to_owned(), user.to_value());
            if !audiences.is_empty() {
                status.insert("audiences".to_owned(), json!(audiences));
            }
        }
        TokenAnswer::Unknown { error } => {
            status.insert("user".to_owned(), json!({}));
            put_text(&mut status, "error", error);
        }
    }
    Value::Object(status)
}

/// The review with its answer: what is sent back with 201. Tokens are not repeated.
pub fn answered(resource: &ResourceType, body: &Value, status: Value) -> Value {
    let mut answer = body.clone();
    object::set_field(&mut answer, "kind", Some(json!(resource.kind)));
    object::set_field(&mut answer, "apiVersion", Some(json!(resource.api_version())));
    if !answer.get("metadata").is_some_and(Value::is_object) {
        object::set_field(&mut answer, "metadata", Some(json!({})));
    }
    if let Some(spec) = answer.get_mut("spec").filter(|_| resource.kind == "TokenReview") {
        object::set_field(spec, "token", None);
    }
    object::set_field(&mut answer, "status", Some(status));
    answer
}

fn put_text(status: &mut Map<String, Value>, field: &str, text: &str) {
    if !text.is_empty() {
        status.insert(field.to_owned(), json!(text));
    }
}
