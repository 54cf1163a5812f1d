//! A broken rule as callers see it: the field of their request, what is wrong with it, and the reason as a word.

use resource_api::field_path::{ErrorKind, FieldError};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Path in the request, e.g. `claims[0].spec.devices.requests[1].exactly.deviceClassName`.
    pub(crate) field: String,
    pub(crate) description: String,
    /// As in the causes of a Kubernetes `Status`, e.g. `FieldValueRequired`.
    pub(crate) reason: &'static str,
}

impl Violation {
    /// An object's broken rule; `field` is where its path is in the request.
    pub(crate) fn new(field: impl Into<String>, error: &FieldError) -> Self {
        Self {
            field: field.into(),
            description: error.message(),
            reason: error.cause_reason(),
        }
    }

    /// A value that cannot be read or breaks a rule of the request.
    pub(crate) fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            description: description.into(),
            reason: ErrorKind::Invalid.cause_reason(),
        }
    }

    /// A value that is missing.
    pub(crate) fn required(field: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            description: "Required value".to_owned(),
            reason: ErrorKind::Required.cause_reason(),
        }
    }

    /// A value that an earlier one has.
    pub(crate) fn duplicate(field: impl Into<String>, value: &str) -> Self {
        let description = format!("Duplicate value: {value:?}");
        Self {
            field: field.into(),
            description,
            reason: ErrorKind::Duplicate.cause_reason(),
        }
    }
}

/// Violations that are collected of one request, at most: a pool of ten thousand devices can break rules without end.
pub(crate) const VIOLATIONS_MAX: usize = 256;

/// Adds what is not there yet: an object made of two parts of a request breaks some rules twice.
pub(crate) fn add(violations: &mut Vec<Violation>, violation: Violation) {
    if violations.len() < VIOLATIONS_MAX && !violations.contains(&violation) {
        violations.push(violation);
    }
}

/// Violations of an object that is the whole request.
pub(crate) fn of_object(errors: &[FieldError]) -> Vec<Violation> {
    let errors = errors.iter().take(VIOLATIONS_MAX);
    errors.map(|error| Violation::new(&error.path, error)).collect()
}
