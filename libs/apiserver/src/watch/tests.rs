use super::*;
use crate::negotiate::MetaVersion;
use crate::resources::Catalog;
use crate::selectors::{FieldSelector, LabelSelector};
use crate::table::IncludeObject;

const HORIZON: Horizon = Horizon {
    oldest: 100,
    current: 300,
};

fn claims() -> ResourceType {
    let catalog = Catalog::standard(|_| true);
    (**catalog.find("resource.k8s.io", "v1", "resourceclaims").expect("is served")).clone()
}

fn options(version: Option<u64>, send_initial_events: Option<bool>, allows_bookmarks: bool) -> WatchOptions {
    WatchOptions {
        version,
        send_initial_events,
        allows_bookmarks,
        ..WatchOptions::default()
    }
}

#[test]
fn starts() {
    let state = |freshness, is_marked| WatchStart::State { freshness, is_marked };
    for (version, send_initial_events, allows_bookmarks, wanted) in [
        (Some(200), None, true, WatchStart::After(200)),
        (Some(100), None, true, WatchStart::After(100)),
        (Some(900), None, true, WatchStart::After(900)),
        (None, None, false, state(Freshness::Latest, false)),
        (Some(0), None, true, state(Freshness::Any, true)),
        (None, Some(true), true, state(Freshness::Latest, true)),
        (Some(200), Some(true), true, state(Freshness::AtLeast(200), true)),
        (Some(0), Some(true), false, state(Freshness::Latest, false)),
        (Some(200), Some(false), true, WatchStart::After(200)),
        (None, Some(false), true, WatchStart::After(300)),
        (Some(0), Some(false), true, WatchStart::After(300)),
    ] {
        let found = decide(&options(version, send_initial_events, allows_bookmarks), HORIZON);
        assert_eq!(found, wanted, "{version:?} {send_initial_events:?}");
    }
}

#[test]
fn too_old_is_an_event() {
    let WatchStart::Expired(status) = decide(&options(Some(5), None, true), HORIZON) else {
        panic!()
    };
    let event = error(&status);
    assert_eq!(event.event_type.text(), "ERROR");
    assert_eq!(
        *event.object,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired",
               "message": "too old resource version: 5 (100)"})
    );
}

#[test]
fn ends_and_bookmarks() {
    let seconds = Duration::from_secs;
    let asked = WatchOptions {
        timeout_seconds: Some(450),
        ..WatchOptions::default()
    };
    assert_eq!(timeout(&asked, 7), seconds(450));
    assert_eq!(timeout(&WatchOptions::default(), 0), seconds(1800));
    assert_eq!(timeout(&WatchOptions::default(), 1800), seconds(3600));
    assert_eq!(next_bookmark(seconds(0), seconds(450)), Some(seconds(60)));
    assert_eq!(next_bookmark(seconds(420), seconds(450)), Some(seconds(448)));
    assert_eq!(next_bookmark(seconds(448), seconds(450)), None);
    assert_eq!(next_bookmark(seconds(0), seconds(1)), None);
}

fn claim(version: u64, app: &str) -> Value {
    json!({"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
           "metadata": {"name": "c1", "resourceVersion": version.to_string(), "labels": {"app": app}}})
}

#[track_caller]
fn check(change: Change<'_>, wanted: Option<(EventType, Value)>) {
    let selection = Selection {
        labels: LabelSelector::parse("app=x").expect("is a selector"),
        fields: FieldSelector::default(),
    };
    let found = classify(&selection, change).map(|event| (event.event_type, event.object.into_owned()));
    assert_eq!(found, wanted);
}

#[test]
fn changes_are_what_the_selection_makes_of_them() {
    let (inside, later, outside) = (claim(1, "x"), claim(2, "x"), claim(3, "y"));
    check(Change::Created { new: &inside }, Some((EventType::Added, inside.clone())));
    check(Change::Created { new: &outside }, None);
    let (old, new) = (&inside, &later);
    check(Change::Updated { old, new }, Some((EventType::Modified, later.clone())));
    let (old, new) = (&outside, &inside);
    check(Change::Updated { old, new }, Some((EventType::Added, inside.clone())));
    let (old, new) = (&inside, &outside);
    check(Change::Updated { old, new }, Some((EventType::Deleted, claim(3, "x"))));
    let (old, new) = (&outside, &outside);
    check(Change::Updated { old, new }, None);
    let gone = Change::Deleted {
        last: &later,
        version: 9,
    };
    check(gone, Some((EventType::Deleted, claim(9, "x"))));
    let gone = Change::Deleted {
        last: &outside,
        version: 9,
    };
    check(gone, None);
}

#[test]
fn marker_has_the_type_of_the_objects() {
    let marker = bookmark(&claims(), 257, true);
    assert_eq!(marker.event_type.text(), "BOOKMARK");
    assert_eq!(
        *marker.object,
        json!({"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
               "metadata": {"resourceVersion": "257", "annotations": {"k8s.io/initial-events-end": "true"}}})
    );
    assert_eq!(
        bookmark(&claims(), 9, false).object["metadata"],
        json!({"resourceVersion": "9"})
    );
}

#[test]
fn events_are_presented_as_asked_for() {
    let claims = claims();
    let now: jiff::Timestamp = "2026-12-01T12:00:00Z".parse().expect("is a time");
    let style = TableStyle {
        version: MetaVersion::V1,
        include_object: IncludeObject::Metadata,
        now,
    };
    let object = claim(1, "x");
    let everything = Selection::default();
    let event = initial(&everything, &object).expect("is selected");

    let mut tables = Presenter::new(&claims, Representation::Table(MetaVersion::V1), style);
    let first = tables.present(&event, now).into_owned();
    assert_eq!(first["columnDefinitions"].as_array().map(Vec::len), Some(3));
    assert_eq!(first["rows"][0]["cells"][0], "c1");
    let mark = bookmark(&claims, 9, true);
    let second = tables.present(&mark, now);
    assert_eq!(second["columnDefinitions"], Value::Null);
    assert_eq!(second["rows"][0]["object"]["metadata"], mark.object["metadata"]);
    let failed = error(&Status::too_old(1, 2));
    assert_eq!(tables.present(&failed, now)["kind"], "Status");

    let mut metadata = Presenter::new(&claims, Representation::Metadata(MetaVersion::V1), style);
    assert_eq!(metadata.present(&event, now)["kind"], "PartialObjectMetadata");
    let mut objects = Presenter::new(&claims, Representation::Object, style);
    assert_eq!(*objects.present(&event, now), object);
}
