//! Values to bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::{MAGIC, WriteError};
use crate::schema::{Field, GroupVersionKind, Message, Schema, Type};

const VARINT: u32 = 0;
const BYTES: u32 = 2;

pub(super) fn message(
    schema: &Schema,
    message: &Message,
    object: &Map<String, Value>,
    out: &mut Vec<u8>,
) -> Result<(), WriteError> {
    let mut write = Write {
        schema,
        path: vec![message.name.clone()],
    };
    write.message(message, object, out)
}

pub(super) fn envelope(kind: &GroupVersionKind, raw: &[u8], out: &mut Vec<u8>) {
    out.extend(MAGIC);
    let mut type_meta = Vec::new();
    bytes(1, kind.api_version().as_bytes(), &mut type_meta);
    bytes(2, kind.kind.as_bytes(), &mut type_meta);
    bytes(1, &type_meta, out);
    bytes(2, raw, out);
    bytes(3, b"", out);
    bytes(4, b"", out);
}

pub(super) fn watch_event(event: &str, enveloped: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    bytes(1, enveloped, &mut raw);
    let mut frame = Vec::new();
    bytes(1, event.as_bytes(), &mut frame);
    bytes(2, &raw, &mut frame);
    frame
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        let [low, ..] = value.to_le_bytes();
        out.push(low | 0x80);
        value >>= 7;
    }
    let [low, ..] = value.to_le_bytes();
    out.push(low);
}

fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire_type), out);
}

fn number(field: u32, value: i64, out: &mut Vec<u8>) {
    tag(field, VARINT, out);
    varint(value.cast_unsigned(), out);
}

fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    tag(field, BYTES, out);
    // A length in memory fits in 64 bits.
    varint(u64::try_from(value.len()).unwrap_or(u64::MAX), out);
    out.extend(value);
}

struct Write<'a> {
    schema: &'a Schema,
    /// Where the walk is, for errors.
    path: Vec<String>,
}

impl Write<'_> {
    fn wrong(&self, wanted: &'static str) -> WriteError {
        WriteError::Shape {
            path: self.path.join("."),
            wanted,
        }
    }

    fn message(&mut self, message: &Message, object: &Map<String, Value>, out: &mut Vec<u8>) -> Result<(), WriteError> {
        for field in &message.fields {
            let Some(number) = field.number else { continue };
            match &field.ty {
                Type::Message(id) if field.inline => {
                    let mut inner = Vec::new();
                    self.message(self.schema.message(*id), object, &mut inner)?;
                    bytes(number, &inner, out);
                }
                _ => {
                    self.path.push(field.name.clone());
                    let value = object.get(&field.name).unwrap_or(&Value::Null);
                    self.field(field, number, value, out)?;
                    self.path.pop();
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, number: u32, value: &Value, out: &mut Vec<u8>) -> Result<(), WriteError> {
        match (&field.ty, value) {
            (Type::List(_) | Type::Items(_) | Type::Map(_) | Type::Bytes, Value::Null) => Ok(()),
            (Type::List(element), Value::Array(items)) => {
                items.iter().try_for_each(|item| self.value(element, number, item, out))
            }
            (Type::List(_), _) => Err(self.wrong("list")),
            (Type::Map(element), Value::Object(entries)) => {
                // Objects of this workspace sort their keys; if they ever do not, the bytes still have to.
                let sorted: std::collections::BTreeMap<_, _> = entries.iter().collect();
                for (key, value) in sorted {
                    let mut entry = Vec::new();
                    bytes(1, key.as_bytes(), &mut entry);
                    self.value(element, 2, value, &mut entry)?;
                    bytes(number, &entry, out);
                }
                Ok(())
            }
            (Type::Map(_), _) => Err(self.wrong("map")),
            (_, Value::Null) if field.optional => Ok(()),
            (ty, value) => self.value(ty, number, value, out),
        }
    }

    /// Null is written as the type's zero value.
    fn value(&mut self, ty: &Type, field: u32, value: &Value, out: &mut Vec<u8>) -> Result<(), WriteError> {
        match ty {
            Type::String => bytes(field, self.text(value)?.as_bytes(), out),
            Type::Bool => match value {
                Value::Null => number(field, 0, out),
                Value::Bool(value) => number(field, i64::from(*value), out),
                _ => return Err(self.wrong("boolean")),
            },
            Type::Int64 => number(field, self.whole(value)?, out),
            Type::Int32 => number(field, self.whole_32(value)?.into(), out),
            Type::Bytes => {
                let decoded = BASE64.decode(self.text(value)?).map_err(|_| self.wrong("base64 text"))?;
                bytes(field, &decoded, out);
            }
            Type::Quantity => {
                let text = match value {
                    Value::Null => "0".to_owned(),
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    _ => return Err(self.wrong("quantity")),
                };
                let quantity: resource_api::Quantity = text.parse().map_err(|_| self.wrong("quantity"))?;
                let mut inner = Vec::new();
                bytes(1, quantity.to_string().as_bytes(), &mut inner);
                bytes(field, &inner, out);
            }
            Type::Time | Type::MicroTime => {
                let mut inner = Vec::new();
                if !value.is_null() {
                    let instant: jiff::Timestamp = self.text(value)?.parse().map_err(|_| self.wrong("time"))?;
                    let nanos = if *ty == Type::MicroTime {
                        instant.subsec_nanosecond() / 1000 * 1000
                    } else {
                        0
                    };
                    number(1, instant.as_second(), &mut inner);
                    number(2, nanos.into(), &mut inner);
                }
                bytes(field, &inner, out);
            }
            Type::IntOrString => {
                let (kind, whole, text) = match value {
                    Value::String(text) => (1, 0, text.as_str()),
                    other => (0, self.whole_32(other)?, ""),
                };
                let mut inner = Vec::new();
                number(1, kind, &mut inner);
                number(2, whole.into(), &mut inner);
                bytes(3, text.as_bytes(), &mut inner);
                bytes(field, &inner, out);
            }
            Type::Raw | Type::FieldsV1 => {
                let mut inner = Vec::new();
                if !value.is_null() {
                    bytes(1, value.to_string().as_bytes(), &mut inner);
                }
                bytes(field, &inner, out);
            }
            Type::Message(id) => {
                let empty = Map::new();
                let object = match value {
                    Value::Null => &empty,
                    Value::Object(object) => object,
                    _ => return Err(self.wrong("object")),
                };
                let mut inner = Vec::new();
                self.message(self.schema.message(*id), object, &mut inner)?;
                bytes(field, &inner, out);
            }
            Type::Items(element) => {
                let mut inner = Vec::new();
                match value {
                    Value::Null => {}
                    Value::Array(items) => items.iter().try_for_each(|item| self.value(element, 1, item, &mut inner))?,
                    _ => return Err(self.wrong("list")),
                }
                bytes(field, &inner, out);
            }
            Type::Any | Type::List(_) | Type::Map(_) => return Err(self.wrong("type that protobuf has here")),
        }
        Ok(())
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, WriteError> {
        match value {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text),
            _ => Err(self.wrong("text")),
        }
    }

    fn whole(&self, value: &Value) -> Result<i64, WriteError> {
        match value {
            Value::Null => Ok(0),
            other => other.as_i64().ok_or_else(|| self.wrong("whole number")),
        }
    }

    fn whole_32(&self, value: &Value) -> Result<i32, WriteError> {
        let whole = self.whole(value)?;
        i32::try_from(whole).map_err(|_| self.wrong("whole number of 32 bits"))
    }
}
