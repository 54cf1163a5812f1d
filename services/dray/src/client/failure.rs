//! Errors as a person reads them: what failed, one line per fault in the request, and what to do.

use std::fmt::Write as _;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::connect::Unreachable;

/// The text for standard error; ends with a line break.
pub(crate) fn render(error: &anyhow::Error) -> String {
    let mut text = String::from("error: ");
    let causes: Vec<String> = error
        .chain()
        .take_while(|cause| !cause.is::<Status>())
        .map(ToString::to_string)
        .collect();
    text.push_str(&causes.join(": "));
    match error.chain().find_map(|cause| cause.downcast_ref::<Status>()) {
        Some(status) => {
            if !causes.is_empty() {
                text.push_str(": ");
            }
            push_status(&mut text, status);
        }
        None => text.push('\n'),
    }
    if error.is::<Unreachable>() {
        text.push_str("hint: start one with `dray up`, or name another with --server or DRAY_SERVER\n");
    }
    text
}

fn push_status(text: &mut String, status: &Status) {
    let message = if status.message().is_empty() {
        status.code().description()
    } else {
        status.message()
    };
    text.push_str(message);
    text.push('\n');
    let details = status.get_error_details();
    for fault in details
        .bad_request()
        .into_iter()
        .flat_map(|request| &request.field_violations)
    {
        push_line(text, &format!("  {}: {}", fault.field, fault.description));
    }
    let retry = details.retry_info().and_then(|info| info.retry_delay);
    if let Some(hint) = hint(status.code(), retry) {
        push_line(text, &format!("hint: {hint}"));
    }
}

fn push_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").ok();
}

/// What to do about it, where that is not plain from the message.
fn hint(code: Code, retry: Option<std::time::Duration>) -> Option<String> {
    match code {
        Code::ResourceExhausted => {
            let after = retry.map_or("a moment".to_owned(), |delay| humantime::format_duration(delay).to_string());
            Some(format!("the server is busy; try again in {after}"))
        }
        Code::Unavailable => Some("the server or its database is not reachable now; the same command can be repeated".to_owned()),
        Code::Aborted => Some("somebody else wrote first; read the object again and repeat".to_owned()),
        Code::AlreadyExists => Some("the name or --client-id is taken by something else; choose another".to_owned()),
        Code::DeadlineExceeded | Code::Cancelled => Some("a longer --timeout allows more time".to_owned()),
        Code::OutOfRange => Some("the log no longer reaches back that far; start later or list anew".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use tonic_types::{ErrorDetails, FieldViolation};

    use super::*;

    #[test]
    fn each_fault_of_a_request_is_a_line() {
        let violations = [("claims[0].spec", "required"), ("claims[1].name", "too long")];
        let violations: Vec<_> = violations.map(|(field, text)| FieldViolation::new(field, text)).into();
        let status = Status::with_error_details(Code::InvalidArgument, "2 faults", ErrorDetails::with_bad_request(violations));
        let error = Err::<(), _>(status).context("cannot submit unit.yaml").unwrap_err();
        let expected = "error: cannot submit unit.yaml: 2 faults\n  claims[0].spec: required\n  claims[1].name: too long\n";
        assert_eq!(render(&error), expected);
    }

    #[test]
    fn a_busy_server_says_when_to_come_back() {
        let details = ErrorDetails::with_retry_info(Some(std::time::Duration::from_secs(2)));
        let error = anyhow::Error::new(Status::with_error_details(Code::ResourceExhausted, "queue full", details));
        assert_eq!(
            render(&error),
            "error: queue full\nhint: the server is busy; try again in 2s\n"
        );
    }
}
