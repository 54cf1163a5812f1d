//! W3C trace context in NATS headers.

use async_nats::HeaderMap;

/// The header's name, as in HTTP.
const TRACEPARENT: &str = "traceparent";

/// Headers for a message that belongs to a trace, or none.
pub(crate) fn headers(traceparent: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(traceparent) = traceparent.filter(|text| !text.is_empty()) {
        headers.insert(TRACEPARENT, traceparent);
    }
    headers
}

/// The trace that a message belongs to, as text; whether it is well formed is the reader's business.
pub(crate) fn traceparent(message: &async_nats::Message) -> Option<String> {
    message
        .headers
        .as_ref()?
        .get(TRACEPARENT)
        .map(|value| value.as_str().to_owned())
}
