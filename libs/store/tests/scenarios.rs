//! Faults that users of other systems met, as tests of their whole kind: readers and late commits (scenario 40), cancelled requests
//! and pooled connections (scenario 41).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use store::{Mutation, Op, Outcome, Store, StoreConfig, StoreError, Write, Writer, WriterConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn write(name: &str, uid: Uuid, op: Op, body: &str) -> Mutation {
    let write = Write {
        kind: "resourceclaims".into(),
        namespace: "team-a".into(),
        name: name.into(),
        uid,
        op,
        body: body.into(),
        queue: None,
        part_of: None,
        cause: None,
        trace: None,
    };
    Mutation {
        writes: vec![write],
        ..Mutation::default()
    }
}

fn open(url: &str, connections_max: u32, tasks: &mut JoinSet<()>) -> (Store, Writer) {
    let store = Store::connect(&StoreConfig {
        url: url.to_owned(),
        connections_max,
        application: "test".into(),
    })
    .unwrap();
    let writer = Writer::spawn(
        store.clone(),
        WriterConfig::new("test"),
        None,
        tasks,
        CancellationToken::new(),
    );
    (store, writer)
}

async fn won(writer: &Writer, mutation: Mutation) -> u64 {
    match writer.commit(mutation).await.unwrap() {
        Outcome::Won { sequences } => sequences[0],
        other => panic!("{other:?}"),
    }
}

/// A writer that is slow between its statements: everything a group commit does, held open.
async fn begin_update(url: &str, name: &str, body: &str) -> PgConnection {
    let mut connection = PgConnection::connect(url).await.unwrap();
    for sql in [
        "SET idle_in_transaction_session_timeout = '2s'".to_owned(),
        "BEGIN".to_owned(),
        "SELECT dray_writer_lock()".to_owned(),
        "UPDATE log_head SET seq = seq + 1".to_owned(),
        format!(
            "INSERT INTO events SELECT h.seq, o.kind, o.namespace, o.name, o.uid, 1, now(), '{body}' FROM objects o, log_head h WHERE o.name = '{name}'"
        ),
        format!("UPDATE objects o SET seq = h.seq, body = '{body}' FROM log_head h WHERE o.name = '{name}'"),
        "UPDATE kind_heads SET seq = h.seq FROM log_head h WHERE kind = 'resourceclaims'".to_owned(),
        "INSERT INTO commits SELECT seq, seq, 'slow', gen_random_uuid(), now(), '{}' FROM log_head".to_owned(),
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection
}

/// Everything that a watcher from `after` gets, until it has `n` events.
async fn watch(store: Store, after: u64, n: usize) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    let mut position = after;
    while seen.len() < n {
        let (events, upto) = store.events_after(&["resourceclaims"], position, 7).await.unwrap();
        seen.extend(events.into_iter().map(|e| (e.sequence, e.name.to_string())));
        position = upto;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    seen
}

#[tokio::test]
async fn a_reader_never_passes_an_event_that_commits_late() {
    for commits in [true, false] {
        let url = testkit::fresh_database().await.unwrap();
        let mut tasks = JoinSet::new();
        let (store, writer) = open(&url, 8, &mut tasks);
        let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
        won(&writer, write("first", first, Op::Create, "{}")).await;
        let start = won(&writer, write("second", second, Op::Create, "{}")).await;

        let mut slow = begin_update(&url, "first", "{\"a\":1}").await;
        let fast = tokio::spawn({
            let writer = writer.clone();
            async move { won(&writer, write("second", second, Op::Update { expected: None }, "{\"b\":1}")).await }
        });
        // A list while the slow one is open: its position must not hide what commits later.
        let page = store.list("resourceclaims", Some("team-a"), None, 10).await.unwrap();
        assert_eq!(page.sequence, start);
        let expected = if commits { 2 } else { 1 };
        let watchers: Vec<_> = [start, page.sequence]
            .map(|after| tokio::spawn(watch(store.clone(), after, expected)))
            .into();
        sqlx::raw_sql(if commits { "COMMIT" } else { "ROLLBACK" })
            .execute(&mut slow)
            .await
            .unwrap();
        let late = fast.await.unwrap();
        for watcher in watchers {
            let seen = watcher.await.unwrap();
            let names: Vec<&str> = seen.iter().map(|(_, name)| name.as_str()).collect();
            assert_eq!(names, if commits { vec!["first", "second"] } else { vec!["second"] });
            assert_eq!(seen.last().unwrap().0, late);
        }
        assert!(store.audit().await.unwrap().is_clean());
    }
}

#[tokio::test]
async fn a_writer_that_never_finishes_is_ended_and_the_others_go_on() {
    let url = testkit::fresh_database().await.unwrap();
    let mut tasks = JoinSet::new();
    let (store, writer) = open(&url, 8, &mut tasks);
    let uid = Uuid::now_v7();
    won(&writer, write("first", uid, Op::Create, "{}")).await;
    let mut stuck = begin_update(&url, "first", "{\"a\":1}").await;
    // The server ends it after its idle limit (ours is 10 s; this session's 2 s keep the test short).
    won(&writer, write("second", Uuid::now_v7(), Op::Create, "{}")).await;
    assert!(
        sqlx::raw_sql("COMMIT").execute(&mut stuck).await.is_err(),
        "its client gets an error"
    );
    assert_eq!(
        store
            .object("resourceclaims", "team-a", "first")
            .await
            .unwrap()
            .unwrap()
            .body
            .as_ref(),
        "{}"
    );
    assert!(store.audit().await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_writers_and_every_watcher_sees_all_in_order_per_object() {
    const WRITERS: usize = 8;
    const UPDATES: usize = 250;
    let url = testkit::fresh_database().await.unwrap();
    let mut tasks = JoinSet::new();
    let (store, _) = open(&url, 8, &mut tasks);
    let mut writers = JoinSet::new();
    for w in 0..WRITERS {
        // Each is a process of its own as far as the database can tell.
        let (_, writer) = open(&url, 2, &mut tasks);
        writers.spawn(async move {
            let (name, uid) = (format!("claim-{w}"), Uuid::now_v7());
            won(&writer, write(&name, uid, Op::Create, "0")).await;
            for i in 1..UPDATES {
                if i % 7 == w % 7 {
                    tokio::time::sleep(Duration::from_millis((i % 5) as u64)).await;
                }
                won(&writer, write(&name, uid, Op::Update { expected: None }, &i.to_string())).await;
            }
        });
    }
    let watchers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(watch(store.clone(), 0, WRITERS * UPDATES)))
        .collect();
    writers.join_all().await;
    for watcher in watchers {
        let seen = watcher.await.unwrap();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for ((sequence, name), expected) in seen.iter().zip(1..) {
            assert_eq!(*sequence, expected, "each once, in the log's order");
            *counts.entry(name).or_default() += 1;
        }
        assert!(counts.len() == WRITERS && counts.values().all(|n| *n == UPDATES));
    }
    let (events, _) = store.events_after(&[], 0, 5_000).await.unwrap();
    let mut last: HashMap<&str, usize> = HashMap::new();
    for event in &events {
        let value: usize = event.body.parse().unwrap();
        assert!(
            last.insert(&event.name, value).is_none_or(|before| value == before + 1),
            "{}",
            event.name
        );
    }
    assert!(store.audit().await.unwrap().is_clean());
}

/// A link to the database that takes 25 ms each way.
async fn slow_link(url: &str, tasks: &mut JoinSet<()>) -> String {
    let (head, rest) = url.split_once('@').unwrap();
    let (target, database) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = target.to_owned();
    tasks.spawn(async move {
        let mut links = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&target).await.unwrap();
            let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
            links.spawn(delay(client_in, server_out));
            links.spawn(delay(server_in, client_out));
        }
    });
    format!("{head}@127.0.0.1:{port}/{database}")
}

async fn delay(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(25)).await;
        if n == 0 || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_requests_leave_no_transaction_and_lose_nothing_acknowledged() {
    let url = testkit::fresh_database().await.unwrap();
    let mut tasks = JoinSet::new();
    let link = slow_link(&url, &mut tasks).await;
    let (store, writer) = open(&link, 1, &mut tasks);
    let (direct, _) = open(&url, 2, &mut tasks);

    let mut requests = JoinSet::new();
    for i in 0..160_u64 {
        let (store, writer) = (store.clone(), writer.clone());
        // Half of them go away after 0..60 ms: the future is dropped wherever it stands.
        let patience = if i % 2 == 0 {
            Duration::from_millis(i * 7 % 60)
        } else {
            Duration::from_secs(60)
        };
        requests.spawn(async move {
            let name = format!("claim-{i}");
            let request = async {
                store.object("resourceclaims", "team-a", &name).await?;
                let outcome = writer.commit(write(&name, Uuid::now_v7(), Op::Create, "{}")).await?;
                Ok::<_, StoreError>(matches!(outcome, Outcome::Won { .. }))
            };
            match tokio::time::timeout(patience, request).await {
                Ok(answer) => (name, Some(answer.unwrap())),
                Err(_) => (name, None),
            }
        });
    }
    let mut acknowledged = HashSet::new();
    let mut unanswered = 0;
    while let Some(done) = requests.join_next().await {
        let (name, answer) = done.unwrap();
        match answer {
            Some(won) => {
                assert!(won, "{name}");
                acknowledged.insert(name);
            }
            None => unanswered += 1,
        }
        let idle: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '1 second'",
        )
        .fetch_one(&mut PgConnection::connect(&url).await.unwrap())
        .await
        .unwrap();
        assert_eq!(idle, 0);
    }
    assert!(
        unanswered > 40 && acknowledged.len() >= 80,
        "{unanswered} cancelled, {} acknowledged",
        acknowledged.len()
    );
    for i in 0..20 {
        won(&writer, write(&format!("plain-{i}"), Uuid::now_v7(), Op::Create, "{}")).await;
        store.object("resourceclaims", "team-a", "claim-1").await.unwrap().unwrap();
    }
    let (all, _) = direct.list_all("resourceclaims").await.unwrap();
    let names: HashSet<String> = all.iter().map(|o| o.name.to_string()).collect();
    assert!(
        acknowledged.iter().all(|name| names.contains(name)),
        "nothing acknowledged is missing"
    );
    assert!(
        direct.audit().await.unwrap().is_clean(),
        "the others are there completely or not at all"
    );
}
