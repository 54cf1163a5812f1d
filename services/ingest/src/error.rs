//! Errors as callers see them: a gRPC code, what was wrong where, and what to do.

use std::collections::HashMap;
use std::time::Duration;

use store::{Remedy, StoreError};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::violation::Violation;

/// Domain of google.rpc.ErrorInfo.
const DOMAIN: &str = "dray.v1";
/// Bytes of violations in a status: it travels in headers, as base64, and clients take 16 KiB of them by default.
const DETAILS_BYTES_MAX: usize = 9_000;
/// What a violation takes beside its texts.
const VIOLATION_BYTES: usize = 8;
/// Characters of one text.
const TEXT_MAX: usize = 500;
/// When a refused caller may come back.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// INVALID_ARGUMENT with every violation that fits into what clients take as headers.
pub(crate) fn invalid(violations: &[Violation]) -> Status {
    let mut bytes = 0;
    let fits = |violation: &FieldViolation| {
        bytes += violation.field.len() + violation.description.len() + VIOLATION_BYTES;
        bytes <= DETAILS_BYTES_MAX
    };
    let fields: Vec<FieldViolation> = violations.iter().map(field_violation).take_while(fits).collect();
    let first = fields
        .first()
        .map(|v| format!("{}: {}", v.field, v.description))
        .unwrap_or_default();
    let message = match violations.len() {
        0 => "the request is not valid".to_owned(),
        1 => first,
        n if fields.len() < n => format!(
            "{n} or more fields are wrong, {} of them are told; the first: {first}",
            fields.len()
        ),
        n => format!("{n} fields are wrong; the first: {first}"),
    };
    let mut details = ErrorDetails::with_bad_request(fields);
    details.set_error_info("INVALID", DOMAIN, HashMap::<String, String>::new());
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// Texts that repeat a long value are cut.
fn field_violation(violation: &Violation) -> FieldViolation {
    let cut = |text: &str| match text.char_indices().nth(TEXT_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    };
    FieldViolation::new(cut(&violation.field), cut(&violation.description))
}

/// INVALID_ARGUMENT about one field of the request itself.
pub(crate) fn bad_field(field: &str, description: impl Into<String>) -> Status {
    invalid(&[Violation::invalid(field, description)])
}

fn with_info(code: Code, reason: &str, message: String) -> Status {
    Status::with_error_details(
        code,
        message,
        ErrorDetails::with_error_info(reason, DOMAIN, HashMap::<String, String>::new()),
    )
}

pub(crate) fn not_found(what: &str) -> Status {
    with_info(Code::NotFound, "NOT_FOUND", format!("{what} not found"))
}

/// The client id names another submission.
pub(crate) fn id_reused(client_id: &str, namespace: &str) -> Status {
    let message = format!("client_id {client_id:?} was used for another submission in namespace {namespace:?}");
    with_info(Code::AlreadyExists, "CLIENT_ID_REUSED", message)
}

pub(crate) fn already_exists(message: impl Into<String>) -> Status {
    with_info(Code::AlreadyExists, "ALREADY_EXISTS", message.into())
}

/// The caller lost a race and should read again.
pub(crate) fn aborted(message: impl Into<String>) -> Status {
    with_info(Code::Aborted, "CONFLICT", message.into())
}

/// Something must be done first.
pub(crate) fn in_use(message: impl Into<String>) -> Status {
    with_info(Code::FailedPrecondition, "IN_USE", message.into())
}

pub(crate) fn overloaded(message: &str) -> Status {
    Status::with_error_details(
        Code::ResourceExhausted,
        message.to_owned(),
        ErrorDetails::with_retry_info(Some(RETRY_AFTER)),
    )
}

/// The process drains; another one, or this one later, will answer.
pub(crate) fn stopping() -> Status {
    let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
    Status::with_error_details(Code::Unavailable, "the service is stopping; ask again", details)
}

/// Events before the horizon are gone: list, then watch from there.
pub(crate) fn expired(after: u64, horizon: u64) -> Status {
    with_info(
        Code::OutOfRange,
        "EXPIRED",
        format!("the log starts after sequence {horizon}, {after} was asked for: list again and watch from the list's sequence"),
    )
}

/// A stored object that this version cannot read. The log gets the details.
pub(crate) fn unreadable(what: &str, error: &serde_json::Error) -> Status {
    tracing::error!(what, %error, "a stored object cannot be read");
    Status::internal(format!("a stored {what} cannot be read; see the service's log"))
}

/// The log gets the chain; the caller what it can do.
pub(crate) fn from_store(error: StoreError) -> Status {
    match error.remedy() {
        Remedy::Retry if matches!(error, StoreError::Overloaded) => overloaded("too many writes are waiting; try again"),
        Remedy::Retry => {
            tracing::warn!(error = %error, cause = std::error::Error::source(&error).map(tracing::field::display), "the database is away");
            let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
            Status::with_error_details(Code::Unavailable, "the database is not available; try again", details)
        }
        Remedy::ReadAgain => {
            Status::unknown("the write may or may not have happened; repeat it with the same client id, or read")
        }
        Remedy::Report => {
            tracing::error!(error = %error, "the database gave an answer that nobody expected");
            Status::internal("internal error; see the service's log")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_stay_within_what_clients_take() {
        let many: Vec<Violation> = (0..200)
            .map(|n| Violation::invalid(format!("f{n}"), "x".repeat(2_000)))
            .collect();
        let status = invalid(&many);
        assert!(status.details().len() < 12_000, "{}", status.details().len());
        let told = status.get_details_bad_request().expect("a bad request").field_violations;
        assert!((10..200).contains(&told.len()));
        assert!(
            status.message().starts_with("200 or more fields are wrong"),
            "{}",
            status.message()
        );
        assert!(told.iter().all(|violation| violation.description.len() == TEXT_MAX + 3));
    }

    #[test]
    fn a_few_violations_are_all_told() {
        let status = invalid(&[Violation::required("a"), Violation::duplicate("b", "x")]);
        let told = status.get_details_bad_request().expect("a bad request").field_violations;
        assert_eq!(told.len(), 2);
        assert_eq!(status.message(), "2 fields are wrong; the first: a: Required value");
    }
}
