//! Label and field selectors: their texts, what they match, and the errors that clients know.
//!
//! Source: `k8s.io/apimachinery/pkg/labels`, `pkg/fields`.

pub mod fields;
pub mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;

use serde_json::Value;

use crate::object;

/// Bytes of one selector. Every object of a list is held against it.
pub const SELECTOR_BYTES_MAX: usize = 64 * 1024;

/// A text that is no selector. Clients get the text as a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl SelectorError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Both selectors of a request; empty ones match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    /// True if everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// True if the object is selected. Costs a look-up for each requirement.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(|key| object::label(object, key)) && self.fields.matches(object)
    }
}

fn check_size(text: &str) -> Result<(), SelectorError> {
    if text.len() > SELECTOR_BYTES_MAX {
        return Err(SelectorError::new(format!(
            "selector has more than {SELECTOR_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
