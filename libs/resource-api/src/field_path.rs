//! Where in an object something is wrong, and what: paths in JSON names and the errors that carry them.
//!
//! The wording of kinds and messages follows `k8s.io/apimachinery/pkg/util/validation/field`, because clients show and
//! match it.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// A place in an object, such as `spec.devices.requests[0].name` or `attributes[example.com/x]`.
///
/// A path borrows its parent, so walking a valid object allocates nothing; text is made only for errors.
#[derive(Clone, Copy, Debug)]
pub struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    part: Part<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> FieldPath<'a> {
    /// A field of the object itself.
    pub const fn root(field: &'a str) -> Self {
        Self {
            parent: None,
            part: Part::Field(field),
        }
    }

    /// A field of what is at this path.
    pub const fn child(&'a self, field: &'a str) -> FieldPath<'a> {
        Self {
            parent: Some(self),
            part: Part::Field(field),
        }
    }

    /// An item of the list at this path.
    pub const fn index(&'a self, index: usize) -> FieldPath<'a> {
        Self {
            parent: Some(self),
            part: Part::Index(index),
        }
    }

    /// An entry of the map at this path.
    pub const fn key(&'a self, key: &'a str) -> FieldPath<'a> {
        Self {
            parent: Some(self),
            part: Part::Key(key),
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.part {
            Part::Field(field) if self.parent.is_some() => write!(f, ".{field}"),
            Part::Field(field) => f.write_str(field),
            Part::Index(index) => write!(f, "[{index}]"),
            Part::Key(key) => write!(f, "[{}]", Shortened(key)),
        }
    }
}

/// A map key, cut in the middle if it is longer than any valid key.
struct Shortened<'a>(&'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Domain, slash and id of the longest qualified name.
        const KEY_MAX: usize = 96;
        const KEPT: usize = KEY_MAX - 3;
        let key = self.0;
        if key.len() <= KEY_MAX {
            return f.write_str(key);
        }
        let head = key.floor_char_boundary(KEPT.div_ceil(2));
        let tail = key.ceil_char_boundary(key.len() - KEPT / 2);
        write!(f, "{}...{}", &key[..head], &key[tail..])
    }
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
    NotFound,
    InternalError,
}

impl ErrorKind {
    /// The `reason` of a cause in a Kubernetes `Status`.
    pub const fn cause_reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::InternalError => "InternalError",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::InternalError => "Internal error",
        }
    }

    /// True if the message repeats the value.
    const fn shows_value(self) -> bool {
        matches!(
            self,
            Self::Invalid | Self::NotSupported | Self::Duplicate | Self::TooMany | Self::NotFound
        )
    }
}

/// One broken rule. Displays as `path: message`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// JSON names, for example `spec.devices.requests[0].name`.
    pub path: String,
    pub kind: ErrorKind,
    /// The bad value, or `Null`.
    pub value: Value,
    /// May be empty.
    pub detail: String,
}

impl FieldError {
    /// The `reason` of the cause in a Kubernetes `Status`.
    pub fn cause_reason(&self) -> &'static str {
        self.kind.cause_reason()
    }

    /// The text without the path: the `message` of the cause.
    pub fn message(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if self.kind.shows_value() {
            text.push_str(": ");
            text.push_str(&shown(&self.value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// Strings are quoted, everything else is JSON, and no value is the word `null` in quotes.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "\"null\"".to_owned(),
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

impl std::error::Error for FieldError {}

/// Errors kept of one object. Nobody reads more, and an object of a few megabytes can break a million rules.
pub const ERRORS_MAX: usize = 4096;

/// Collects the broken rules of an object, the first [`ERRORS_MAX`] of them; order is no promise.
#[derive(Debug, Default)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Nothing wrong so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if nothing more is kept, so that nothing more need be looked for.
    pub fn is_full(&self) -> bool {
        self.0.len() >= ERRORS_MAX
    }

    /// What was collected.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// A value is missing.
    pub fn required(&mut self, path: &FieldPath<'_>, detail: impl Into<String>) {
        self.push(path, ErrorKind::Required, Value::Null, detail.into());
    }

    /// A value breaks a rule.
    pub fn invalid(&mut self, path: &FieldPath<'_>, value: impl Serialize, detail: impl Into<String>) {
        if !self.is_full() {
            self.push(path, ErrorKind::Invalid, json(value), detail.into());
        }
    }

    /// A value breaks several rules of its grammar: one error each.
    pub fn invalid_each(&mut self, path: &FieldPath<'_>, value: &str, rules: Vec<String>) {
        for rule in rules {
            self.invalid(path, value, rule);
        }
    }

    /// A word is none of the supported ones.
    pub fn not_supported(&mut self, path: &FieldPath<'_>, value: &str, supported: &[&str]) {
        let words: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        self.push(
            path,
            ErrorKind::NotSupported,
            value.into(),
            format!("supported values: {}", words.join(", ")),
        );
    }

    /// A value repeats an earlier one.
    pub fn duplicate(&mut self, path: &FieldPath<'_>, value: impl Serialize) {
        if !self.is_full() {
            self.push(path, ErrorKind::Duplicate, json(value), String::new());
        }
    }

    /// A value must not be there.
    pub fn forbidden(&mut self, path: &FieldPath<'_>, detail: impl Into<String>) {
        self.push(path, ErrorKind::Forbidden, Value::Null, detail.into());
    }

    /// A text has more than `max` bytes.
    pub fn too_long(&mut self, path: &FieldPath<'_>, max: usize) {
        self.push(
            path,
            ErrorKind::TooLong,
            Value::Null,
            format!("may not be more than {max} bytes"),
        );
    }

    /// A list has more than `max` items.
    pub fn too_many(&mut self, path: &FieldPath<'_>, count: usize, max: usize) {
        self.push(
            path,
            ErrorKind::TooMany,
            count.into(),
            format!("must have at most {max} items"),
        );
    }

    /// A value refers to something that is not there.
    pub fn not_found(&mut self, path: &FieldPath<'_>, value: impl Serialize) {
        if !self.is_full() {
            self.push(path, ErrorKind::NotFound, json(value), String::new());
        }
    }

    /// A rule could not be checked.
    pub fn internal(&mut self, path: &FieldPath<'_>, detail: impl Into<String>) {
        self.push(path, ErrorKind::InternalError, Value::Null, detail.into());
    }

    fn push(&mut self, path: &FieldPath<'_>, kind: ErrorKind, value: Value, detail: String) {
        if self.is_full() {
            return;
        }
        self.0.push(FieldError {
            path: path.to_string(),
            kind,
            value,
            detail,
        });
    }
}

fn json(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}
