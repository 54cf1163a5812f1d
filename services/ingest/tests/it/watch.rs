//! What a list and the watch from it promise: nothing is missing, nothing comes twice, everything in order.

use std::collections::BTreeMap;
use std::time::Duration;

use rpc::dray::v1 as pb;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;
use tonic::{Code, Streaming};

use crate::rig::{Ingest, Rig, claim, fields, reason, within};

/// The lock that all writers take, held by a transaction of the test's own.
pub(crate) struct WritersLock(PgConnection);

impl WritersLock {
    pub(crate) async fn take(database_url: &str) -> Self {
        let mut connection = PgConnection::connect(database_url).await.unwrap();
        sqlx::query("BEGIN").execute(&mut connection).await.unwrap();
        sqlx::query("SELECT dray_writer_lock()")
            .execute(&mut connection)
            .await
            .unwrap();
        Self(connection)
    }

    pub(crate) async fn release(mut self) {
        sqlx::query("ROLLBACK").execute(&mut self.0).await.unwrap();
    }
}

/// Names and their sequences, and the position from which on a watch completes them.
async fn list(ingest: &Ingest, page_size: u32) -> (BTreeMap<String, u64>, u64) {
    let mut found = BTreeMap::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ListObjectsRequest {
            kind: "resourceclaims".into(),
            namespace: "team".into(),
            page_size,
            page_token,
        };
        let page = within(ingest.objects().list(request)).await.unwrap().into_inner();
        for object in &page.objects {
            let json: Value = serde_json::from_slice(&object.json).unwrap();
            assert_eq!(json["metadata"]["resourceVersion"], object.sequence.to_string());
        }
        found.extend(page.objects.into_iter().map(|object| (object.name, object.sequence)));
        if page.next_page_token.is_empty() {
            return (found, page.sequence);
        }
        page_token = page.next_page_token;
    }
}

async fn watch(ingest: &Ingest, after_sequence: u64) -> Streaming<pb::Event> {
    let request = pb::WatchObjectsRequest {
        kind: "resourceclaims".into(),
        namespace: "team".into(),
        after_sequence,
    };
    within(ingest.objects().watch(request)).await.unwrap().into_inner()
}

/// Applies a watch to a list until `last` has come, and checks the order. Returns the state and how many events came.
async fn follow(
    mut stream: Streaming<pb::Event>,
    mut state: BTreeMap<String, u64>,
    after: u64,
    last: u64,
) -> (BTreeMap<String, u64>, usize) {
    let (mut position, mut n_events) = (after, 0);
    while position < last {
        let event = within(stream.message()).await.unwrap().expect("a watch does not end");
        assert!(event.sequence > position, "{} after {position}", event.sequence);
        position = event.sequence;
        n_events += 1;
        let object = event.object.unwrap();
        match event.operation.as_str() {
            "DELETED" => drop(state.remove(&object.name)),
            // A list's later pages may know more than its position.
            _ => drop(
                state
                    .entry(object.name)
                    .and_modify(|known| *known = (*known).max(event.sequence))
                    .or_insert(event.sequence),
            ),
        }
    }
    (state, n_events)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_watcher_gets_every_event_once_and_in_order() {
    const WRITERS: usize = 8;
    const WRITES: usize = 60;
    let rig = Rig::new().await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let mut objects = rig.ingest.objects();
        writers.spawn(async move {
            for n in 0..WRITES {
                let object = claim(&format!("claim-{writer}-{}", n % 7), json!({"n": n.to_string()}));
                let json = serde_json::to_vec(&object).unwrap();
                objects.apply(pb::ApplyRequest { json }).await.unwrap();
            }
        });
    }
    let last = (WRITERS * WRITES) as u64;
    let mut watchers = JoinSet::new();
    let mut n_before = 0;
    while !writers.is_empty() {
        // Lists of small pages while everything changes.
        let (state, sequence) = list(&rig.ingest, 5).await;
        let stream = watch(&rig.ingest, sequence).await;
        watchers.spawn(async move { (sequence, follow(stream, state, sequence, last).await) });
        n_before += 1;
        while writers.try_join_next().is_some() {}
        if n_before >= 20 {
            within(writers.join_next()).await;
        }
    }
    assert_eq!(rig.head().await, last);
    let (expected, sequence) = list(&rig.ingest, 1_000).await;
    assert_eq!((expected.len(), sequence), (WRITERS * 7, last));
    while let Some(watched) = within(watchers.join_next()).await {
        let (from, (state, n_events)) = watched.unwrap();
        assert_eq!(n_events as u64, last - from, "from {from}");
        assert_eq!(state, expected, "from {from}");
    }
    let (replayed, n_events) = follow(watch(&rig.ingest, 0).await, BTreeMap::new(), 0, last).await;
    assert_eq!((n_events as u64, replayed), (last, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_during_a_held_back_commit_misses_nothing() {
    let rig = Rig::new().await;
    for name in ["first", "second"] {
        rig.ingest.apply(&claim(name, json!({}))).await.unwrap();
    }
    let early = watch(&rig.ingest, 2).await;
    let lock = WritersLock::take(&rig.stack.database_url).await;
    let mut writes = JoinSet::new();
    for name in ["first", "second"] {
        let mut objects = rig.ingest.objects();
        let json = serde_json::to_vec(&claim(name, json!({"changed": "yes"}))).unwrap();
        writes.spawn(async move { objects.apply(pb::ApplyRequest { json }).await.unwrap() });
    }
    // While both are held back, the list answers, and its position promises nothing that is not in it.
    let (state, sequence) = list(&rig.ingest, 10).await;
    assert_eq!(sequence, 2);
    let late = watch(&rig.ingest, sequence).await;
    lock.release().await;
    within(writes.join_all()).await;
    for stream in [early, late] {
        let (state, n_events) = follow(stream, state.clone(), 2, 4).await;
        assert_eq!(n_events, 2);
        assert_eq!(state.values().copied().max(), Some(4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_watcher_loses_nothing() {
    let rig = Rig::new().await;
    let stream = watch(&rig.ingest, 0).await;
    // More than all buffers on the way hold.
    let requests: Vec<_> = (0..4_000).map(|n| crate::rig::submission(&format!("job-{n}"), 1)).collect();
    let mut answers = within(rig.ingest.units().submit_stream(tokio_stream::iter(requests)))
        .await
        .unwrap()
        .into_inner();
    while within(answers.message()).await.unwrap().is_some() {}
    let (state, n_events) = follow(stream, BTreeMap::new(), 0, 7_999).await;
    assert_eq!((state.len(), n_events), (4_000, 4_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_the_log_is_out_of_range() {
    let rig = Rig::new().await;
    for n in 0..5 {
        rig.ingest.apply(&claim("c", json!({"n": n.to_string()}))).await.unwrap();
    }
    let trimmed =
        || async { rig.store.trim_log(Duration::ZERO, 100).await.is_ok() && rig.store.head().await.unwrap().horizon == 5 };
    testkit::eventually(Duration::from_secs(10), trimmed).await;
    let status = within(watch(&rig.ingest, 2).await.message()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::OutOfRange, "EXPIRED"));
    let read = pb::ReadLogRequest {
        after_sequence: 2,
        ..Default::default()
    };
    assert_eq!(
        within(rig.ingest.log().read(read)).await.unwrap_err().code(),
        Code::OutOfRange
    );
    let mut followed = within(rig.ingest.log().follow(pb::FollowLogRequest {
        after_sequence: 2,
        kinds: vec![],
    }))
    .await
    .unwrap()
    .into_inner();
    assert_eq!(within(followed.message()).await.unwrap_err().code(), Code::OutOfRange);
    let (state, sequence) = list(&rig.ingest, 10).await;
    assert_eq!((state.len(), sequence), (1, 5), "a list is always possible");
    let mut stream = watch(&rig.ingest, sequence).await;
    rig.ingest.apply(&claim("c", json!({"n": "new"}))).await.unwrap();
    assert_eq!(within(stream.message()).await.unwrap().unwrap().sequence, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_read_and_followed_in_one_order_over_all_kinds() {
    let rig = Rig::new().await;
    let unit = rig.ingest.submit(crate::rig::submission("job", 2)).await.unwrap().unit_uid;
    let mut all = within(rig.ingest.log().follow(pb::FollowLogRequest::default()))
        .await
        .unwrap()
        .into_inner();
    rig.allocate(&unit, "node-a").await;
    rig.ingest.delete(&unit).await.unwrap();
    let head = within(rig.ingest.log().head(pb::HeadRequest {})).await.unwrap().into_inner();
    assert_eq!((head.sequence, head.horizon), (9, 0));
    for expected in 1..=9 {
        assert_eq!(within(all.message()).await.unwrap().unwrap().sequence, expected);
    }
    let read = pb::ReadLogRequest {
        kinds: vec!["units".into()],
        limit: 2,
        ..Default::default()
    };
    let read = within(rig.ingest.log().read(read)).await.unwrap().into_inner();
    assert_eq!((read.events.len(), read.sequence), (2, 6));
    let story = pb::ReadLogRequest {
        kinds: vec!["units".into()],
        namespace: "team".into(),
        name: unit,
        ..Default::default()
    };
    let story = within(rig.ingest.log().read(story)).await.unwrap().into_inner();
    let told: Vec<_> = story
        .events
        .iter()
        .map(|e| (e.operation.as_str(), e.writer.as_str(), e.cause.as_str()))
        .collect();
    let expected = [
        ("ADDED", "ingest-test", "submitted"),
        ("MODIFIED", "test", "allocated"),
        ("DELETED", "ingest-test", "deleted"),
    ];
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_kinds_and_tokens_are_told() {
    let rig = Rig::new().await;
    let list = |kind: &str, page_token: &str| {
        let mut objects = rig.ingest.objects();
        let request = pb::ListObjectsRequest {
            kind: kind.into(),
            page_token: page_token.into(),
            ..Default::default()
        };
        async move { within(objects.list(request)).await.unwrap_err() }
    };
    assert_eq!(fields(&list("pods", "").await), ["kind"]);
    assert_eq!(fields(&list("nodes", "x").await), ["page_token"]);
}
