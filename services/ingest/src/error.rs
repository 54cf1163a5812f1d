//! Errors as callers see them: a gRPC code, what was wrong where, and what to do.

use std::collections::HashMap;
use std::time::Duration;

use store::{Remedy, StoreError};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::violation::Violation;

/// Domain of google.rpc.ErrorInfo.
const DOMAIN: &str = "dray.v1";
/// When a refused caller may come back.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// INVALID_ARGUMENT with every violation.
pub(crate) fn invalid(violations: &[Violation]) -> Status {
    let first = violations
        .first()
        .map(|v| format!("{}: {}", v.field, v.description))
        .unwrap_or_default();
    let message = match violations.len() {
        0 => "the request is not valid".to_owned(),
        1 => first,
        n => format!("{n} fields are wrong; the first: {first}"),
    };
    let fields = violations
        .iter()
        .map(|v| FieldViolation::new(&v.field, &v.description))
        .collect::<Vec<_>>();
    let mut details = ErrorDetails::with_bad_request(fields);
    details.set_error_info("INVALID", DOMAIN, HashMap::<String, String>::new());
    Status::with_error_details(Code::InvalidArgument, message, details)
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
