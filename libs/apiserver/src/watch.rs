//! What a watch shows: where it starts, which change is which event for whom, and the events that are no changes.
//!
//! Pure: reading, waiting and sending are done elsewhere. Source: `k8s.io/apiserver/pkg/storage/cacher`,
//! `pkg/endpoints/handlers/watch.go`.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::list::{Freshness, Horizon};
use crate::negotiate::Representation;
use crate::object;
use crate::request::WatchOptions;
use crate::resources::ResourceType;
use crate::selectors::Selection;
use crate::status::Status;
use crate::table::{self, Header, TableStyle};

/// The annotation of the bookmark after the initial state.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Time between bookmarks.
pub const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the watch ends.
const LAST_BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Shortest watch of clients that do not say how long; the longest takes twice as long.
const DEFAULT_SECONDS_MIN: u64 = 1800;
/// Longest watch. Clients start again when a watch ends, so a bound costs them little.
const SECONDS_MAX: u64 = 24 * 3600;

/// Where a watch starts.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchStart {
    /// With the events after a version, which may not exist yet.
    After(u64),
    /// With an ADDED for each object of a state, then the events after that state.
    State {
        /// How new the state must be. A version in the future is waited for; if it does not come: [`Status::version_too_large`].
        freshness: Freshness,
        /// A bookmark with [`INITIAL_EVENTS_END`] follows the state.
        is_marked: bool,
    },
    /// The events are gone: an ERROR event with this, then the end. The HTTP status stays 200.
    Expired(Status),
}

/// Decides where a watch starts.
pub fn decide(options: &WatchOptions, horizon: Horizon) -> WatchStart {
    let version = options.version.filter(|version| *version > 0);
    let state = |freshness| WatchStart::State {
        freshness,
        is_marked: options.allows_bookmarks,
    };
    match (options.send_initial_events, version) {
        (Some(true), Some(version)) => state(Freshness::AtLeast(version)),
        (Some(true), None) => state(Freshness::Latest),
        (None, None) if options.version.is_some() => state(Freshness::Any),
        (None, None) => state(Freshness::Latest),
        (Some(false), None) => WatchStart::After(horizon.current),
        (_, Some(version)) if version < horizon.oldest => WatchStart::Expired(Status::too_old(version, horizon.oldest)),
        (_, Some(version)) => WatchStart::After(version),
    }
}

/// How long a watch lasts. `random`: any number, spreads those that leave it to the server.
pub fn timeout(options: &WatchOptions, random: u64) -> Duration {
    let chosen = DEFAULT_SECONDS_MIN + random % (DEFAULT_SECONDS_MIN + 1);
    Duration::from_secs(options.timeout_seconds.unwrap_or(chosen).min(SECONDS_MAX))
}

/// When the next bookmark is due, both counted from the start of the watch. `last`: when the last event of any type was sent,
/// if that told the client where it is. `None` after the last one.
pub fn next_bookmark(last: Duration, timeout: Duration) -> Option<Duration> {
    let final_one = timeout.saturating_sub(LAST_BOOKMARK_BEFORE_END);
    if last >= final_one {
        return None;
    }
    Some((last + BOOKMARK_EVERY).min(final_one))
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventType {
    /// The word in the stream.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent<'a> {
    pub event_type: EventType,
    pub object: Cow<'a, Value>,
}

/// A change of one object, as the store has it.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Created {
        new: &'a Value,
    },
    Updated {
        old: &'a Value,
        new: &'a Value,
    },
    /// `last`: the state before; `version`: that of the deletion.
    Deleted {
        last: &'a Value,
        version: u64,
    },
}

/// What a change is for a watcher with selectors. `None`: nothing.
///
/// An object that leaves the selection is DELETED: in its old state, with the version of the change.
pub fn classify<'a>(selection: &Selection, change: Change<'a>) -> Option<WatchEvent<'a>> {
    let event = |event_type, object| Some(WatchEvent { event_type, object });
    match change {
        Change::Created { new } if selection.matches(new) => event(EventType::Added, Cow::Borrowed(new)),
        Change::Created { .. } => None,
        Change::Updated { old, new } => match (selection.matches(old), selection.matches(new)) {
            (true, true) => event(EventType::Modified, Cow::Borrowed(new)),
            (false, true) => event(EventType::Added, Cow::Borrowed(new)),
            (true, false) => event(EventType::Deleted, Cow::Owned(at_version(old, object::resource_version(new)))),
            (false, false) => None,
        },
        Change::Deleted { last, version } if selection.matches(last) => {
            event(EventType::Deleted, Cow::Owned(at_version(last, &version.to_string())))
        }
        Change::Deleted { .. } => None,
    }
}

/// An object of the initial state. `None` if it is not selected.
pub fn initial<'a>(selection: &Selection, object: &'a Value) -> Option<WatchEvent<'a>> {
    classify(selection, Change::Created { new: object })
}

fn at_version(object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    object::set_meta_text(&mut object, "resourceVersion", version);
    object
}

/// A bookmark: everything up to `version` was sent. `ends_initial_state` makes it the marker that informers wait for.
pub fn bookmark(resource: &ResourceType, version: u64, ends_initial_state: bool) -> WatchEvent<'static> {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
    if ends_initial_state {
        metadata.insert("annotations".to_owned(), json!({ INITIAL_EVENTS_END: "true" }));
    }
    // Clients drop bookmarks of another type than that of the objects.
    let object = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
    WatchEvent {
        event_type: EventType::Bookmark,
        object: Cow::Owned(object),
    }
}

/// The last event of a watch that fails.
pub fn error(status: &Status) -> WatchEvent<'static> {
    WatchEvent {
        event_type: EventType::Error,
        object: Cow::Owned(status.to_value()),
    }
}

/// Brings the events of one watch into the form that its client asked for.
#[derive(Clone, Debug)]
pub struct Presenter<'a> {
    resource: &'a ResourceType,
    representation: Representation,
    style: TableStyle,
    /// Columns are named in the first event only.
    header: Header,
}

impl<'a> Presenter<'a> {
    /// A presenter for one watch. `style` counts for tables.
    pub fn new(resource: &'a ResourceType, representation: Representation, style: TableStyle) -> Self {
        Self {
            resource,
            representation,
            style,
            header: Header::Shown,
        }
    }

    /// The object of an event as it is sent. Errors are always a `Status`.
    pub fn present<'e>(&mut self, event: &'e WatchEvent<'_>, now: jiff::Timestamp) -> Cow<'e, Value> {
        if event.event_type == EventType::Error {
            return Cow::Borrowed(&event.object);
        }
        match self.representation {
            Representation::Object | Representation::Discovery(_) => Cow::Borrowed(&event.object),
            Representation::Metadata(version) => Cow::Owned(table::metadata_only(&event.object, version)),
            Representation::Table(version) => {
                let style = TableStyle {
                    version,
                    now,
                    ..self.style
                };
                let shown = table::object_table(self.resource, &event.object, style, self.header);
                self.header = Header::Omitted;
                Cow::Owned(shown)
            }
        }
    }
}

#[cfg(test)]
mod tests;
