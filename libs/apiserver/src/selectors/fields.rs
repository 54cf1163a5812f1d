//! Field selectors: comparisons of paths with texts, joined by commas. Which paths a kind has is in its
//! [`ResourceType`](crate::resources::ResourceType).

use std::fmt;

use serde_json::Value;

use super::{SelectorError, check_size};
use crate::object;
use crate::resources::{Reading, ResourceType, SelectorTable};
use crate::status::Status;

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// The path as the client wrote it.
    pub path: String,
    pub is_equal: bool,
    pub value: String,
    /// Known once the selector was resolved for a kind.
    reading: Option<Reading>,
}

/// Selects objects by some of their fields: every term must hold. Displays as canonical text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// In the order of their texts.
    terms: Vec<FieldTerm>,
}

impl FieldSelector {
    /// Parses a selector; the empty text selects everything. It matches nothing but by [`FieldSelector::resolve`].
    ///
    /// The error's text is upstream's.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_size(text)?;
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let terms = parts.into_iter().filter(|part| !part.is_empty()).map(|part| {
            let (path, is_equal, value) = split_term(part)
                .ok_or_else(|| SelectorError::new(format!("invalid selector: '{text}'; can't understand '{part}'")))?;
            Ok(FieldTerm {
                path: path.to_owned(),
                is_equal,
                value: unescape(value)?,
                reading: None,
            })
        });
        Ok(Self {
            terms: terms.collect::<Result<_, _>>()?,
        })
    }

    /// Finds how the kind's objects are read. 400 if the kind does not have a path.
    pub fn resolve(mut self, resource: &ResourceType) -> Result<Self, Status> {
        for term in &mut self.terms {
            let known = resource.selectable.iter().find(|field| field.label == term.path);
            let known = known.ok_or_else(|| Status::bad_request(unsupported(resource, &term.path)))?;
            term.reading = Some(known.reading.clone());
        }
        Ok(self)
    }

    /// True if everything is selected.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms, in the order of their texts.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The only value that a path may have, if the selector says so.
    pub fn exact(&self, path: &str) -> Option<&str> {
        let mut terms = self.terms.iter();
        terms
            .find(|term| term.is_equal && term.path == path)
            .map(|term| term.value.as_str())
    }

    /// True if the object is selected. A term that was not resolved selects nothing.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| match &term.reading {
            None => false,
            Some(reading) => read(object, reading, |text| (text == term.value) == term.is_equal),
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let operator = if term.is_equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", term.path, escape(&term.value))?;
        }
        Ok(())
    }
}

/// Makes `\`, `,` and `=` in a value safe.
pub fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(SelectorError::new(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                // Upstream prints the number of the character.
                let number = u32::from(c);
                return Err(SelectorError::new(format!(
                    "invalid field selector: unescaped character in value: {number}"
                )));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

/// Splits at commas that are not escaped; escapes stay.
fn split_terms(text: &str) -> Vec<&str> {
    let mut is_escaped = false;
    text.split(|c| {
        let splits = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        splits
    })
    .collect()
}

/// Path, whether it must be equal, and the escaped value. Paths have no escapes: the first operator splits.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find(['=', '!'].as_slice()).and_then(|first| {
        // A lone `!` is part of the path.
        term[first..]
            .char_indices()
            .map(|(offset, _)| first + offset)
            .find(|at| term[*at..].starts_with('=') || term[*at..].starts_with("!="))
    })?;
    let (path, rest) = term.split_at(at);
    for (operator, is_equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some(value) = rest.strip_prefix(operator) {
            return Some((path, is_equal, value));
        }
    }
    None
}

fn unsupported(resource: &ResourceType, path: &str) -> String {
    match resource.selector_table {
        SelectorTable::OwnWithKind => {
            let api_version = resource.api_version();
            format!("field label not supported for {api_version}, Kind={}: {path}", resource.kind)
        }
        SelectorTable::Own => format!("field label not supported: {path}"),
        SelectorTable::Common => {
            format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
    }
}

/// Reads a field as text and looks at it.
fn read(object: &Value, reading: &Reading, look: impl Fn(&str) -> bool) -> bool {
    match reading {
        Reading::Path(path) => match object::at(object, path) {
            Some(Value::String(text)) => look(text),
            Some(Value::Bool(flag)) => look(if *flag { "true" } else { "false" }),
            Some(Value::Number(number)) => look(&number.to_string()),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => look(""),
        },
        Reading::Flag(path) => {
            let flag = object::at(object, path).and_then(Value::as_bool).unwrap_or_default();
            look(if flag { "true" } else { "false" })
        }
        Reading::FirstOf(paths) => {
            let texts = paths.iter().map(|path| object::text_at(object, path));
            look(texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default())
        }
        Reading::FirstItem { list, field } => {
            let first = object::at(object, list).and_then(|list| list.get(0));
            look(first.map_or("", |item| object::text_at(item, &[field])))
        }
    }
}
