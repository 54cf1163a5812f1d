//! What clients are told about bodies and patches that cannot be used, or only in part: a `Status`, or warnings beside the
//! answer.

use std::collections::BTreeSet;

use crate::apply::{ApplyError, conflict_message};
use crate::body::{BODY_BYTES_MAX, BodyError, Finding};
use crate::negotiate::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH};
use crate::patch::PatchError;
use crate::request::FieldValidation;
use crate::resources::ResourceType;
use crate::status::{Cause, Status};

/// Characters of all warnings of an answer; above, each is cut to [`WARNING_CHARS_MAX`]. Source:
/// `k8s.io/apiserver/pkg/endpoints/filters`.
const WARNINGS_CHARS_MAX: usize = 4 * 1024;
/// Characters of one warning, once there are too many.
const WARNING_CHARS_MAX: usize = 256;
/// Findings that are told in one error.
const FINDINGS_MAX: usize = 64;

/// The answer to a body that is not the wanted object: 413 if it is too large, else 400.
pub fn body_status(error: &BodyError) -> Status {
    match error {
        BodyError::TooLarge => Status::too_large(BODY_BYTES_MAX),
        BodyError::NotJson { .. }
        | BodyError::NotProtobuf { .. }
        | BodyError::OtherVersion { .. }
        | BodyError::OtherKind { .. }
        | BodyError::Shape { .. } => Status::bad_request(error.to_string()),
    }
}

/// The answer to a patch that cannot be applied to the object with this name.
pub fn patch_status(error: &PatchError, resource: &ResourceType, name: &str) -> Status {
    match error {
        PatchError::TooLarge => Status::too_large(BODY_BYTES_MAX),
        PatchError::TooManyOperations { .. } => {
            let mut status = Status::too_large(BODY_BYTES_MAX);
            status.message = format!("Request entity too large: {error}");
            status
        }
        PatchError::NotJson(_) | PatchError::Malformed { .. } => Status::bad_request(error.to_string()),
        PatchError::NotSupported => Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]),
        // What exactly does not fit is not told, as upstream does.
        PatchError::DoesNotApply { .. } => Status::patch_rejected(),
        PatchError::BadResult(source) => bad_result(&source.to_string(), resource, name),
    }
}

/// The answer to an object that cannot be applied. `name`: of the object.
///
/// A field that the kind does not have is 400: that upstream answers 500 helps nobody.
pub fn apply_status(error: &ApplyError, resource: &ResourceType, name: &str) -> Status {
    match error {
        ApplyError::TooLarge => Status::too_large(BODY_BYTES_MAX),
        ApplyError::NotYaml(_)
        | ApplyError::NotAnObject
        | ApplyError::OtherKind { .. }
        | ApplyError::ManagedFieldsGiven
        | ApplyError::Faults { .. } => Status::bad_request(error.to_string()),
        ApplyError::Conflicts { conflicts } => {
            let causes = conflicts.iter().map(|conflict| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: conflict_message(conflict),
                field: conflict.path.clone(),
            });
            Status::apply_conflict(error.to_string(), causes.collect())
        }
        ApplyError::Record(_) => Status::internal(error.to_string()),
        ApplyError::BadResult(source) => bad_result(&source.to_string(), resource, name),
    }
}

fn bad_result(why: &str, resource: &ResourceType, name: &str) -> Status {
    let kind = resource.group_kind();
    let message = format!("{kind} {name:?} is invalid: patch: Invalid value: {why}");
    Status::bad_patch(kind, name, message, format!("Invalid value: {why}"))
}

/// From where findings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// The body of a create or update.
    Body,
    /// A patch of the object with this name.
    Patch { name: &'a str },
}

/// What fields that nobody knows, or that are given twice, mean under a validation: nothing, warnings, or an error.
///
/// Returns the warnings, to be sent as one header each. Strict: 400 for bodies, 422 for patches.
pub fn judge_findings(
    findings: &[Finding],
    validation: FieldValidation,
    resource: &ResourceType,
    source: Source<'_>,
) -> Result<Vec<String>, Status> {
    if findings.is_empty() || validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    if validation == FieldValidation::Warn {
        return Ok(warnings(findings.iter().map(ToString::to_string)));
    }
    let mut texts: Vec<String> = findings.iter().take(FINDINGS_MAX).map(ToString::to_string).collect();
    if findings.len() > FINDINGS_MAX {
        texts.push(format!("and {} more", findings.len() - FINDINGS_MAX));
    }
    let why = format!("strict decoding error: {}", texts.join(", "));
    Err(match source {
        Source::Patch { name } => bad_result(&why, resource, name),
        Source::Body => {
            let (kind, version) = (&resource.kind, &resource.version);
            Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
        }
    })
}

/// Values of `Warning` headers, one for each different text. Many long ones are cut.
pub fn warnings(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let texts: Vec<String> = texts.into_iter().filter(|text| seen.insert(text.clone())).collect();
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    if total <= WARNINGS_CHARS_MAX {
        return texts.iter().map(|text| warning(text)).collect();
    }
    let mut chars = 0;
    let mut headers = Vec::new();
    for text in texts {
        let cut: String = text.chars().take(WARNING_CHARS_MAX).collect();
        if chars >= WARNINGS_CHARS_MAX {
            break;
        }
        chars += cut.chars().count();
        headers.push(warning(&cut));
    }
    headers
}

/// One value of a `Warning` header: code 299, no agent, the text in quotes. Control characters become blanks: headers cannot
/// have them.
fn warning(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 10);
    quoted.push_str("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
