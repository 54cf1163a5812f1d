//! Everything that needs a real nats-server: delivery, questions, the stream's return after a wipe, outages.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::time::Duration;

use bus::messages::{
    ClaimReport, ClaimState, EventBatch, EventRecord, NodeReports, ReportAnswer, ReportKey, Summary, TryOutcome, TryRequest,
    TryResponse, Work, WorkUnit, try_outcome,
};
use bus::subjects::{self, Subject};
use bus::{Bus, BusConfig, BusError};
use embedded::{Nats, NatsConfig};

const DEADLINE: Duration = Duration::from_secs(10);

struct Server {
    nats: Nats,
    _dir: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let nats = Nats::start(NatsConfig::new(dir.path().join("nats"))).await.unwrap();
        Self { nats, _dir: dir }
    }

    async fn bus(&self) -> Bus {
        let bus = Bus::connect(BusConfig::new(self.nats.url()), "test").await.unwrap();
        connected(&bus, true).await;
        bus
    }
}

async fn connected(bus: &Bus, wanted: bool) {
    let mut connected = bus.connected();
    tokio::time::timeout(DEADLINE, connected.wait_for(|is| *is == wanted))
        .await
        .unwrap()
        .unwrap();
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.unwrap()
}

async fn eventually<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    let poll = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(poll).await;
}

fn batch(sequence: u64) -> EventBatch {
    let event = EventRecord {
        sequence,
        name: "u".into(),
        body: "{}".into(),
        ..EventRecord::default()
    };
    let (first, last, prev) = (sequence, sequence, sequence - 1);
    EventBatch {
        kind: "units".into(),
        first,
        last,
        prev,
        events: vec![event],
        ..EventBatch::default()
    }
}

/// Messages in DRAY_EVENTS, asked over a connection of our own.
async fn stored(server: &Server) -> Option<u64> {
    let client = async_nats::connect(server.nats.url()).await.ok()?;
    let stream = async_nats::jetstream::new(client).get_stream(bus::EVENTS_STREAM).await.ok()?;
    Some(stream.cached_info().state.messages)
}

#[tokio::test]
async fn events_reach_subscribers_in_order_with_their_trace_and_are_kept_in_the_stream() {
    let server = Server::start().await;
    let (writer, reader) = (server.bus().await, server.bus().await);
    eventually(|| async { stored(&server).await.is_some() }).await;
    let mut events = reader.subscribe(&subjects::all_events()).await.unwrap();
    reader.flush().await.unwrap();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for sequence in 1..=500 {
        writer.publish_events(&batch(sequence), Some(trace));
    }
    for sequence in 1..=500 {
        let received = within(events.next()).await.unwrap();
        assert_eq!(received.message, batch(sequence));
        assert_eq!(received.subject, Subject::Event { kind: "units".into() });
        assert_eq!(received.traceparent.as_deref(), Some(trace));
    }
    eventually(|| async { stored(&server).await == Some(500) }).await;
    writer.close().await;
    let stats = writer.stats();
    assert_eq!(
        (stats.events_published, stats.events_dropped, stats.events_unacknowledged),
        (500, 0, 0)
    );
}

#[tokio::test]
async fn the_stream_comes_back_after_a_wipe_and_delivery_goes_on() {
    let mut server = Server::start().await;
    let bus = server.bus().await;
    let mut events = bus.subscribe(&subjects::event("units")).await.unwrap();
    eventually(|| async { stored(&server).await.is_some() }).await;
    server.nats.wipe().await.unwrap();
    eventually(|| async { stored(&server).await.is_some() }).await;
    eventually(|| async { bus.flush().await.is_ok() }).await;
    bus.publish_events(&batch(7), None);
    assert_eq!(within(events.next()).await.unwrap().message, batch(7));
    assert!(bus.stats().connects >= 2);
}

#[tokio::test]
async fn a_deleted_stream_is_made_again_by_the_next_event() {
    let server = Server::start().await;
    let bus = server.bus().await;
    eventually(|| async { stored(&server).await.is_some() }).await;
    let client = async_nats::connect(server.nats.url()).await.unwrap();
    async_nats::jetstream::new(client)
        .delete_stream(bus::EVENTS_STREAM)
        .await
        .unwrap();
    bus.publish_events(&batch(1), None);
    eventually(|| async { stored(&server).await.is_some() }).await;
    assert_eq!(bus.stats().events_unacknowledged, 1);
}

#[tokio::test]
async fn without_a_server_nothing_blocks_and_losses_are_counted() {
    let mut server = Server::start().await;
    let bus = server.bus().await;
    server.nats.kill9().await;
    connected(&bus, false).await;
    let started = std::time::Instant::now();
    for sequence in 1..=10_000 {
        bus.publish_events(&batch(sequence), None);
    }
    assert!(started.elapsed() < DEADLINE);
    assert!(bus.stats().events_dropped > 0, "{:?}", bus.stats());
    let asked = bus
        .ask(
            &subjects::shard_try(1),
            &TryRequest::default(),
            Duration::from_millis(100),
            None,
        )
        .await;
    assert!(
        matches!(asked, Err(BusError::Timeout { .. } | BusError::Unavailable { .. })),
        "{asked:?}"
    );
    server.nats.restart().await.unwrap();
    connected(&bus, true).await;
    eventually(|| async { bus.flush().await.is_ok() }).await;
}

#[tokio::test]
async fn a_bus_made_before_its_server_connects_when_the_server_comes() {
    let mut server = Server::start().await;
    server.nats.stop().await.unwrap();
    let bus = Bus::connect(BusConfig::new(server.nats.url()), "early").await.unwrap();
    assert!(!*bus.connected().borrow());
    let mut summaries = bus.subscribe(&subjects::all_summaries()).await.unwrap();
    server.nats.restart().await.unwrap();
    connected(&bus, true).await;
    bus.flush().await.unwrap();
    let summary = Summary {
        shard: 3,
        position: 9,
        ..Summary::default()
    };
    bus.publish(&subjects::summary(3), &summary, None).await.unwrap();
    assert_eq!(within(summaries.next()).await.unwrap().message, summary);
}

#[tokio::test]
async fn a_wrong_url_is_an_error() {
    let refused = Bus::connect(BusConfig::new("http://not nats"), "test").await;
    assert!(matches!(refused, Err(BusError::Options { .. })), "{refused:?}");
}

#[tokio::test]
async fn an_inbox_follows_the_shards_it_is_told() {
    let server = Server::start().await;
    let bus = server.bus().await;
    let mut inbox = bus.inbox::<Work>();
    let unit = |shard: u16| WorkUnit {
        unit_uid: format!("u{shard}"),
        ..WorkUnit::default()
    };
    let listen = |shards: std::ops::Range<u16>| shards.map(subjects::work).collect::<Vec<_>>();

    inbox.listen_to(&listen(0..3)).await.unwrap();
    inbox.listen_to(&listen(1..4)).await.unwrap();
    bus.flush().await.unwrap();
    for shard in 0..5 {
        bus.publish_work(shard, vec![unit(shard)]).await.unwrap();
    }
    let mut got = BTreeSet::new();
    for _ in 1..4 {
        got.insert(within(inbox.next()).await.message.units[0].unit_uid.clone());
    }
    assert_eq!(got, BTreeSet::from(["u1".to_owned(), "u2".to_owned(), "u3".to_owned()]));
    inbox.listen_to(&[]).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), inbox.next()).await.is_err());
}

#[tokio::test]
async fn a_question_is_answered_by_one_member_of_the_group() {
    let server = Server::start().await;
    let (asker, first, second) = (server.bus().await, server.bus().await, server.bus().await);
    let mut answered = tokio::task::JoinSet::new();
    for bus in [first.clone(), second.clone()] {
        let mut requests = bus.requests(&subjects::all_agents(), Some("controllers")).await.unwrap();
        bus.flush().await.unwrap();
        answered.spawn(async move {
            let mut count = 0;
            while let Some(request) = requests.next().await {
                let reports: &NodeReports = &request.message;
                assert_eq!(
                    request.subject,
                    Subject::Agent {
                        agent_id: reports.agent_id.clone()
                    }
                );
                let key = |report: &ClaimReport| ReportKey {
                    claim_uid: report.claim_uid.clone(),
                    allocation_sequence: report.allocation_sequence,
                };
                let accepted = reports.reports.iter().map(key).collect();
                request.answer(&ReportAnswer { accepted }).await.unwrap();
                count += 1;
            }
            count
        });
    }
    for sequence in 0..20 {
        let report = ClaimReport {
            node: "node.example.com".into(),
            claim_uid: "c".into(),
            allocation_sequence: sequence,
            state: ClaimState::Prepared.into(),
            ..ClaimReport::default()
        };
        let reports = NodeReports {
            agent_id: "agent.1".into(),
            reports: vec![report],
        };
        let answer = asker
            .ask(&subjects::agent("agent.1"), &reports, DEADLINE, None)
            .await
            .unwrap();
        assert_eq!(
            answer.accepted,
            [ReportKey {
                claim_uid: "c".into(),
                allocation_sequence: sequence
            }]
        );
    }
    first.close().await;
    second.close().await;
    assert_eq!(answered.join_all().await.into_iter().sum::<i32>(), 20);
}

#[tokio::test]
async fn questions_to_nobody_and_to_the_silent_end_in_different_errors() {
    let server = Server::start().await;
    let bus = server.bus().await;
    let ask = |timeout: Duration| {
        let bus = bus.clone();
        async move { bus.ask(&subjects::shard_try(7), &TryRequest::default(), timeout, None).await }
    };
    let nobody = ask(DEADLINE).await;
    assert!(matches!(nobody, Err(BusError::NobodyThere { .. })), "{nobody:?}");

    let mut requests = bus.requests(&subjects::shard_try(7), None).await.unwrap();
    bus.flush().await.unwrap();
    let silent = ask(Duration::from_millis(50)).await;
    assert!(matches!(silent, Err(BusError::Timeout { .. })), "{silent:?}");

    // A late answer to the first question must not be taken for the answer to the second.
    let first = within(requests.next()).await.unwrap();
    let second = tokio::spawn(ask(DEADLINE));
    let question = within(requests.next()).await.unwrap();
    let response = |uid: &str| {
        let busy = try_outcome::Result::Busy(try_outcome::Busy::default());
        TryResponse {
            outcomes: vec![TryOutcome {
                unit_uid: uid.into(),
                result: Some(busy),
            }],
        }
    };
    first.answer(&response("late")).await.unwrap();
    question.answer(&response("right")).await.unwrap();
    assert_eq!(within(second).await.unwrap().unwrap(), response("right"));
}

#[tokio::test]
async fn unreadable_messages_are_counted_and_left_out() {
    let server = Server::start().await;
    let bus = server.bus().await;
    let mut events = bus.subscribe(&subjects::all_events()).await.unwrap();
    bus.flush().await.unwrap();
    let client = async_nats::connect(server.nats.url()).await.unwrap();
    client
        .publish("dray.event.units", "\u{0}\u{1} not protobuf".into())
        .await
        .unwrap();
    client.publish("dray.event.units.more", "".into()).await.unwrap();
    // The server takes a connection's messages in order, so the echo comes after both.
    let mut echoes = client.subscribe("echo").await.unwrap();
    client.publish("echo", "".into()).await.unwrap();
    within(futures::StreamExt::next(&mut echoes)).await.unwrap();
    bus.publish_events(&batch(1), None);
    assert_eq!(within(events.next()).await.unwrap().message, batch(1));
    assert_eq!(bus.stats().unreadable, 2);
}

#[tokio::test]
async fn a_message_above_the_server_s_limit_is_refused_and_events_shrink_to_their_range() {
    let server = Server::start().await;
    let bus = server.bus().await;
    let mut events = bus.subscribe(&subjects::all_events()).await.unwrap();
    bus.flush().await.unwrap();
    let mut large = batch(5);
    large.events[0].body = "x".repeat(bus.max_payload());
    bus.publish_events(&large, None);
    let received = within(events.next()).await.unwrap().message;
    assert_eq!((received.range_only, received.first, received.events.len()), (true, 5, 0));

    let unit = WorkUnit {
        unit_body: "x".repeat(bus.max_payload()),
        ..WorkUnit::default()
    };
    let refused = bus.publish_work(1, vec![unit]).await;
    assert!(matches!(refused, Err(BusError::TooLarge { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_reader_that_is_too_slow_loses_messages_and_it_is_counted() {
    let server = Server::start().await;
    let config = BusConfig {
        subscription_queue_max: 10,
        ..BusConfig::new(server.nats.url())
    };
    let (reader, writer) = (Bus::connect(config, "slow").await.unwrap(), server.bus().await);
    connected(&reader, true).await;
    let mut events = reader.subscribe(&subjects::all_events()).await.unwrap();
    reader.flush().await.unwrap();
    for sequence in 1..=200 {
        writer.publish_events(&batch(sequence), None);
    }
    eventually(|| async { reader.stats().slow_consumers > 0 }).await;
    assert_eq!(within(events.next()).await.unwrap().message, batch(1));
}
