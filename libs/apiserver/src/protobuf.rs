//! Objects in the protobuf form of Kubernetes, in both directions, by the schema.
//!
//! proto2 as upstream's generator writes it: fields in the order of their numbers; every field that is not optional is
//! written, also when empty; maps sorted by key; scalars of lists not packed. Reading also takes packed lists, any order, and skips
//! unknown fields. Bodies stand in an envelope: four bytes, then the message `Unknown` with the type and the object's bytes.

mod read;
#[cfg(test)]
mod tests;
mod write;

use serde_json::{Map, Value};

use crate::body::Tree;
use crate::body::tree::{Budget, TreeError};
use crate::schema::{GroupVersionKind, Message, Schema};

pub(crate) use read::Envelope;

/// What every protobuf body starts with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// Bytes that are not an object.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    #[error("proto: unexpected end of data")]
    Truncated,
    #[error("proto: wire type {wire_type} of field {number} is not understood")]
    WireType { number: u32, wire_type: u8 },
    #[error("proto: a tag or a whole number is out of range")]
    BadNumber,
    #[error("proto: a text is not UTF-8")]
    NotUtf8,
    #[error("proto: a time is out of range")]
    BadTime,
    #[error("proto: {0}")]
    Embedded(#[from] TreeError),
    #[error("the content type or encoding {found:?} inside of the envelope is not understood")]
    Content { found: String },
    #[error("{kind} has no protobuf form")]
    NoForm { kind: String },
}

/// An object that cannot be written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("{kind} has no protobuf form")]
    NoForm { kind: String },
    #[error("{path} is not a {wanted}")]
    Shape { path: String, wanted: &'static str },
}

/// Reads the object message `body`; the result has neither `apiVersion` nor `kind`.
pub(crate) fn read(schema: &Schema, message: &Message, body: &[u8], budget: &Budget) -> Result<Tree, ReadError> {
    if has_no_form(message) {
        return Err(ReadError::NoForm {
            kind: message.name.clone(),
        });
    }
    read::message(schema, message, body, budget, 0)
}

/// Appends the object message of `object`. `apiVersion` and `kind` are not a part of it.
///
/// `Shape` if a value does not fit its field; the output is then unfinished.
pub fn write(schema: &Schema, message: &Message, object: &Map<String, Value>, out: &mut Vec<u8>) -> Result<(), WriteError> {
    if has_no_form(message) {
        return Err(WriteError::NoForm {
            kind: message.name.clone(),
        });
    }
    write::message(schema, message, object, out)
}

/// Appends an object in its envelope, typed as `kind`.
pub fn write_enveloped(
    schema: &Schema,
    kind: &GroupVersionKind,
    object: &Map<String, Value>,
    out: &mut Vec<u8>,
) -> Result<(), WriteError> {
    let message = schema
        .of_kind(kind)
        .ok_or_else(|| WriteError::NoForm { kind: kind.kind.clone() })?;
    let mut raw = Vec::new();
    write(schema, message, object, &mut raw)?;
    write::envelope(kind, &raw, out);
    Ok(())
}

/// Appends one frame of a watch: four bytes of length, then `WatchEvent` with the object in its envelope.
///
/// The length is that of the message and fits because bodies are limited to a few MiB.
pub fn write_watch_frame(
    schema: &Schema,
    event: &str,
    kind: &GroupVersionKind,
    object: &Map<String, Value>,
    out: &mut Vec<u8>,
) -> Result<(), WriteError> {
    let mut enveloped = Vec::new();
    write_enveloped(schema, kind, object, &mut enveloped)?;
    let frame = write::watch_event(event, &enveloped);
    let length = u32::try_from(frame.len()).map_err(|_| WriteError::Shape {
        path: kind.kind.clone(),
        wanted: "object of less than 4 GiB",
    })?;
    out.extend(length.to_be_bytes());
    out.extend(frame);
    Ok(())
}

fn has_no_form(message: &Message) -> bool {
    message.open || message.fields.iter().any(|field| field.number.is_none())
}
