//! Yardsticks: what the same database and the same bus can do when nobody decides anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use embedded::Nats;
use store::{Mutation, Op, Outcome, Store, StoreConfig, Submission, Take, UnitQueue, Write, Writer, WriterConfig};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::machine::Database;
use crate::report::median;

/// What bare commits reach, in claims per second.
#[derive(Clone, Copy)]
pub(crate) struct Floor {
    /// Submission and allocation: what a burst writes.
    pub(crate) claims_per_s: f64,
    /// Deletion too: what the steady phase writes per claim.
    pub(crate) with_deletion_per_s: f64,
}

/// Claims per second of bare commits: `n` submissions (claim, unit, record), then their `n` allocations (claim, unit, holding), with the
/// statement, batch size and connections of the services. Only the commits are timed; the mutations are made before.
pub(crate) async fn claims_per_s(database: &Database, n: usize) -> anyhow::Result<Floor> {
    let mut rates = Vec::new();
    let mut with_deletion = Vec::new();
    for round in 0..3 {
        let url = database.fresh(&format!("floor_{round}")).await?;
        let store = Store::connect(&StoreConfig::new(url, "floor"))?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let writer = Writer::spawn(
            store.clone(),
            WriterConfig {
                queue_max: 2 * n,
                ..WriterConfig::new("floor")
            },
            None,
            &mut tasks,
            stop.clone(),
        );
        // Connections and plans are warm in the services too.
        writer.commit_all((0..64).map(|_| claim_and_unit("warm").0).collect()).await;
        let (submissions, ids): (Vec<_>, Vec<_>) = (0..n).map(|i| claim_and_unit(&format!("job-{i}"))).unzip();
        let began = Instant::now();
        let outcomes = writer.commit_all(submissions).await;
        let submitting = began.elapsed();
        let mut allocations = Vec::with_capacity(n);
        let mut deletions = Vec::with_capacity(n);
        for (i, (outcome, (claim, unit))) in outcomes.into_iter().zip(ids).enumerate() {
            let Outcome::Won { sequences } = outcome? else {
                anyhow::bail!("a bare submission lost")
            };
            deletions.push(deletion(claim, unit));
            allocations.push(allocation(i, claim, unit, &sequences));
        }
        let began = Instant::now();
        for outcome in writer.commit_all(allocations).await {
            anyhow::ensure!(matches!(outcome?, Outcome::Won { .. }), "a bare allocation lost");
        }
        let allocating = began.elapsed();
        let began = Instant::now();
        for outcome in writer.commit_all(deletions).await {
            anyhow::ensure!(matches!(outcome?, Outcome::Won { .. }), "a bare deletion lost");
        }
        let deleting = began.elapsed();
        rates.push(n as f64 / (submitting + allocating).as_secs_f64());
        with_deletion.push(n as f64 / (submitting + allocating + deleting).as_secs_f64());
        stop.cancel();
        drop(writer);
        while tasks.join_next().await.is_some() {}
        store.close().await;
    }
    Ok(Floor {
        claims_per_s: median(rates),
        with_deletion_per_s: median(with_deletion),
    })
}

const SPEC: &str = "\"spec\":{\"devices\":{\"requests\":[{\"name\":\"gpu\",\"exactly\":{\"deviceClassName\":\"gpu\",\"allocationMode\":\"ExactCount\",\"count\":1}}]}}";

fn claim_body(claim: Uuid, unit: Uuid, status: &str) -> Arc<str> {
    format!("{{\"kind\":\"ResourceClaim\",\"apiVersion\":\"resource.k8s.io/v1\",\"metadata\":{{\"name\":\"{unit}-0\",\"namespace\":\"bench\",\"uid\":\"{claim}\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"annotations\":{{\"dray.v1/unit\":\"{unit}\"}}}},{SPEC},\"status\":{status}}}").into()
}

fn unit_body(unit: Uuid, claim: Uuid, client: &str, status: &str) -> Arc<str> {
    format!("{{\"kind\":\"Unit\",\"apiVersion\":\"dray.v1\",\"metadata\":{{\"name\":\"{unit}\",\"namespace\":\"bench\",\"uid\":\"{unit}\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\"}},\"spec\":{{\"clientId\":\"{client}\",\"priority\":0,\"homeShard\":7,\"claims\":[{{\"name\":\"{unit}-0\",\"uid\":\"{claim}\"}}]}},\"status\":{status}}}").into()
}

fn write(kind: &'static str, name: String, uid: Uuid, op: Op, body: Arc<str>, queue: Option<UnitQueue>) -> Write {
    Write {
        kind: kind.into(),
        namespace: "bench".into(),
        name: name.into(),
        uid,
        op,
        body,
        queue,
        part_of: None,
        cause: Some("submitted".into()),
        trace: None,
    }
}

fn claim_and_unit(client: &str) -> (Mutation, (Uuid, Uuid)) {
    let (claim, unit) = (Uuid::now_v7(), Uuid::now_v7());
    let queue = UnitQueue {
        home_shard: 7,
        priority: 0,
        pending: true,
    };
    let mutation = Mutation {
        writes: vec![
            write(
                "resourceclaims",
                format!("{unit}-0"),
                claim,
                Op::Create,
                claim_body(claim, unit, "{}"),
                None,
            ),
            write(
                "units",
                unit.to_string(),
                unit,
                Op::Create,
                unit_body(unit, claim, client, "{\"phase\":\"Pending\"}"),
                Some(queue),
            ),
        ],
        submission: (client != "warm").then(|| Submission {
            namespace: "bench".into(),
            client_id: client.into(),
            digest: vec![7; 32],
            answer: format!("{{\"unitUid\":\"{unit}\",\"claimUids\":[\"{claim}\"],\"claimNames\":[\"{unit}-0\"]}}").into(),
            unit,
        }),
        ..Mutation::default()
    };
    (mutation, (claim, unit))
}

fn allocation(i: usize, claim: Uuid, unit: Uuid, sequences: &[u64]) -> Mutation {
    let node = format!("node-{:05}", i / 8);
    let device = format!("gpu-{}", i % 8);
    let status = format!(
        "{{\"allocation\":{{\"devices\":{{\"results\":[{{\"request\":\"gpu\",\"driver\":\"gpu.dray.example\",\"pool\":\"{node}\",\"device\":\"{device}\"}}]}},\"nodeSelector\":{{\"nodeSelectorTerms\":[{{\"matchFields\":[{{\"key\":\"metadata.name\",\"operator\":\"In\",\"values\":[\"{node}\"]}}]}}]}}}},\"reservedFor\":[{{\"apiGroup\":\"dray.v1\",\"resource\":\"units\",\"name\":\"{unit}\",\"uid\":\"{unit}\"}}]}}"
    );
    let queue = UnitQueue {
        home_shard: 7,
        priority: 0,
        pending: false,
    };
    let expected = |at: usize| Op::Update {
        expected: sequences.get(at).copied(),
    };
    Mutation {
        writes: vec![
            write(
                "resourceclaims",
                format!("{unit}-0"),
                claim,
                expected(0),
                claim_body(claim, unit, &status),
                None,
            ),
            write(
                "units",
                unit.to_string(),
                unit,
                expected(1),
                unit_body(
                    unit,
                    claim,
                    "job",
                    &format!("{{\"phase\":\"Allocated\",\"node\":\"{node}\"}}"),
                ),
                Some(queue),
            ),
        ],
        takes: vec![Take {
            write: 0,
            driver: "gpu.dray.example".into(),
            pool: node.into(),
            device: device.into(),
            claim,
        }],
        ..Mutation::default()
    }
}

fn deletion(claim: Uuid, unit: Uuid) -> Mutation {
    let delete = Op::Delete { expected: None };
    Mutation {
        writes: vec![
            write(
                "resourceclaims",
                format!("{unit}-0"),
                claim,
                delete,
                claim_body(claim, unit, "{}"),
                None,
            ),
            write(
                "units",
                unit.to_string(),
                unit,
                delete,
                unit_body(unit, claim, "job", "{}"),
                None,
            ),
        ],
        releases: vec![store::Release {
            claim,
            mode: store::ReleaseMode::Free,
        }],
        ..Mutation::default()
    }
}

/// Median time of one row inserted and committed alone, one after the other.
pub(crate) async fn single_commit_ms(url: &str) -> anyhow::Result<f64> {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(url).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS bench_single (id bigserial PRIMARY KEY, body text)")
        .execute(&pool)
        .await?;
    let mut times = Vec::new();
    for _ in 0..300 {
        let began = Instant::now();
        sqlx::query("INSERT INTO bench_single (body) VALUES ($1)")
            .bind("a row of some bytes")
            .execute(&pool)
            .await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

/// Median of a request and its answer over NATS, one at a time.
pub(crate) async fn nats_round_trip_ms(nats: &Nats) -> anyhow::Result<f64> {
    use bus::messages::{NodeReports, ReportAnswer};
    let here = bus::Bus::connect(bus::BusConfig::new(nats.url()), "bench-asks").await?;
    let there = bus::Bus::connect(bus::BusConfig::new(nats.url()), "bench-answers").await?;
    let question = bus::subjects::agent("bench-echo");
    let mut questions = there.requests(&question, None).await?;
    there.flush().await?;
    let answering = tokio::spawn(async move {
        while let Some(request) = questions.next().await {
            drop(request.answer(&ReportAnswer::default()).await);
        }
    });
    let mut times = Vec::new();
    for _ in 0..300 {
        let began = Instant::now();
        let _: ReportAnswer = here
            .ask(&question, &NodeReports::default(), Duration::from_secs(2), None)
            .await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    answering.abort();
    Ok(median(times))
}
