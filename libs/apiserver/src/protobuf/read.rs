//! Bytes to trees.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{MAGIC, ReadError};
use crate::body::Tree;
use crate::body::tree::{Budget, ExtentError, TreeError};
use crate::schema::{Field, Message, Schema, Type};

/// An envelope, opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The object message.
    pub(crate) raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens an envelope. Errors: no magic bytes, a damaged message, an object in another form than protobuf.
    pub(crate) fn open(body: &'a [u8]) -> Result<Self, ReadError> {
        let body = body.strip_prefix(MAGIC).ok_or(ReadError::NoMagic)?;
        let mut envelope = Self {
            api_version: String::new(),
            kind: String::new(),
            raw: &[],
        };
        for part in Parts(body) {
            match part? {
                (1, Wire::Bytes(type_meta)) => {
                    for part in Parts(type_meta) {
                        match part? {
                            (1, Wire::Bytes(bytes)) => envelope.api_version = text(bytes)?,
                            (2, Wire::Bytes(bytes)) => envelope.kind = text(bytes)?,
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(raw)) => envelope.raw = raw,
                (3 | 4, Wire::Bytes(bytes)) if !bytes.is_empty() && bytes != b"application/vnd.kubernetes.protobuf" => {
                    return Err(ReadError::Content { found: text(bytes)? });
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Varint(u64),
    Fixed,
    Bytes(&'a [u8]),
}

/// The fields of a message, in order. Ends after the first error.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Result<(u32, Wire<'a>), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

impl<'a> Parts<'a> {
    fn part(&mut self) -> Result<(u32, Wire<'a>), ReadError> {
        let tag = varint(&mut self.0)?;
        let number = u32::try_from(tag >> 3)
            .ok()
            .filter(|number| *number > 0)
            .ok_or(ReadError::BadNumber)?;
        let wire = match tag & 7 {
            0 => Wire::Varint(varint(&mut self.0)?),
            1 => {
                self.take(8)?;
                Wire::Fixed
            }
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|_| ReadError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed
            }
            wire_type => {
                return Err(ReadError::WireType {
                    number,
                    wire_type: u8::try_from(wire_type).unwrap_or(7),
                });
            }
        };
        Ok((number, wire))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ReadError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

fn varint(from: &mut &[u8]) -> Result<u64, ReadError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first().ok_or(ReadError::Truncated)?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(ReadError::BadNumber);
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ReadError::BadNumber)
}

fn text(bytes: &[u8]) -> Result<String, ReadError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ReadError::NotUtf8)
}

fn extent(result: Result<(), ExtentError>) -> Result<(), ReadError> {
    result.map_err(|error| ReadError::Embedded(TreeError::Extent(error)))
}

/// Reads a message. Fields of inlined messages become its own.
pub(super) fn message(
    schema: &Schema,
    message: &Message,
    bytes: &[u8],
    budget: &Budget,
    depth: usize,
) -> Result<Tree, ReadError> {
    let read = Read { schema, budget };
    extent(budget.container(depth))?;
    read.entries(message, bytes, depth + 1).map(Tree::Map)
}

struct Read<'a> {
    schema: &'a Schema,
    budget: &'a Budget,
}

impl Read<'_> {
    fn entries(&self, message: &Message, bytes: &[u8], depth: usize) -> Result<Vec<(String, Tree)>, ReadError> {
        let mut slots: Vec<Option<Tree>> = message.fields.iter().map(|_| None).collect();
        let mut inlined = Vec::new();
        for part in Parts(bytes) {
            let (number, wire) = part?;
            let Some(position) = message.fields.iter().position(|field| field.number == Some(number)) else {
                continue;
            };
            let field = &message.fields[position];
            match (&field.ty, wire) {
                (Type::Message(id), Wire::Bytes(bytes)) if field.inline => {
                    inlined.extend(self.entries(self.schema.message(*id), bytes, depth)?);
                }
                _ => self.field(field, wire, depth, &mut slots[position])?,
            }
        }
        let own = message.fields.iter().zip(slots);
        let mut entries: Vec<_> = own.filter_map(|(field, slot)| Some((field.name.clone(), slot?))).collect();
        entries.extend(inlined);
        Ok(entries)
    }

    fn field(&self, field: &Field, wire: Wire<'_>, depth: usize, slot: &mut Option<Tree>) -> Result<(), ReadError> {
        match &field.ty {
            Type::List(element) => {
                if slot.is_none() {
                    extent(self.budget.container(depth))?;
                }
                let Tree::List(items) = slot.get_or_insert(Tree::List(Vec::new())) else {
                    return Ok(());
                };
                match (&**element, wire) {
                    (Type::Int32 | Type::Int64 | Type::Bool, Wire::Bytes(mut packed)) => {
                        while !packed.is_empty() {
                            items.extend(self.value(element, Wire::Varint(varint(&mut packed)?), depth + 1)?);
                        }
                    }
                    _ => items.extend(self.value(element, wire, depth + 1)?),
                }
            }
            Type::Map(element) => {
                let Wire::Bytes(entry) = wire else { return Ok(()) };
                if slot.is_none() {
                    extent(self.budget.container(depth))?;
                }
                let Tree::Map(entries) = slot.get_or_insert(Tree::Map(Vec::new())) else {
                    return Ok(());
                };
                let (mut key, mut value) = (String::new(), None);
                for part in Parts(entry) {
                    match part? {
                        (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                        (2, wire) => value = self.value(element, wire, depth + 1)?,
                        _ => {}
                    }
                }
                extent(self.budget.scalar())?;
                // Wrapped lists and bytes are there, though empty, as soon as their key is.
                let absent = match **element {
                    Type::Items(_) => Tree::List(Vec::new()),
                    Type::Bytes => Tree::Text(String::new()),
                    _ => Tree::Null,
                };
                entries.push((key, value.unwrap_or(absent)));
            }
            ty => *slot = self.value(ty, wire, depth)?,
        }
        Ok(())
    }

    /// `None` if the wire type is not that of the type: the field is skipped.
    fn value(&self, ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Option<Tree>, ReadError> {
        extent(self.budget.scalar())?;
        let tree = match (ty, wire) {
            (Type::String, Wire::Bytes(bytes)) => Tree::Text(text(bytes)?),
            (Type::Bool, Wire::Varint(value)) => Tree::Bool(value != 0),
            (Type::Int64, Wire::Varint(value)) => Tree::Number(value.cast_signed().into()),
            (Type::Int32, Wire::Varint(value)) => Tree::Number(low_32_bits(value).into()),
            (Type::Bytes, Wire::Bytes(bytes)) => Tree::Text(BASE64.encode(bytes)),
            (Type::Quantity, Wire::Bytes(bytes)) => match first_bytes(bytes, 1)? {
                Some([]) | None => Tree::Text("0".to_owned()),
                Some(bytes) => Tree::Text(text(bytes)?),
            },
            (Type::Time | Type::MicroTime, Wire::Bytes(bytes)) => time(bytes, *ty == Type::MicroTime)?,
            (Type::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
            (Type::Raw | Type::FieldsV1, Wire::Bytes(bytes)) => match first_bytes(bytes, 1)? {
                Some([]) | None => Tree::Null,
                Some(json) => Tree::from_json_at(json, self.budget, depth)?,
            },
            (Type::Message(id), Wire::Bytes(bytes)) => {
                return message(self.schema, self.schema.message(*id), bytes, self.budget, depth).map(Some);
            }
            (Type::Items(element), Wire::Bytes(bytes)) => {
                extent(self.budget.container(depth))?;
                let mut items = Vec::new();
                for part in Parts(bytes) {
                    if let (1, wire) = part? {
                        items.extend(self.value(element, wire, depth + 1)?);
                    }
                }
                Tree::List(items)
            }
            _ => return Ok(None),
        };
        Ok(Some(tree))
    }
}

/// Numbers of 32 bits are written with 64, the upper ones filled with the sign.
fn low_32_bits(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The last value of a field of bytes.
fn first_bytes(bytes: &[u8], wanted: u32) -> Result<Option<&[u8]>, ReadError> {
    let mut found = None;
    for part in Parts(bytes) {
        match part? {
            (number, Wire::Bytes(bytes)) if number == wanted => found = Some(bytes),
            _ => {}
        }
    }
    Ok(found)
}

/// Seconds and nanoseconds. An empty message is the zero time, and so is null.
fn time(bytes: &[u8], fraction: bool) -> Result<Tree, ReadError> {
    if bytes.is_empty() {
        return Ok(Tree::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    for part in Parts(bytes) {
        match part? {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) if fraction => nanos = low_32_bits(value),
            _ => {}
        }
    }
    let instant = jiff::Timestamp::new(seconds, nanos).map_err(|_| ReadError::BadTime)?;
    Ok(Tree::Text(if fraction {
        format!("{instant:.6}")
    } else {
        instant.to_string()
    }))
}

fn int_or_string(bytes: &[u8]) -> Result<Tree, ReadError> {
    let (mut is_text, mut number, mut string) = (false, 0, String::new());
    for part in Parts(bytes) {
        match part? {
            (1, Wire::Varint(value)) => is_text = value == 1,
            (2, Wire::Varint(value)) => number = low_32_bits(value),
            (3, Wire::Bytes(bytes)) => string = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text {
        Tree::Text(string)
    } else {
        Tree::Number(number.into())
    })
}
