//! Why a message was not sent or not answered, by what the caller can do.

use std::time::Duration;

/// A message was not sent or a question not answered. Facts are in Postgres in any case.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The URL or the options are wrong; trying again does not help.
    #[error("cannot use NATS at {url}")]
    Options {
        /// As configured.
        url: String,
        /// What the client said.
        #[source]
        source: async_nats::ConnectError,
    },
    /// The connection is down or its buffer is full: try later.
    #[error("NATS is not available for {subject}")]
    Unavailable {
        /// Where the message was to go.
        subject: String,
        /// What the client said, if it said anything.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Nobody listens: the service behind the subject is down or starting.
    #[error("nobody answers {subject}")]
    NobodyThere {
        /// Where the question went.
        subject: String,
    },
    /// No answer in time; the question may still be worked on.
    #[error("no answer from {subject} within {after:?}")]
    Timeout {
        /// Where the question went.
        subject: String,
        /// The caller's deadline.
        after: Duration,
    },
    /// The message is larger than the server takes; send fewer things at once.
    #[error("message of {size_bytes} bytes for {subject} is above the server's {max_bytes}")]
    TooLarge {
        /// Where the message was to go.
        subject: String,
        /// Its encoded size.
        size_bytes: usize,
        /// The server's `max_payload`.
        max_bytes: usize,
    },
    /// The answer is not the message we expect: the other side runs another version.
    #[error("answer from {subject} cannot be read")]
    Malformed {
        /// Where the question went.
        subject: String,
        /// What protobuf said.
        #[source]
        source: prost::DecodeError,
    },
}
