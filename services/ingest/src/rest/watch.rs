//! Watches: what a cache tells, as frames, to one client.

use std::sync::Arc;
use std::time::Duration;

use apiserver::body::{self, Format};
use apiserver::list::Horizon;
use apiserver::negotiate::{self, Accepted};
use apiserver::request::{ResourceRequest, Target, WatchOptions};
use apiserver::resources::ResourceType;
use apiserver::schema::Schema;
use apiserver::selectors::Selection;
use apiserver::status::Status;
use apiserver::table::TableStyle;
use apiserver::watch::{self as rules, Presenter, WatchEvent, WatchStart};
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use jiff::Timestamp;
use serde_json::Value;
use store::Operation;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::Parts;
use super::cache::{Change, KindCache, Next};
use super::kinds::{in_version, shown};
use super::object::Entry;
use super::read::{cache_for, style, target_style};
use super::serve::Body;

/// Frames that wait for a client. One that does not take them stays behind in the cache, which ends its watch when it must.
const FRAMES_MAX: usize = 64;
/// Changes taken from the cache at once.
const CHANGES_AT_ONCE: usize = 256;

/// A watch under way.
struct Watch {
    resource: Arc<ResourceType>,
    namespace: String,
    selection: Selection,
    accepted: Accepted,
    style: TableStyle,
    cache: Arc<KindCache>,
    allows_bookmarks: bool,
    timeout: Duration,
}

/// Where it starts.
struct Start {
    /// Changes after it are sent.
    position: u64,
    /// What is sent before.
    state: Vec<Arc<Entry>>,
    is_marked: bool,
    /// The watch ends before it begins.
    expired: Option<Status>,
}

/// The client has left.
struct Left;

pub(super) async fn watch(
    parts: &Parts,
    request: &ResourceRequest,
    options: &WatchOptions,
    target: &Target,
    accepted: Accepted,
) -> Result<Response<Body>, Status> {
    let resource = &request.resource;
    let (cache, current) = cache_for(parts, resource).await?;
    let horizon = Horizon {
        oldest: cache.oldest_resumable(),
        current,
    };
    let start = match rules::decide(options, horizon) {
        WatchStart::After(position) => Start {
            position,
            state: Vec::new(),
            is_marked: false,
            expired: None,
        },
        WatchStart::State { is_marked, .. } => {
            let namespace = Some(request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
            let (state, position) = cache.snapshot(namespace);
            Start {
                position: position.max(current),
                state,
                is_marked,
                expired: None,
            }
        }
        WatchStart::Expired(status) => Start {
            position: current,
            state: Vec::new(),
            is_marked: false,
            expired: Some(status),
        },
    };
    let watch = Watch {
        resource: Arc::clone(resource),
        namespace: request.namespace.clone(),
        selection: options.selection.clone(),
        accepted,
        style: style(accepted, target_style(target)?),
        cache,
        allows_bookmarks: options.allows_bookmarks,
        timeout: rules::timeout(options, rand_u64()),
    };
    let (out, frames) = mpsc::channel(FRAMES_MAX);
    let stop = parts.context.stop.clone();
    let open = parts.context.metrics.streams.clone();
    parts.context.tasks.spawn(async move {
        open.inc();
        let ends = Instant::now() + watch.timeout;
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(ends) => {}
            () = out.closed() => {}
            // That a client has left is no news to anybody.
            _ = watch.run(start, &out) => {}
        }
        open.dec();
    });
    let frames = ReceiverStream::new(frames).map(|bytes: Bytes| Ok(Frame::data(bytes)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    let content_type = negotiate::stream_content_type(accepted.format);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// Spreads the ends of watches whose clients leave them to the server.
fn rand_u64() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

impl Watch {
    async fn run(&self, start: Start, out: &mpsc::Sender<Bytes>) -> Result<(), Left> {
        let mut presenter = Presenter::new(&self.resource, self.accepted.representation, self.style);
        if let Some(status) = &start.expired {
            return self.send(&rules::error(status), &mut presenter, out).await;
        }
        for entry in &start.state {
            let Ok(value) = shown(&self.resource, entry) else { continue };
            if let Some(event) = rules::initial(&self.selection, &value) {
                self.send(&event, &mut presenter, out).await?;
            }
        }
        let mut position = start.position;
        if start.is_marked {
            let marker = rules::bookmark(&self.resource, position, true);
            self.send(&marker, &mut presenter, out).await?;
        }
        let began = Instant::now();
        let mut last = Duration::ZERO;
        loop {
            let bookmark_at = rules::next_bookmark(last, self.timeout).filter(|_| self.allows_bookmarks);
            let bookmark = async {
                match bookmark_at {
                    Some(at) => tokio::time::sleep_until(began + at).await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                next = self.cache.next(position, CHANGES_AT_ONCE) => next,
                () = bookmark => {
                    last = began.elapsed();
                    self.send(&rules::bookmark(&self.resource, position, false), &mut presenter, out).await?;
                    continue;
                }
            };
            match next {
                Some(Next::Changes(changes, reached)) => {
                    for change in &changes {
                        if self.send_change(change, &mut presenter, out).await? {
                            last = began.elapsed();
                        }
                    }
                    position = reached;
                }
                Some(Next::TooOld(oldest)) => {
                    let error = rules::error(&Status::too_old(position, oldest));
                    return self.send(&error, &mut presenter, out).await;
                }
                None => return Ok(()),
            }
        }
    }

    /// `true` if the client was told.
    async fn send_change(&self, change: &Change, presenter: &mut Presenter<'_>, out: &mpsc::Sender<Bytes>) -> Result<bool, Left> {
        if !self.namespace.is_empty() && *change.after.namespace != *self.namespace {
            return Ok(false);
        }
        let before = change.before.as_ref().and_then(|before| shown(&self.resource, before).ok());
        let Some(value) = change
            .value()
            .and_then(|value| in_version(&self.resource, Value::clone(value)).ok())
        else {
            return Ok(false);
        };
        let version = change.after.sequence;
        let meant = match (change.operation, &before) {
            (Operation::Deleted, last) => rules::Change::Deleted {
                last: last.as_ref().unwrap_or(&value),
                version,
            },
            (_, None) => rules::Change::Created { new: &value },
            (_, Some(old)) => rules::Change::Updated { old, new: &value },
        };
        match rules::classify(&self.selection, meant) {
            Some(event) => self.send(&event, presenter, out).await.map(|()| true),
            None => Ok(false),
        }
    }

    async fn send(&self, event: &WatchEvent<'_>, presenter: &mut Presenter<'_>, out: &mpsc::Sender<Bytes>) -> Result<(), Left> {
        let shown = presenter.present(event, Timestamp::now());
        let Some(object) = shown.as_object() else { return Ok(()) };
        let schema = Schema::builtin();
        let word = event.event_type.text();
        let written = body::encode_watch_event(schema, word, object, self.accepted.format)
            .or_else(|_| body::encode_watch_event(schema, word, object, Format::Json));
        match written {
            Ok(frame) => out.send(frame.into()).await.map_err(|_| Left),
            Err(error) => {
                tracing::error!(%error, "an event cannot be written");
                Ok(())
            }
        }
    }
}
