//! The commit protocol against a real Postgres: outcomes, the log's order, repeats, fences, and what a list promises.

use std::sync::Arc;
use std::time::Duration;

use store::{
    Committed, Fence, Mutation, Op, Operation, Outcome, PoolCheck, PoolPut, Release, ReleaseMode, Store, StoreConfig, Submission,
    Take, UnitQueue, Write, Writer, WriterConfig,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

struct Bench {
    store: Store,
    writer: Writer,
    announced: mpsc::Receiver<Arc<Committed>>,
    _tasks: JoinSet<()>,
}

async fn bench() -> anyhow::Result<Bench> {
    let url = testkit::fresh_database().await?;
    let store = Store::connect(&StoreConfig::new(url, "test"))?;
    let (announce, announced) = mpsc::channel(10_000);
    let mut tasks = JoinSet::new();
    let writer = Writer::spawn(
        store.clone(),
        WriterConfig::new("test"),
        Some(announce),
        &mut tasks,
        CancellationToken::new(),
    );
    Ok(Bench {
        store,
        writer,
        announced,
        _tasks: tasks,
    })
}

fn write(kind: &'static str, name: &str, uid: Uuid, op: Op, body: &str) -> Write {
    Write {
        kind: kind.into(),
        namespace: "team".into(),
        name: name.into(),
        uid,
        op,
        body: body.into(),
        queue: None,
        part_of: None,
        cause: None,
        trace: None,
    }
}

fn one(write: Write) -> Mutation {
    Mutation {
        writes: vec![write],
        ..Mutation::default()
    }
}

fn sequences(outcome: Outcome) -> Vec<u64> {
    match outcome {
        Outcome::Won { sequences } => sequences,
        other => panic!("expected a win, got {other:?}"),
    }
}

#[tokio::test]
async fn an_object_lives_through_create_update_delete() -> anyhow::Result<()> {
    let b = bench().await?;
    let uid = Uuid::now_v7();
    let created = sequences(
        b.writer
            .commit(one(write("resourceclaims", "a", uid, Op::Create, "{\"v\":1}")))
            .await?,
    )[0];
    let again = b
        .writer
        .commit(one(write("resourceclaims", "a", Uuid::now_v7(), Op::Create, "{}")))
        .await?;
    assert_eq!(again, Outcome::Exists { name: "a".into() });
    let stale = b
        .writer
        .commit(one(write(
            "resourceclaims",
            "a",
            uid,
            Op::Update {
                expected: Some(created + 7),
            },
            "{}",
        )))
        .await?;
    assert_eq!(
        stale,
        Outcome::Conflict {
            name: "a".into(),
            found: created
        }
    );
    let stranger = b
        .writer
        .commit(one(write(
            "resourceclaims",
            "a",
            Uuid::now_v7(),
            Op::Update { expected: None },
            "{}",
        )))
        .await?;
    assert_eq!(stranger, Outcome::Gone { name: "a".into() });

    let updated = sequences(
        b.writer
            .commit(one(write(
                "resourceclaims",
                "a",
                uid,
                Op::Update { expected: Some(created) },
                "{\"v\":2}",
            )))
            .await?,
    )[0];
    let stored = b.store.object("resourceclaims", "team", "a").await?.expect("it exists");
    assert_eq!(
        (stored.sequence, stored.created_sequence, stored.body.as_ref()),
        (updated, created, "{\"v\":2}")
    );
    sequences(
        b.writer
            .commit(one(write(
                "resourceclaims",
                "a",
                uid,
                Op::Delete { expected: None },
                "{\"v\":2}",
            )))
            .await?,
    );
    assert_eq!(b.store.object("resourceclaims", "team", "a").await?, None);

    let story = b.store.story("resourceclaims", "team", "a", 0, 100).await?;
    let told: Vec<_> = story.iter().map(|e| e.operation).collect();
    assert_eq!(told, [Operation::Added, Operation::Modified, Operation::Deleted]);
    assert_eq!(story[0].writer.as_deref(), Some("test"));
    let report = b.store.audit().await?;
    assert!(report.is_clean(), "{:?}", report.violations);
    Ok(())
}

#[tokio::test]
async fn concurrent_writers_get_one_gapless_order_and_losers_lose_alone() -> anyhow::Result<()> {
    let mut b = bench().await?;
    let mut writers = JoinSet::new();
    for w in 0..8 {
        let writer = b.writer.clone();
        writers.spawn(async move {
            let mut lost = 0;
            for i in 0..200 {
                // Every tenth name is fought over by all writers.
                let name = if i % 10 == 0 {
                    format!("shared-{i}")
                } else {
                    format!("own-{w}-{i}")
                };
                match writer
                    .commit(one(write("resourceclaims", &name, Uuid::now_v7(), Op::Create, "{}")))
                    .await
                {
                    Ok(Outcome::Won { .. }) => {}
                    Ok(Outcome::Exists { .. }) => lost += 1,
                    other => panic!("{other:?}"),
                }
            }
            lost
        });
    }
    let lost: usize = writers.join_all().await.into_iter().sum();
    assert_eq!(lost, 20 * 7, "each shared name has one winner");

    let (events, upto) = b.store.events_after(&[], 0, 5_000).await?;
    assert_eq!(events.len(), 8 * 200 - lost);
    assert!(
        events.iter().zip(1..).all(|(event, sequence)| event.sequence == sequence),
        "no gap"
    );
    assert_eq!(upto, b.store.head().await?.sequence);

    // What was announced is the log, with nothing between one commit's kind and the next.
    let mut last = 0;
    let mut announced = Vec::new();
    while let Ok(commit) = b.announced.try_recv() {
        announced.extend(
            commit
                .kinds
                .iter()
                .flat_map(|k| k.events.iter().map(|e| (k.prev, e.sequence))),
        );
    }
    announced.sort_by_key(|(_, sequence)| *sequence);
    for (prev, sequence) in announced {
        assert!(prev <= last, "kind's prev {prev} skips {last}");
        last = sequence;
    }
    assert_eq!(last, upto);
    Ok(())
}

fn submission(client: &str, digest: u8, unit: Uuid) -> Mutation {
    let mut unit_write = write(
        "units",
        &unit.to_string(),
        unit,
        Op::Create,
        &format!("{{\"spec\":{{\"clientId\":\"{client}\"}},\"status\":{{\"phase\":\"Pending\"}}}}"),
    );
    unit_write.queue = Some(UnitQueue {
        home_shard: 3,
        priority: 0,
        pending: true,
    });
    Mutation {
        writes: vec![unit_write],
        submission: Some(Submission {
            namespace: "team".into(),
            client_id: client.into(),
            digest: vec![digest],
            answer: unit.to_string().into(),
            unit,
        }),
        ..Mutation::default()
    }
}

#[tokio::test]
async fn a_repeated_submission_gets_the_first_answer_at_any_time() -> anyhow::Result<()> {
    let b = bench().await?;
    // In the same batch, from many callers.
    let attempts: Vec<_> = (0..20).map(|_| submission("job-1", 1, Uuid::now_v7())).collect();
    let outcomes = b.writer.commit_all(attempts).await;
    let mut won = 0;
    let mut answers = std::collections::HashSet::new();
    for outcome in outcomes {
        match outcome? {
            Outcome::Won { .. } => won += 1,
            Outcome::Repeated { answer, .. } => {
                answers.insert(answer);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((won, answers.len()), (1, 1));
    let answer = answers.into_iter().next().expect("one answer");
    let unit: Uuid = answer.parse()?;

    assert_eq!(
        b.writer.commit(submission("job-1", 2, Uuid::now_v7())).await?,
        Outcome::IdReused
    );
    sequences(
        b.writer
            .commit(one(write(
                "units",
                &unit.to_string(),
                unit,
                Op::Delete { expected: None },
                "{}",
            )))
            .await?,
    );
    let after_deletion = b.writer.commit(submission("job-1", 1, Uuid::now_v7())).await?;
    assert!(matches!(after_deletion, Outcome::Repeated { answer: a, .. } if a == answer));

    // A record lives as long as its unit, whatever its age.
    let kept = sequences(b.writer.commit(submission("job-2", 1, Uuid::now_v7())).await?);
    assert_eq!(
        b.store.trim_records(Duration::ZERO, 100).await?,
        1,
        "only the deleted unit's record goes"
    );
    assert!(
        matches!(b.writer.commit(submission("job-2", 1, Uuid::now_v7())).await?, Outcome::Repeated { sequence, .. } if sequence == kept[0])
    );
    Ok(())
}

fn take(claim: Uuid, device: &str) -> Take {
    Take {
        write: 0,
        driver: "gpu.example".into(),
        pool: "node-a".into(),
        device: device.into(),
        claim,
    }
}

#[tokio::test]
async fn a_device_is_given_once_and_only_under_the_current_epoch_and_inventory() -> anyhow::Result<()> {
    let b = bench().await?;
    let slice = Uuid::now_v7();
    let mut publish = one(write(
        "resourceslices",
        "s",
        slice,
        Op::Create,
        "{\"spec\":{\"driver\":\"gpu.example\",\"pool\":{\"name\":\"node-a\"}}}",
    ));
    publish.pool_puts.push(PoolPut {
        write: 0,
        driver: "gpu.example".into(),
        pool: "node-a".into(),
        shard: 5,
        node: Some("node-a".into()),
        slices: 1,
    });
    let inventory = sequences(b.writer.commit(publish).await?)[0];
    let pool = b.store.pool("gpu.example", "node-a").await?.expect("the pool");
    assert_eq!((pool.inventory, pool.shard), (inventory, 5));

    b.store.beat("allocator", "one", Duration::from_secs(60)).await?;
    let taken = b.store.take_shards("one", &[5]).await?;
    assert_eq!(taken.len(), 1);
    let epoch = taken[0].1;
    assert!(b.store.take_shards("two", &[5]).await?.is_empty(), "the owner is alive");

    let allocate = |claim: Uuid, name: &str, device: &str, epoch: u64, inventory: u64| {
        let body = format!(
            "{{\"status\":{{\"allocation\":{{\"devices\":{{\"results\":[{{\"request\":\"g\",\"driver\":\"gpu.example\",\"pool\":\"node-a\",\"device\":\"{device}\"}}]}}}}}}}}"
        );
        let mut mutation = one(write("resourceclaims", name, claim, Op::Create, &body));
        mutation.takes.push(take(claim, device));
        mutation.fences.push(Fence { shard: 5, epoch });
        mutation.pool_checks.push(PoolCheck {
            driver: "gpu.example".into(),
            pool: "node-a".into(),
            inventory,
        });
        mutation
    };
    let claim = Uuid::now_v7();
    let allocated = sequences(b.writer.commit(allocate(claim, "c1", "gpu-0", epoch, inventory)).await?)[0];
    let second = b
        .writer
        .commit(allocate(Uuid::now_v7(), "c2", "gpu-0", epoch, inventory))
        .await?;
    assert_eq!(
        second,
        Outcome::Taken {
            device: "gpu.example/node-a/gpu-0".into()
        }
    );
    let stale_pool = b
        .writer
        .commit(allocate(Uuid::now_v7(), "c3", "gpu-1", epoch, inventory + 1))
        .await?;
    assert_eq!(
        stale_pool,
        Outcome::PoolChanged {
            pool: "gpu.example/node-a".into()
        }
    );
    let stale_epoch = b
        .writer
        .commit(allocate(Uuid::now_v7(), "c4", "gpu-1", epoch - 1, inventory))
        .await?;
    assert_eq!(stale_epoch, Outcome::Fenced);
    // Two plans for one device in one batch: the later one waits for the next batch and loses there.
    let both = b
        .writer
        .commit_all(vec![
            allocate(Uuid::now_v7(), "c5", "gpu-2", epoch, inventory),
            allocate(Uuid::now_v7(), "c6", "gpu-2", epoch, inventory),
        ])
        .await;
    assert!(
        matches!(both[0], Ok(Outcome::Won { .. })) && matches!(both[1], Ok(Outcome::Taken { .. })),
        "{both:?}"
    );

    let held = b.store.holdings().await?;
    assert_eq!(held.len(), 2);
    let first = held.iter().find(|h| h.claim_uid == claim).expect("held");
    assert_eq!(first.sequence, allocated, "a holding carries its allocation's sequence");
    assert_eq!(b.store.audit().await?.violations, []);

    // Silence loses the lease; the next owner's epoch fences the first.
    b.store.beat("allocator", "one", Duration::ZERO).await?;
    b.store.beat("allocator", "two", Duration::from_secs(60)).await?;
    assert_eq!(b.store.take_shards("two", &[5]).await?, [(5, epoch + 1)]);
    assert_eq!(
        b.writer
            .commit(allocate(Uuid::now_v7(), "c7", "gpu-3", epoch, inventory))
            .await?,
        Outcome::Fenced
    );
    Ok(())
}

#[tokio::test]
async fn an_agent_keeps_devices_from_being_freed_behind_its_back() -> anyhow::Result<()> {
    let b = bench().await?;
    let claim = Uuid::now_v7();
    let mut hold = one(write("resourceclaims", "c", claim, Op::Create, "{}"));
    hold.takes.push(take(claim, "gpu-0"));
    sequences(b.writer.commit(hold).await?);
    b.store.register_agents("agent", "e1", &["node-a".to_owned()]).await?;

    let free = |mode| Mutation {
        writes: vec![write("resourceclaims", "c", claim, Op::Delete { expected: None }, "{}")],
        releases: vec![Release { claim, mode }],
        without_agent: vec!["node-a".into()],
        ..Mutation::default()
    };
    assert_eq!(
        b.writer.commit(free(ReleaseMode::Free)).await?,
        Outcome::AgentPresent { node: "node-a".into() }
    );
    let drain = Mutation {
        without_agent: vec![],
        ..free(ReleaseMode::Drain)
    };
    sequences(b.writer.commit(drain).await?);
    let held = b.store.holdings().await?;
    assert!(
        held.len() == 1 && held[0].draining,
        "the device is not free before the agent's word"
    );
    assert_eq!(b.store.audit().await?.violations, [], "draining devices are no fault");
    Ok(())
}

#[tokio::test]
async fn a_batch_that_was_committed_is_found_not_repeated() -> anyhow::Result<()> {
    // Two writers with the same statement timeout fight while the server is restarted under them.
    let (mut postgres, url) = testkit::own_postgres().await?;
    let store = Store::connect(&StoreConfig::new(url, "test"))?;
    let mut tasks = JoinSet::new();
    let writer = Writer::spawn(
        store.clone(),
        WriterConfig::new("test"),
        None,
        &mut tasks,
        CancellationToken::new(),
    );
    let mut load = JoinSet::new();
    for w in 0..4 {
        let writer = writer.clone();
        load.spawn(async move {
            let mut acknowledged = Vec::new();
            for i in 0..300 {
                let name = format!("c-{w}-{i}");
                let outcome = writer
                    .commit(one(write("resourceclaims", &name, Uuid::now_v7(), Op::Create, "{}")))
                    .await;
                assert!(matches!(outcome, Ok(Outcome::Won { .. })), "{name}: {outcome:?}");
                acknowledged.push(name);
            }
            acknowledged
        });
    }
    for _ in 0..2 {
        testkit::eventually(Duration::from_secs(30), || async {
            store.head().await.is_ok_and(|h| h.sequence > 20)
        })
        .await;
        postgres.kill9().await;
        postgres.restart().await?;
    }
    let acknowledged: Vec<String> = load.join_all().await.into_iter().flatten().collect();
    let (all, _) = store.list_all("resourceclaims").await?;
    assert_eq!(all.len(), acknowledged.len(), "nothing is lost, nothing is there twice");
    let report = store.audit().await?;
    assert!(report.is_clean(), "{:?}", report.violations);
    Ok(())
}

#[tokio::test]
async fn the_log_is_trimmed_but_for_each_live_objects_last_event() -> anyhow::Result<()> {
    let b = bench().await?;
    let kept = Uuid::now_v7();
    let first = sequences(b.writer.commit(one(write("nodes", "kept", kept, Op::Create, "{}"))).await?)[0];
    let second = sequences(
        b.writer
            .commit(one(write(
                "nodes",
                "kept",
                kept,
                Op::Update { expected: Some(first) },
                "{\"a\":1}",
            )))
            .await?,
    )[0];
    let gone = Uuid::now_v7();
    sequences(b.writer.commit(one(write("nodes", "gone", gone, Op::Create, "{}"))).await?);
    sequences(
        b.writer
            .commit(one(write("nodes", "gone", gone, Op::Delete { expected: None }, "{}")))
            .await?,
    );
    assert_eq!(b.store.trim_log(Duration::ZERO, 1_000).await?, 3);
    let (events, _) = b.store.events_after(&[], 0, 100).await?;
    assert_eq!(events.iter().map(|e| e.sequence).collect::<Vec<_>>(), [second]);
    assert_eq!(b.store.head().await?.horizon, 4);
    assert_eq!(b.store.audit().await?.violations, []);
    Ok(())
}
