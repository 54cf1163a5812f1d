//! Request bodies to objects and objects to answers: JSON, YAML and protobuf.
//!
//! What comes in is made to conform to the schema of its kind, so that objects look the same whatever they were written in. What
//! strict field validation refuses is found and handed on; whether that is an error is for the caller to say.

pub mod conform;
#[cfg(test)]
mod tests;
pub mod tree;

use serde_json::{Map, Value};

pub use conform::{Finding, ShapeError};
pub(crate) use tree::Tree;
pub use tree::{ExtentError, TreeError};

use crate::protobuf::{self, Envelope, ReadError, WriteError};
use crate::schema::{GroupVersionKind, Message, Schema};
use tree::Budget;

/// Bytes of a body. Source: the limit of a kube-apiserver.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// In what a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// A body, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The object, with `apiVersion` and `kind`.
    pub object: Map<String, Value>,
    /// Unknown and repeated fields, in the order of the body. Always empty for protobuf.
    pub findings: Vec<Finding>,
}

/// A body that is not the wanted object. All are the client's fault; the texts are those that upstream answers with.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("Request entity too large: limit is {BODY_BYTES_MAX}")]
    TooLarge,
    #[error("the object provided is unrecognized (must be of type {kind}): {source} ({summary})")]
    NotJson {
        kind: String,
        summary: String,
        source: TreeError,
    },
    #[error("the object provided is unrecognized (must be of type {kind}): {source} ({summary})")]
    NotProtobuf {
        kind: String,
        summary: String,
        source: ReadError,
    },
    #[error("the API version in the data ({found}) does not match the expected API version ({wanted})")]
    OtherVersion { found: String, wanted: String },
    #[error("{} in version {:?} cannot be handled as a {wanted}: the kinds differ", found.kind, found.version)]
    OtherKind { found: Box<GroupVersionKind>, wanted: String },
    #[error("{} in version {:?} cannot be handled as a {}: {source}", kind.kind, kind.version, kind.kind)]
    Shape {
        kind: Box<GroupVersionKind>,
        source: ShapeError,
    },
}

/// Decodes a body that must be a `kind`. `apiVersion` and `kind` may be absent; other ones are errors.
pub fn decode(schema: &Schema, kind: &GroupVersionKind, format: Format, body: &[u8]) -> Result<Body, BodyError> {
    decode_as(schema, kind, &[], format, body)
}

/// Decodes the options in the body of a request, such as `DeleteOptions` of a DELETE to `group_version`. An empty body is
/// options without anything set.
///
/// Clients type them as of `v1`, of `meta.k8s.io/v1`, of the group version in the path, or not at all.
pub fn decode_options(schema: &Schema, group_version: &str, kind: &str, format: Format, body: &[u8]) -> Result<Body, BodyError> {
    let wanted = GroupVersionKind::new("meta.k8s.io/v1", kind);
    let body = if body.is_empty() { b"{}".as_slice() } else { body };
    let format = if body == b"{}" { Format::Json } else { format };
    decode_as(schema, &wanted, &["v1", group_version], format, body)
}

/// Makes an object conform to its kind, as if it had come as a body; what patches make of objects goes through here.
pub fn conform(schema: &Schema, kind: &GroupVersionKind, object: Map<String, Value>) -> Result<Body, BodyError> {
    finish(schema, kind, &[], Value::Object(object).into(), &Budget::default())
}

/// Writes an object out as its `apiVersion` and `kind` say. JSON ends with a line feed unless it is `pretty`, as upstream's does.
///
/// `NoForm` if the format is protobuf and the kind has no such form: answer in JSON instead.
pub fn encode(schema: &Schema, object: &Map<String, Value>, format: Format, pretty: bool) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    match format {
        Format::Json if pretty => out = serde_json::to_vec_pretty(object)?,
        Format::Json => {
            serde_json::to_writer(&mut out, object)?;
            out.push(b'\n');
        }
        Format::Yaml => out = serde_yaml_ng::to_string(object)?.into_bytes(),
        Format::Protobuf => protobuf::write_enveloped(schema, &kind_of(object), object, &mut out)?,
    }
    Ok(out)
}

/// Writes one event of a watch; `event` is a word such as `ADDED`. YAML has no form of this and is written as JSON.
///
/// `NoForm` as [`encode`].
pub fn encode_watch_event(
    schema: &Schema,
    event: &str,
    object: &Map<String, Value>,
    format: Format,
) -> Result<Vec<u8>, EncodeError> {
    match format {
        Format::Json | Format::Yaml => Ok(watch_line(event, &serde_json::to_vec(object)?)),
        Format::Protobuf => {
            let mut out = Vec::new();
            protobuf::write_watch_frame(schema, event, &kind_of(object), object, &mut out)?;
            Ok(out)
        }
    }
}

/// One line of a JSON watch about an object that is JSON text already.
pub fn watch_line(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 24);
    out.extend(b"{\"type\":\"");
    out.extend(event.as_bytes());
    out.extend(b"\",\"object\":");
    out.extend(object);
    out.extend(b"}\n");
    out
}

/// An object that cannot be written out.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("object cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("object cannot be written as YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    #[error(transparent)]
    Protobuf(#[from] WriteError),
}

/// What an object says that it is; empty texts for what it does not say.
pub fn kind_of(object: &Map<String, Value>) -> GroupVersionKind {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    GroupVersionKind::new(text("apiVersion"), text("kind"))
}

/// Decodes a body that may also be typed as of `others`.
fn decode_as(schema: &Schema, kind: &GroupVersionKind, others: &[&str], format: Format, body: &[u8]) -> Result<Body, BodyError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(BodyError::TooLarge);
    }
    let budget = Budget::default();
    let not_json = |source| BodyError::NotJson {
        kind: kind.kind.clone(),
        summary: summary(body),
        source,
    };
    let tree = match format {
        Format::Json => Tree::from_json(body, &budget).map_err(not_json)?,
        Format::Yaml => Tree::from_yaml(body, &budget).map_err(not_json)?,
        Format::Protobuf => {
            let fault = |source| BodyError::NotProtobuf {
                kind: kind.kind.clone(),
                summary: summary(body),
                source,
            };
            let envelope = Envelope::open(body).map_err(fault)?;
            check_type(kind, others, &envelope.api_version, &envelope.kind)?;
            let message = schema.of_kind_or_custom(kind);
            protobuf::read(schema, message, envelope.raw, &budget).map_err(fault)?
        }
    };
    // Conforming counts again: the tree is gone as the object grows.
    finish(schema, kind, others, tree, &Budget::default())
}

fn finish(schema: &Schema, kind: &GroupVersionKind, others: &[&str], tree: Tree, budget: &Budget) -> Result<Body, BodyError> {
    if let Tree::Map(entries) = &tree {
        let text = |wanted: &str| match entries.iter().rfind(|(key, _)| key == wanted) {
            Some((_, Tree::Text(text))) => text.as_str(),
            _ => "",
        };
        check_type(kind, others, text("apiVersion"), text("kind"))?;
    }
    let message: &Message = schema.of_kind_or_custom(kind);
    let fault = |source| BodyError::Shape {
        kind: Box::new(kind.clone()),
        source,
    };
    if tree == Tree::Null {
        let at = String::new();
        return Err(fault(ShapeError::Type {
            found: "null".to_owned(),
            at,
            wanted: kind.kind.clone(),
        }));
    }
    let (mut object, findings) = conform::conform(schema, message, tree, budget).map_err(fault)?;
    object.insert("apiVersion".to_owned(), kind.api_version().into());
    object.insert("kind".to_owned(), kind.kind.clone().into());
    Ok(Body { object, findings })
}

/// Checks the type that a body names, if it does.
fn check_type(kind: &GroupVersionKind, others: &[&str], api_version: &str, name: &str) -> Result<(), BodyError> {
    let wanted = kind.api_version();
    let version_fits = api_version.is_empty() || api_version == wanted || others.contains(&api_version);
    if !name.is_empty() && name != kind.kind {
        let version = if api_version.is_empty() { &wanted } else { api_version };
        return Err(BodyError::OtherKind {
            found: Box::new(GroupVersionKind::new(version, name)),
            wanted: kind.kind.clone(),
        });
    }
    if version_fits {
        Ok(())
    } else {
        Err(BodyError::OtherVersion {
            found: api_version.to_owned(),
            wanted,
        })
    }
}

/// The start of a body for an error: text if it looks like an object, else hexadecimal digits. Source: upstream's
/// `summarizeData`.
fn summary(body: &[u8]) -> String {
    const SHOWN_MAX: usize = 30;
    let shown = &body[..body.len().min(SHOWN_MAX)];
    let dots = if body.len() > SHOWN_MAX { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(shown)),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + dots,
    }
}
