//! The native API, a file per service. Handlers are thin: decode, ask, encode.

mod agents;
mod explanation;
mod gates;
mod log;
mod objects;
mod pools;
mod units;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use resource_api::object::Kind;
use resource_api::wire::Time;
use rpc::dray::v1 as pb;
use store::{Cursor, EventRow, Operation, Outcome, Page, Store, Stored, Writer};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use crate::error;
use crate::gatekeeper::Gatekeeper;
use crate::intake::Intake;
use crate::live::Live;
use crate::metrics::Metrics;

pub(crate) use agents::AgentsService;
pub(crate) use gates::GatesService;
pub(crate) use log::LogService;
pub(crate) use objects::ObjectsService;
pub(crate) use pools::PoolsService;
pub(crate) use units::UnitsService;

/// What every handler has.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    pub(crate) live: Live,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) intake: Intake,
    pub(crate) metrics: Metrics,
    /// What feeds streams; awaited before the process ends.
    pub(crate) tasks: TaskTracker,
    /// Take nothing new, finish what was begun.
    pub(crate) stop: CancellationToken,
}

/// Messages that a stream's client may be behind before its feed waits.
const STREAM_MAX: usize = 256;
/// How long the last word of a stream may wait for its client.
const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);
/// Default and largest page.
const PAGE_DEFAULT: u32 = 500;
const PAGE_MAX: u32 = 5_000;
/// Reads and writes that lost a race are done over this often before the caller is told.
const TRIES_MAX: usize = 8;
/// Bytes of objects in a page, more or less: what clients read by default is 4 MiB.
const PAGE_BYTES_MAX: usize = 2 << 20;
/// Slices are large: a page of more would be read in vain.
const PAGE_SLICES_MAX: u32 = 64;
/// Bytes of a `traceparent`.
const TRACEPARENT_LENGTH: usize = 55;
/// The namespace of objects that do not say one.
const NAMESPACE_DEFAULT: &str = "default";

/// A response that streams.
pub(crate) type Streamed<T> = ReceiverStream<Result<T, Status>>;

impl Context {
    /// After a lost write: if it lost because feature gates were switched, the next try is prepared under the new ones.
    pub(crate) async fn heed(&self, outcome: &Outcome) -> Result<(), Status> {
        match outcome {
            Outcome::GatesChanged { .. } => self.gatekeeper.refresh(&self.store).await.map_err(error::from_store),
            _ => Ok(()),
        }
    }

    /// A stream that `feed` fills until it ends, its client leaves or the service stops.
    fn stream<T, F, Fut>(&self, feed: F) -> Response<Streamed<T>>
    where
        T: Send + 'static,
        F: FnOnce(mpsc::Sender<Result<T, Status>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Status>> + Send,
    {
        let stop = self.stop.clone();
        self.stream_to_the_end(async move |out: mpsc::Sender<Result<T, Status>>| {
            tokio::select! {
                ended = feed(out.clone()) => ended,
                () = out.closed() => Ok(()),
                () = stop.cancelled() => Err(error::stopping()),
            }
        })
    }

    /// A stream that `feed` fills until it ends; it must heed its client and `stop` itself.
    fn stream_to_the_end<T, F, Fut>(&self, feed: F) -> Response<Streamed<T>>
    where
        T: Send + 'static,
        F: FnOnce(mpsc::Sender<Result<T, Status>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Status>> + Send,
    {
        let (out, messages) = mpsc::channel(STREAM_MAX);
        let open = self.metrics.streams.clone();
        open.inc();
        self.tasks.spawn(async move {
            let ended = feed(out.clone()).await;
            open.dec();
            if let Err(status) = ended {
                // A client that reads no more learns of the end from the connection.
                drop(out.send_timeout(Err(status), LAST_WORD_TIMEOUT).await);
            }
        });
        Response::new(ReceiverStream::new(messages))
    }
}

fn now() -> Time {
    Time::new(jiff::Timestamp::now())
}

fn page_size(asked: u32) -> u32 {
    if asked == 0 { PAGE_DEFAULT } else { asked.min(PAGE_MAX) }
}

/// How many items fit a page, at least one; `sizes` are their bytes, in order.
fn n_fitting(sizes: impl IntoIterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let mut n_items = 0;
    for size in sizes {
        bytes += size;
        if n_items > 0 && bytes > PAGE_BYTES_MAX {
            break;
        }
        n_items += 1;
    }
    n_items
}

/// Leaves in a page what fits a message.
fn cut(page: &mut Page) {
    let n_items = n_fitting(page.items.iter().map(|item| item.body.len()));
    if n_items < page.items.len() {
        page.items.truncate(n_items);
        page.next = page.items.last().map(|last| Cursor {
            namespace: last.namespace.to_string(),
            name: last.name.to_string(),
        });
    }
}

/// Where the next page of a list begins, and the log position of its first page: from there on, events complete the whole list, as what
/// changed in a page that was read already is told by them.
struct PageToken {
    sequence: u64,
    cursor: Cursor,
}

impl PageToken {
    /// Opaque to callers; empty: from the start.
    fn decode(token: &str) -> Result<Option<Self>, Status> {
        if token.is_empty() {
            return Ok(None);
        }
        let parts: Option<(u64, &str, &str)> = token.split_once('/').and_then(|(sequence, rest)| {
            let (namespace, name) = rest.split_once('/')?;
            Some((sequence.parse().ok()?, namespace, name))
        });
        let (sequence, namespace, name) = parts.ok_or_else(|| error::bad_field("page_token", "is not one that a list gave"))?;
        Ok(Some(Self {
            sequence,
            cursor: Cursor {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
        }))
    }

    /// The token after `page`, and the list's sequence.
    fn after(page: &Page, previous: Option<&Self>) -> (String, u64) {
        let sequence = previous.map_or(page.sequence, |token| token.sequence);
        let next = page
            .next
            .as_ref()
            .map(|cursor| format!("{sequence}/{}/{}", cursor.namespace, cursor.name));
        (next.unwrap_or_default(), sequence)
    }
}

fn kind_of(plural: &str) -> Result<Kind, Status> {
    Kind::from_plural(plural).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.into_iter().map(Kind::plural).collect();
        error::bad_field(
            "kind",
            format!("Unsupported value: {plural:?}: supported values: {}", known.join(", ")),
        )
    })
}

/// Where an object of `kind` lives: cluster-wide kinds have no namespace, others live in `default` if they do not say.
fn namespace_of(kind: Kind, namespace: &str) -> &str {
    match (kind.is_namespaced(), namespace) {
        (false, _) => "",
        (true, "") => NAMESPACE_DEFAULT,
        (true, namespace) => namespace,
    }
}

fn parse_uid(field: &str, text: &str) -> Result<uuid::Uuid, Status> {
    text.parse()
        .map_err(|_| error::bad_field(field, format!("Invalid value: {text:?}: must be a uid")))
}

/// The W3C trace context that the caller sent.
fn trace_of(metadata: &MetadataMap) -> Option<Arc<str>> {
    let text = metadata.get("traceparent")?.to_str().ok()?;
    (text.len() == TRACEPARENT_LENGTH).then(|| text.into())
}

/// Puts `span` into the caller's trace and returns the context to hand on: the span's, or the caller's if no trace is made here.
fn join_trace(span: &tracing::Span, caller: Option<Arc<str>>) -> Option<Arc<str>> {
    if let Some(caller) = &caller {
        chassis::telemetry::set_parent_from(span, caller);
    }
    chassis::telemetry::traceparent_of(span).map(Into::into).or(caller)
}

/// The stored JSON with the object's resourceVersion in its metadata.
fn with_version(body: &str, sequence: u64) -> Vec<u8> {
    // Bodies are written by us: `metadata` is an object and has at least a name.
    match body.find("\"metadata\":{") {
        Some(at) => {
            let (head, tail) = body.split_at(at + "\"metadata\":{".len());
            format!("{head}\"resourceVersion\":\"{sequence}\",{tail}").into_bytes()
        }
        None => body.as_bytes().to_vec(),
    }
}

fn object(stored: &Stored) -> pb::Object {
    pb::Object {
        kind: stored.kind.to_string(),
        namespace: stored.namespace.to_string(),
        name: stored.name.to_string(),
        uid: stored.uid.to_string(),
        sequence: stored.sequence,
        json: with_version(&stored.body, stored.sequence),
    }
}

fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Added => "ADDED",
        Operation::Modified => "MODIFIED",
        Operation::Deleted => "DELETED",
    }
}

fn event(row: &EventRow) -> pb::Event {
    pb::Event {
        sequence: row.sequence,
        operation: operation(row.operation).to_owned(),
        object: Some(pb::Object {
            kind: row.kind.to_string(),
            namespace: row.namespace.to_string(),
            name: row.name.to_string(),
            uid: row.uid.to_string(),
            sequence: row.sequence,
            json: with_version(&row.body, row.sequence),
        }),
        time: Some(timestamp(row.at_ms)),
        writer: row.writer.as_deref().unwrap_or_default().to_owned(),
        cause: row.cause.as_deref().unwrap_or_default().to_owned(),
    }
}

/// A watcher of one namespace, or of all if it names none.
fn is_in(namespace: &str, row: &EventRow) -> bool {
    namespace.is_empty() || row.namespace.as_ref() == namespace
}

fn timestamp(at_ms: i64) -> prost_types::Timestamp {
    let since = Duration::from_millis(u64::try_from(at_ms).unwrap_or(0));
    prost_types::Timestamp::from(SystemTime::UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_what_fits_and_never_nothing() {
        assert_eq!(n_fitting([]), 0);
        assert_eq!(n_fitting([PAGE_BYTES_MAX * 3, 1]), 1);
        assert_eq!(n_fitting([PAGE_BYTES_MAX / 2, PAGE_BYTES_MAX / 2, 1]), 2);
        assert_eq!(n_fitting(vec![100; 500]), 500);
    }

    #[test]
    fn page_tokens_keep_the_first_pages_position() {
        let page = |sequence, next: Option<&str>| Page {
            items: Vec::new(),
            next: next.map(|name| Cursor {
                namespace: "team".into(),
                name: name.into(),
            }),
            sequence,
        };
        let (token, sequence) = PageToken::after(&page(7, Some("a")), None);
        assert_eq!(sequence, 7);
        let token = PageToken::decode(&token).expect("ours").expect("not empty");
        assert_eq!(
            token.cursor,
            Cursor {
                namespace: "team".into(),
                name: "a".into()
            }
        );
        assert_eq!(PageToken::after(&page(9, None), Some(&token)), (String::new(), 7));
    }

    #[test]
    fn the_version_goes_into_the_metadata() {
        let body = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}"#;
        let json: serde_json::Value = serde_json::from_slice(&with_version(body, 12)).expect("JSON");
        assert_eq!(json["metadata"]["resourceVersion"], "12");
        assert_eq!(json["metadata"]["name"], "n");
    }
}
