//! `Status`: what the API answers when there is no object to answer with. One constructor for each entry of the error
//! catalogue, so that clients, which decide by reason and match texts, see what they know.
//!
//! Never logs and never hides: what belongs into a message is decided by the caller.
//! Source: `k8s.io/apimachinery/pkg/api/errors`, `pkg/apis/meta/v1`.

use std::collections::BTreeSet;
use std::fmt;

use resource_api::field_path::FieldError;
use serde_json::{Map, Value, json};

/// Causes in one `Status`. Nobody reads more; an object of a few megabytes can break thousands of rules.
pub const CAUSES_MAX: usize = 512;
/// Bytes of one cause's message. Messages repeat the bad value, which may be the whole object.
pub const CAUSE_BYTES_MAX: usize = 4096;
/// Bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A resource of a group as messages name it: `resourceclaims.resource.k8s.io`, or `pods` in the core group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupResource<'a> {
    pub group: &'a str,
    /// The plural; in some errors the kind.
    pub resource: &'a str,
}

impl<'a> GroupResource<'a> {
    /// Names a resource.
    pub const fn new(group: &'a str, resource: &'a str) -> Self {
        Self { group, resource }
    }
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The machine-readable word by which clients decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No reason in the answer; clients go by the code.
    Unknown,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
    ServerTimeout,
}

impl Reason {
    /// The word in the `reason` field; empty for [`Reason::Unknown`].
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
            Self::ServerTimeout => "ServerTimeout",
        }
    }
}

/// One of several things that are wrong. Empty fields are left out of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// A word such as `FieldValueInvalid`.
    pub reason: String,
    pub message: String,
    /// Path in JSON names.
    pub field: String,
}

/// What the answer is about. Empty fields are left out of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The plural for most errors; the kind for invalid objects and failed preconditions.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

impl Details {
    fn of(resource: GroupResource<'_>, name: &str) -> Option<Box<Self>> {
        Some(Box::new(Self {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..Self::default()
        }))
    }

    fn retry(seconds: u32) -> Option<Box<Self>> {
        Some(Box::new(Self {
            retry_after_seconds: seconds,
            ..Self::default()
        }))
    }
}

/// An answer of kind `Status`. As an error it displays as its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code; below 400 for success.
    pub code: u16,
    pub reason: Reason,
    pub message: String,
    /// `None` leaves the field out, which differs from empty details.
    pub details: Option<Box<Details>>,
    /// Continues an expired list, inconsistently. API: `metadata.continue`.
    pub continue_token: Option<String>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// Why a write is refused that names an older version. Clients retry on this.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

impl Status {
    /// A failure; the message is cut at [`MESSAGE_BYTES_MAX`].
    fn failure(code: u16, reason: Reason, message: impl Into<String>, details: Option<Box<Details>>) -> Self {
        Self {
            code,
            reason,
            message: cut(message.into(), MESSAGE_BYTES_MAX),
            details,
            continue_token: None,
        }
    }

    /// 200 for a deletion whose answer is not the object. Details hold name, group, plural and uid of what was deleted.
    pub fn success(resource: GroupResource<'_>, name: &str, uid: &str) -> Self {
        let mut details = Details::of(resource, name);
        if let Some(details) = &mut details {
            details.uid = uid.to_owned();
        }
        Self {
            code: 200,
            reason: Reason::Unknown,
            message: String::new(),
            details,
            continue_token: None,
        }
    }

    /// 400: malformed input, a bad selector, or an object that is not the one of the URL.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, Reason::BadRequest, message, None)
    }

    /// 401: wrong credentials. Says nothing more on purpose.
    pub fn unauthorized() -> Self {
        Self::failure(401, Reason::Unauthorized, "Unauthorized", None)
    }

    /// 403: `why` follows `… is forbidden: `. An empty resource stands for a path that is no resource.
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: &str) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {name:?} is forbidden: {why}"),
        };
        Self::failure(403, Reason::Forbidden, message, Details::of(resource, name))
    }

    /// 403: a create in a namespace that is being deleted. Cause `NamespaceTerminating`.
    pub fn namespace_terminating(resource: GroupResource<'_>, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self::forbidden(resource, name, &why).with_causes(vec![Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }])
    }

    /// 404: no such object.
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {name:?} not found");
        Self::failure(404, Reason::NotFound, message, Details::of(resource, name))
    }

    /// 404: no such resource or subresource in a version that is served.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(404, Reason::NotFound, message, Some(Box::default()))
    }

    /// 405: the path has no such method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, Reason::MethodNotAllowed, message, Some(Box::default()))
    }

    /// 406: none of the media types that the client takes. `accepted`: those that the server has, comma-separated.
    pub fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::failure(406, Reason::NotAcceptable, message, None)
    }

    /// 406: the wanted form does not fit what the answer is.
    pub fn not_convertible(message: impl Into<String>) -> Self {
        Self::failure(406, Reason::NotAcceptable, message, None)
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {name:?} already exists");
        Self::failure(409, Reason::AlreadyExists, message, Details::of(resource, name))
    }

    /// 409: the name is taken by an object that waits for its finalizers.
    pub fn still_being_deleted(resource: GroupResource<'_>, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name);
        status.message = format!("object is being deleted: {}", status.message);
        status
    }

    /// 409: every generated name was taken. Clients may try again after a second.
    pub fn generated_name_taken(resource: GroupResource<'_>, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name);
        status
            .message
            .push_str(", the server was not able to generate a unique name for the object");
        status.with_retry_after(1)
    }

    /// 409: the write does not fit what is stored; `why` follows `Operation cannot be fulfilled on …: `.
    pub fn conflict(resource: GroupResource<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::failure(409, Reason::Conflict, message, Details::of(resource, name))
    }

    /// 409: the write names an older version than the stored one.
    pub fn object_modified(resource: GroupResource<'_>, name: &str) -> Self {
        Self::conflict(resource, name, MODIFIED)
    }

    /// 409: server-side apply would change fields of other managers; each cause is a conflict.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        Self::failure(409, Reason::Conflict, message, Some(Box::default())).with_causes(causes)
    }

    /// 410: history does not go back that far.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::Expired, message, None)
    }

    /// 410: a watch from `wanted`, while events after `oldest` are known only.
    pub fn too_old(wanted: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {wanted} ({oldest})"))
    }

    /// 413: a body over `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::failure(413, Reason::RequestEntityTooLarge, message, None)
    }

    /// 415: a body in none of the `accepted` media types.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(415, Reason::UnsupportedMediaType, message, None)
    }

    /// 415: a patch in a type that no patch has.
    pub fn unsupported_patch_type() -> Self {
        let message = "415: Unsupported Media Type";
        Self::failure(415, Reason::UnsupportedMediaType, message, Some(Box::default()))
    }

    /// 422: an object or options that break rules, each a cause. `kind`: group and kind, also of options such as
    /// `ListOptions` in `meta.k8s.io`. At most [`CAUSES_MAX`] causes are told.
    pub fn invalid(kind: GroupResource<'_>, name: &str, errors: &[FieldError]) -> Self {
        let head = format!("{kind} {name:?} is invalid");
        let causes: Vec<Cause> = errors.iter().take(CAUSES_MAX).map(cause).collect();
        let message = match joined(&causes, errors.len() - causes.len()) {
            None => head,
            Some(text) => format!("{head}: {text}"),
        };
        Self::failure(422, Reason::Invalid, message, Details::of(kind, name)).with_causes(causes)
    }

    /// 422: a patch that cannot be applied. `detail` is told in the only cause, with field `patch`.
    pub fn bad_patch(kind: GroupResource<'_>, name: &str, message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::failure(422, Reason::Invalid, message, Details::of(kind, name)).with_causes(vec![Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: detail.into(),
            field: "patch".to_owned(),
        }])
    }

    /// 422: a JSON patch with a failed test or a path that leads nowhere.
    pub fn patch_rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::failure(422, Reason::Invalid, message, Some(Box::default()))
    }

    /// 429: try again after `seconds`. Only for requests that had no effect.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::failure(429, Reason::TooManyRequests, message, Details::retry(seconds))
    }

    /// 500: a bug or a broken part behind the API. The message must not tell internals.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let cause = Cause {
            message: message.clone(),
            ..Cause::default()
        };
        let text = format!("Internal error occurred: {message}");
        Self::failure(500, Reason::InternalError, text, Some(Box::default())).with_causes(vec![cause])
    }

    /// 500 without a reason, which is what upstream answers to a create with `metadata.resourceVersion`.
    pub fn resource_version_on_create() -> Self {
        let message = "resourceVersion should not be set on objects to be created";
        Self::failure(500, Reason::Unknown, message, None)
    }

    /// 503: not ready. Only for requests that had no effect.
    pub fn unavailable(message: impl Into<String>, seconds: u32) -> Self {
        Self::failure(503, Reason::ServiceUnavailable, message, Details::retry(seconds))
    }

    /// 504: took too long; the request may have had an effect. Without `seconds` clients do not try again by themselves.
    pub fn timeout(message: impl fmt::Display, seconds: Option<u32>) -> Self {
        let details = Details::retry(seconds.unwrap_or_default());
        Self::failure(504, Reason::Timeout, format!("Timeout: {message}"), details)
    }

    /// 504: a read that must not be older than a version which does not exist yet. Cause `ResourceVersionTooLarge`.
    pub fn version_too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        Self::timeout(message, Some(1)).with_causes(vec![Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }])
    }

    /// Replaces the causes, keeping at most [`CAUSES_MAX`].
    #[must_use]
    pub fn with_causes(mut self, mut causes: Vec<Cause>) -> Self {
        causes.truncate(CAUSES_MAX);
        self.details.get_or_insert_default().causes = causes;
        self
    }

    /// Lets clients try again after `seconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Adds a token that continues an expired list.
    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token);
        self
    }

    /// True for answers that report no error.
    pub const fn is_success(&self) -> bool {
        self.code < 400
    }

    /// Value of the header `Retry-After`, in seconds, if the answer has one.
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    /// The answer's body.
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        put(&mut metadata, "continue", self.continue_token.as_deref().unwrap_or_default());
        let mut body = Map::new();
        body.insert("kind".to_owned(), json!("Status"));
        body.insert("apiVersion".to_owned(), json!("v1"));
        body.insert("metadata".to_owned(), Value::Object(metadata));
        body.insert(
            "status".to_owned(),
            json!(if self.is_success() { "Success" } else { "Failure" }),
        );
        put(&mut body, "message", &self.message);
        put(&mut body, "reason", self.reason.text());
        if let Some(details) = &self.details {
            body.insert("details".to_owned(), details_value(details));
        }
        // Upstream leaves the code out of a success.
        if !self.is_success() {
            body.insert("code".to_owned(), json!(self.code));
        }
        Value::Object(body)
    }
}

fn details_value(details: &Details) -> Value {
    let mut body = Map::new();
    put(&mut body, "name", &details.name);
    put(&mut body, "group", &details.group);
    put(&mut body, "kind", &details.kind);
    put(&mut body, "uid", &details.uid);
    if !details.causes.is_empty() {
        let causes = details.causes.iter().map(|cause| {
            let mut body = Map::new();
            put(&mut body, "reason", &cause.reason);
            put(&mut body, "message", &cause.message);
            put(&mut body, "field", &cause.field);
            Value::Object(body)
        });
        body.insert("causes".to_owned(), Value::Array(causes.collect()));
    }
    if details.retry_after_seconds > 0 {
        body.insert("retryAfterSeconds".to_owned(), json!(details.retry_after_seconds));
    }
    Value::Object(body)
}

fn put(body: &mut Map<String, Value>, field: &str, text: &str) {
    if !text.is_empty() {
        body.insert(field.to_owned(), Value::String(text.to_owned()));
    }
}

fn cause(error: &FieldError) -> Cause {
    Cause {
        reason: error.cause_reason().to_owned(),
        message: cut(error.message(), CAUSE_BYTES_MAX),
        field: error.path.clone(),
    }
}

/// One text for all causes: repeated ones once, brackets around several.
fn joined(causes: &[Cause], more: usize) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut texts: Vec<String> = Vec::new();
    let mut bytes = 0;
    for cause in causes {
        let text = format!("{}: {}", cause.field, cause.message);
        if bytes < MESSAGE_BYTES_MAX && seen.insert(text.clone()) {
            bytes += text.len();
            texts.push(text);
        }
    }
    if more > 0 {
        texts.push(format!("and {more} more errors"));
    }
    match texts.len() {
        0 => None,
        1 => texts.pop(),
        _ => Some(format!("[{}]", texts.join(", "))),
    }
}

fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests;
