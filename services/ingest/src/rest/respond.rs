//! Answers: objects, lists, documents and refusals, in the form that the client takes.

use std::convert::Infallible;

use apiserver::body::{self, Format};
use apiserver::negotiate::{self, Accepted};
use apiserver::schema::Schema;
use apiserver::status::Status;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use serde_json::{Map, Value};

use super::serve::Body;

/// A whole answer.
pub(crate) fn whole(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Plain text, as health checks and unknown paths are answered.
pub(crate) fn text(code: StatusCode, text: &'static str) -> Response<Body> {
    whole(code, "text/plain; charset=utf-8", text)
}

/// A refusal, or a success without an object.
pub(crate) fn status(status: &Status, accept: Option<&str>) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let accepted = negotiate::accept_error(accept, true);
    let mut response = match status.to_value() {
        Value::Object(object) => encoded(code, &object, accepted),
        // A status is an object; its text at least is always something.
        _ => whole(code, negotiate::JSON, status.message.clone()),
    };
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// An object in the accepted form. What has no form as protobuf is sent as JSON, which every client takes.
pub(crate) fn encoded(code: StatusCode, object: &Map<String, Value>, accepted: Accepted) -> Response<Body> {
    let schema = Schema::builtin();
    let try_in = |format: Format| body::encode(schema, object, format, accepted.is_pretty);
    match try_in(accepted.format) {
        Ok(bytes) => whole(code, accepted.content_type(), bytes),
        Err(_) => match try_in(Format::Json) {
            Ok(bytes) => whole(code, negotiate::JSON, bytes),
            Err(error) => {
                tracing::error!(%error, "an answer cannot be written");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written")
            }
        },
    }
}

/// Adds warnings for the client's user; `values`: of one header each, see [`apiserver::faults`].
pub(crate) fn warn(response: &mut Response<Body>, values: &[String]) {
    for value in values {
        let shown: String = value.chars().map(as_header).collect();
        if let Ok(value) = HeaderValue::from_str(&shown) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Headers carry visible ASCII only.
fn as_header(c: char) -> char {
    if c.is_ascii() && !c.is_ascii_control() { c } else { '?' }
}

/// What the log of refusals may show of a request's headers: nothing that could be a secret.
pub(crate) fn header_text(headers: &http::HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use apiserver::faults;

    use super::*;

    #[test]
    fn warnings_are_quoted_as_headers_can_carry_them() {
        let mut response = text(StatusCode::OK, "ok");
        warn(&mut response, &faults::warnings(["unknown field \"spec.zz\"".to_owned()]));
        warn(&mut response, &["299 - \"ü\n\"".to_owned()]);
        let all: Vec<_> = response.headers().get_all(header::WARNING).iter().collect();
        assert_eq!(all, ["299 - \"unknown field \\\"spec.zz\\\"\"", "299 - \"??\""]);
    }
}
