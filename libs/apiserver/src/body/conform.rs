//! Makes a tree conform to a schema: what upstream gets by decoding into a struct and printing that.
//!
//! Fields that do not exist are left out and found; `null` is absent; zero values are left out or written as the field
//! demands; times and quantities get their canonical text. Wrong types are errors, in upstream's words.
//!
//! Of a key that stands twice the last value counts (upstream fills one struct, or the items of one list, from both).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::tree::{Budget, ExtentError, Tree};
use crate::schema::{Field, Message, Schema, Type};

/// Findings that are kept. Source: sigs.k8s.io/json.
pub(crate) const FINDINGS_MAX: usize = 100;

/// Something in a body that strict field validation refuses. Prints as upstream writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A field that the kind does not have; it was left out.
    UnknownField { path: String },
    /// A key that stands twice in one object.
    DuplicateField { path: String },
    /// Something in an operation of a JSON patch.
    InJsonPatch(Box<Finding>),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField { path } => write!(f, "unknown field {path:?}"),
            Self::DuplicateField { path } => write!(f, "duplicate field {path:?}"),
            Self::InJsonPatch(finding) => write!(f, "json patch {finding}"),
        }
    }
}

/// A value that does not fit its field, the first in the order of the body. The texts are upstream's, except that the types of
/// enumerations have names of their own there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// `at` is `<struct>.<path>`, or empty for the whole body.
    #[error("json: cannot unmarshal {found} into Go {} of type {wanted}", place(.at))]
    Type { found: String, at: String, wanted: String },
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Quantity { at: String },
    #[error("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")]
    Time { at: String, text: String, layout: &'static str },
    #[error("illegal base64 data in field {at}")]
    Base64 { at: String },
    #[error(transparent)]
    Extent(#[from] ExtentError),
}

fn place(at: &str) -> String {
    if at.is_empty() {
        "value".to_owned()
    } else {
        format!("struct field {at}")
    }
}

/// Makes a tree conform to a message; the result carries `apiVersion` and `kind` if the tree does. Also returns what was found,
/// in the order of the text.
pub(crate) fn conform(
    schema: &Schema,
    message: &Message,
    tree: Tree,
    budget: &Budget,
) -> Result<(Map<String, Value>, Vec<Finding>), ShapeError> {
    let mut walk = Walk::new(schema, budget);
    let object = walk.message(message, tree)?;
    Ok((object, walk.findings))
}

/// A tree as a value, with the keys that stand twice.
pub(crate) fn untyped(tree: Tree) -> (Value, Vec<Finding>) {
    let budget = Budget::default();
    let mut walk = Walk::new(Schema::builtin(), &budget);
    let value = walk.any(tree);
    (value, walk.findings)
}

struct Walk<'a> {
    schema: &'a Schema,
    budget: &'a Budget,
    findings: Vec<Finding>,
    /// Where the walk is, with indices and keys, for findings.
    path: String,
    /// Name of the innermost message, for errors.
    outer: String,
    /// Fields on the way, for errors.
    fields: Vec<String>,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn new(schema: &'a Schema, budget: &'a Budget) -> Self {
        Self {
            schema,
            budget,
            findings: Vec::new(),
            path: String::new(),
            outer: String::new(),
            fields: Vec::new(),
            depth: 0,
        }
    }

    /// Runs `step` with the path made longer by `part`.
    fn within<T>(&mut self, part: fmt::Arguments<'_>, step: impl FnOnce(&mut Self) -> T) -> T {
        use fmt::Write as _;
        let length = self.path.len();
        // Writing to a string does not fail.
        let _ok = self.path.write_fmt(part).is_ok();
        let result = step(self);
        self.path.truncate(length);
        result
    }

    fn within_key<T>(&mut self, key: &str, step: impl FnOnce(&mut Self) -> T) -> T {
        if self.path.is_empty() {
            self.within(format_args!("{key}"), step)
        } else {
            self.within(format_args!(".{key}"), step)
        }
    }

    fn find(&mut self, key: &str, finding: fn(String) -> Finding) {
        let finding = self.within_key(key, |walk| finding(walk.path.clone()));
        if self.findings.len() < FINDINGS_MAX && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn message(&mut self, message: &Message, tree: Tree) -> Result<Map<String, Value>, ShapeError> {
        let entries = match tree {
            Tree::Map(entries) => entries,
            Tree::Null => Vec::new(),
            other => return Err(self.wrong(other.type_name().to_owned(), &Type::Message(message.id))),
        };
        self.budget.container(self.depth)?;
        self.depth += 1;
        let outer = std::mem::replace(&mut self.outer, message.name.clone());
        let mut given = Map::new();
        let mut seen = std::collections::BTreeSet::new();
        for (key, tree) in entries {
            if message.typed && (key == "apiVersion" || key == "kind") {
                self.seen(&mut seen, &key);
                self.fields.push(format!("TypeMeta.{key}"));
                let value = self.value(&Type::String, tree)?;
                self.fields.pop();
                given.extend(value.filter(|value| value != "").map(|value| (key, value)));
            } else if let Some(field) = self.schema.field(message, &key) {
                self.seen(&mut seen, &key);
                self.fields.push(match self.schema.inlined_from(message, &key) {
                    Some(inlined) => format!("{}.{key}", inlined.name),
                    None => key.clone(),
                });
                let value = self.within_key(&key, |walk| walk.value(&field.ty, tree))?;
                self.fields.pop();
                // For upstream a null erases everything but plain scalars.
                let is_kept = value.is_none() && !field.optional && is_scalar(&field.ty);
                if !is_kept {
                    given.remove(&key);
                }
                given.extend(value.map(|value| (key, value)));
            } else if message.open {
                self.seen(&mut seen, &key);
                let value = self.within_key(&key, |walk| walk.any(tree));
                given.insert(key, value);
            } else {
                self.find(&key, |path| Finding::UnknownField { path });
            }
        }
        for field in self.schema.json_fields(message) {
            let value = given.remove(&field.name);
            if let Some(value) = self.shown(field, value)? {
                given.insert(field.name.clone(), value);
            }
        }
        self.outer = outer;
        self.depth -= 1;
        Ok(given)
    }

    fn seen(&mut self, seen: &mut std::collections::BTreeSet<String>, key: &str) {
        if !seen.insert(key.to_owned()) {
            self.find(key, |path| Finding::DuplicateField { path });
        }
    }

    /// What is written of a field: see [`Field::always`] and [`Field::optional`].
    fn shown(&mut self, field: &Field, value: Option<Value>) -> Result<Option<Value>, ShapeError> {
        Ok(match value {
            None if field.always && field.optional => Some(Value::Null),
            None if field.always => Some(self.zero(&field.ty)?),
            None => None,
            Some(value) if field.always || field.optional => Some(value),
            Some(value) => (value != self.zero(&field.ty)? && !is_empty(&value)).then_some(value),
        })
    }

    /// What an absent value of a type prints as.
    fn zero(&mut self, ty: &Type) -> Result<Value, ShapeError> {
        Ok(match ty {
            Type::String => "".into(),
            Type::Bool => false.into(),
            Type::Int32 | Type::Int64 | Type::IntOrString => 0.into(),
            Type::Quantity => "0".into(),
            Type::Message(id) => {
                let message = self.schema.message(*id);
                Value::Object(self.message(message, Tree::Null)?)
            }
            Type::Bytes
            | Type::Time
            | Type::MicroTime
            | Type::Raw
            | Type::FieldsV1
            | Type::Any
            | Type::List(_)
            | Type::Items(_)
            | Type::Map(_) => Value::Null,
        })
    }

    /// `None` for null.
    fn value(&mut self, ty: &Type, tree: Tree) -> Result<Option<Value>, ShapeError> {
        let value = match (ty, tree) {
            (Type::Any, tree) => return Ok(Some(self.any(tree))),
            (_, Tree::Null) => return Ok(None),
            (Type::Raw | Type::FieldsV1, tree) => plain(tree),
            (Type::String, Tree::Text(text)) => Value::String(text),
            (Type::Bool, Tree::Bool(value)) => value.into(),
            (Type::Int64, Tree::Number(number)) => match number.as_i64() {
                Some(value) => value.into(),
                None => return Err(self.wrong(format!("number {number}"), ty)),
            },
            (Type::Int32, Tree::Number(number)) => match number.as_i64().map(i32::try_from) {
                Some(Ok(value)) => value.into(),
                _ => return Err(self.wrong(format!("number {number}"), ty)),
            },
            (Type::IntOrString, Tree::Number(number)) => match number.as_i64().map(i32::try_from) {
                Some(Ok(value)) => value.into(),
                _ => return Err(self.wrong(format!("number {number}"), &Type::Int32)),
            },
            (Type::IntOrString, Tree::Text(text)) => Value::String(text),
            (Type::Quantity, Tree::Text(text)) => self.quantity(text.trim())?,
            (Type::Quantity, Tree::Number(number)) => self.quantity(&number.to_string())?,
            (Type::Time, Tree::Text(text)) => return self.time(&text, ""),
            (Type::MicroTime, Tree::Text(text)) => return self.time(&text, ".000000"),
            (Type::Bytes, Tree::Text(text)) => {
                let text: String = text.chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
                let bytes = BASE64.decode(text).map_err(|_| ShapeError::Base64 { at: self.at() })?;
                Value::String(BASE64.encode(bytes))
            }
            (Type::Bytes, Tree::List(numbers)) => self.bytes(&numbers)?,
            (Type::Message(id), tree) => {
                let message = self.schema.message(*id);
                Value::Object(self.message(message, tree)?)
            }
            (Type::List(element) | Type::Items(element), Tree::List(items)) => {
                self.budget.container(self.depth)?;
                self.depth += 1;
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.into_iter().enumerate() {
                    let item = self.within(format_args!("[{index}]"), |walk| walk.value(element, item))?;
                    list.push(self.or_zero(element, item)?);
                }
                self.depth -= 1;
                Value::Array(list)
            }
            (Type::Map(element), Tree::Map(entries)) => {
                self.budget.container(self.depth)?;
                self.depth += 1;
                let mut map = Map::new();
                for (key, tree) in entries {
                    if map.contains_key(&key) {
                        self.find(&key, |path| Finding::DuplicateField { path });
                    }
                    let item = self.within_key(&key, |walk| walk.value(element, tree))?;
                    let item = self.or_zero(element, item)?;
                    map.insert(key, item);
                }
                self.depth -= 1;
                Value::Object(map)
            }
            (_, other) => return Err(self.wrong(other.type_name().to_owned(), ty)),
        };
        Ok(Some(value))
    }

    fn or_zero(&mut self, ty: &Type, value: Option<Value>) -> Result<Value, ShapeError> {
        match value {
            Some(value) => Ok(value),
            None => self.zero(ty),
        }
    }

    /// Any value. Whole numbers beyond 64 bits with sign become floating, as upstream does.
    fn any(&mut self, tree: Tree) -> Value {
        match tree {
            Tree::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.into_iter().enumerate() {
                    list.push(self.within(format_args!("[{index}]"), |walk| walk.any(item)));
                }
                Value::Array(list)
            }
            Tree::Map(entries) => {
                let mut map = Map::new();
                for (key, tree) in entries {
                    if map.contains_key(&key) {
                        self.find(&key, |path| Finding::DuplicateField { path });
                    }
                    let value = self.within_key(&key, |walk| walk.any(tree));
                    map.insert(key, value);
                }
                Value::Object(map)
            }
            Tree::Number(number) if number.as_i64().is_none() => number.as_f64().map_or(Value::Null, Value::from),
            scalar => plain(scalar),
        }
    }

    /// Bytes that are written as a list of numbers.
    fn bytes(&self, numbers: &[Tree]) -> Result<Value, ShapeError> {
        let byte = |tree: &Tree| match tree {
            Tree::Null => Ok(0),
            Tree::Number(number) => number
                .as_u64()
                .and_then(|number| u8::try_from(number).ok())
                .ok_or_else(|| format!("number {number}")),
            other => Err(other.type_name().to_owned()),
        };
        let bytes: Result<Vec<u8>, String> = numbers.iter().map(byte).collect();
        let bytes = bytes.map_err(|found| ShapeError::Type {
            found,
            at: self.at(),
            wanted: "uint8".to_owned(),
        })?;
        Ok(Value::String(BASE64.encode(bytes)))
    }

    fn quantity(&self, text: &str) -> Result<Value, ShapeError> {
        match text.parse::<resource_api::Quantity>() {
            Ok(quantity) => Ok(Value::String(quantity.to_string())),
            Err(_) => Err(ShapeError::Quantity { at: self.at() }),
        }
    }

    /// `None` for the zero time, the start of year 1.
    fn time(&self, text: &str, fraction: &str) -> Result<Option<Value>, ShapeError> {
        let layout = if fraction.is_empty() {
            "2006-01-02T15:04:05Z07:00"
        } else {
            "2006-01-02T15:04:05.000000Z07:00"
        };
        let fault = || ShapeError::Time {
            at: self.at(),
            text: text.to_owned(),
            layout,
        };
        if !is_rfc3339(text, fraction.len()) {
            return Err(fault());
        }
        let instant: jiff::Timestamp = text.parse().map_err(|_| fault())?;
        let printed = if fraction.is_empty() {
            resource_api::Time::new(instant).to_string()
        } else {
            format!("{instant:.6}")
        };
        Ok((!printed.starts_with("0001-01-01T00:00:00")).then_some(Value::String(printed)))
    }

    fn at(&self) -> String {
        if self.fields.is_empty() {
            String::new()
        } else {
            format!("{}.{}", self.outer, self.fields.join("."))
        }
    }

    fn wrong(&self, found: String, ty: &Type) -> ShapeError {
        ShapeError::Type {
            found,
            at: self.at(),
            wanted: go_type(self.schema, ty),
        }
    }
}

fn is_scalar(ty: &Type) -> bool {
    matches!(ty, Type::String | Type::Bool | Type::Int32 | Type::Int64)
}

/// True for what a field without `always` leaves out beside its zero value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A tree as a value, whatever is in it.
fn plain(tree: Tree) -> Value {
    match tree {
        Tree::Null => Value::Null,
        Tree::Bool(value) => value.into(),
        Tree::Number(number) => Value::Number(number),
        Tree::Text(text) => Value::String(text),
        Tree::List(items) => Value::Array(items.into_iter().map(plain).collect()),
        Tree::Map(entries) => Value::Object(entries.into_iter().map(|(key, tree)| (key, plain(tree))).collect()),
    }
}

/// Checks the outer form, `YYYY-MM-DDThh:mm:ss[.f…](Z|±hh:mm)`; `fraction` is the demanded length of the fraction with its dot,
/// 0 for any.
fn is_rfc3339(text: &str, fraction: usize) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let fits = |bytes: &[u8], form: &[u8]| {
        bytes.len() == form.len()
            && bytes.iter().zip(form).all(
                |(byte, form)| {
                    if *form == b'0' { byte.is_ascii_digit() } else { byte == form }
                },
            )
    };
    let Some((head, rest)) = bytes.split_at_checked(FORM.len()) else {
        return false;
    };
    let digits = match rest {
        [b'.', digits @ ..] => digits.iter().take_while(|byte| byte.is_ascii_digit()).count() + 1,
        _ => 0,
    };
    let zone = &rest[digits..];
    let zone_fits = zone == b"Z" || fits(zone, b"+00:00") || fits(zone, b"-00:00");
    fits(head, FORM) && zone_fits && digits != 1 && (fraction == 0 || digits == fraction)
}

/// Name of the type in upstream's errors.
fn go_type(schema: &Schema, ty: &Type) -> String {
    match ty {
        Type::String => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        // The latter is read as a number unless it is a text.
        Type::Int32 | Type::IntOrString => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        // What these are read as, by code of their own.
        Type::Time | Type::MicroTime => "string".to_owned(),
        Type::Raw => "runtime.RawExtension".to_owned(),
        Type::FieldsV1 => "v1.FieldsV1".to_owned(),
        Type::Any => "interface {}".to_owned(),
        Type::Message(id) => {
            let message = schema.message(*id);
            let package = message.model.rsplit('.').nth(1).unwrap_or_default();
            format!("{package}.{}", message.name)
        }
        Type::List(element) | Type::Items(element) => format!("[]{}", go_type(schema, element)),
        Type::Map(element) => format!("map[string]{}", go_type(schema, element)),
    }
}
