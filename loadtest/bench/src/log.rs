//! Event rows per second into the gap-free, commit-ordered log, beside plain UNNEST inserts with as many connections.
//!
//! A writer is one connection that sends one group commit after the other; all sides carry the same number of rows per statement. An event
//! is never written alone: its object changes with it. So there are two yardsticks: `plain` inserts the same two rows (object and
//! event) per change, `events_only` inserts just the event row.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use sqlx::postgres::PgPoolOptions;
use store::{Mutation, Op, Store, StoreConfig, Write, Writer, WriterConfig};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::machine::{Database, load};
use crate::report;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rows in one statement.
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Pairs of measurements per number of writers; the median ratio counts.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 32, 64])]
    writers: Vec<usize>,
}

#[derive(Serialize)]
struct Figure {
    rows_per_s: f64,
    plain_rows_per_s: f64,
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
    events_only_rows_per_s: f64,
    ratio_to_events_only: f64,
}

#[derive(Serialize)]
struct Figures {
    batch: usize,
    writers: BTreeMap<usize, Figure>,
    load: f64,
}

/// About 250 bytes, as in the anchors of the field.
fn body(i: usize) -> Arc<str> {
    format!(
        "{{\"apiVersion\":\"resource.k8s.io/v1\",\"kind\":\"ResourceClaim\",\"metadata\":{{\"name\":\"claim-{i}\",\"namespace\":\"bench\"}},\"spec\":{{\"devices\":{{\"requests\":[{{\"name\":\"gpu\",\"exactly\":{{\"deviceClassName\":\"gpu\",\"allocationMode\":\"ExactCount\",\"count\":1}}}}]}}}}}}"
    )
    .into()
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let database = Database::start().await?;
    let mut figures = Figures {
        batch: args.batch,
        writers: BTreeMap::new(),
        load: load(),
    };
    let mut table = report::table(&[
        "writers",
        "log rows/s",
        "plain rows/s",
        "ratio",
        "min",
        "max",
        "events only",
        "ratio",
    ]);
    let mut number = 0;
    for &writers in &args.writers {
        let mut ours = Vec::new();
        let mut plain = Vec::new();
        let mut events_only = Vec::new();
        for _ in 0..args.pairs {
            number += 1;
            let url = database.fresh(&format!("log_{number}")).await?;
            ours.push(measure_log(&url, writers, &args).await?);
            plain.push(measure_plain(&url, writers, &args, true).await?);
            events_only.push(measure_plain(&url, writers, &args, false).await?);
        }
        let ratios: Vec<f64> = ours.iter().zip(&plain).map(|(o, p)| o / p).collect();
        let only_ratios: Vec<f64> = ours.iter().zip(&events_only).map(|(o, p)| o / p).collect();
        let figure = Figure {
            events_only_rows_per_s: report::median(events_only),
            ratio_to_events_only: report::median(only_ratios),
            rows_per_s: report::median(ours),
            plain_rows_per_s: report::median(plain),
            ratio: report::median(ratios.clone()),
            ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratio_max: ratios.iter().copied().fold(0.0, f64::max),
        };
        table.add_row([
            writers.to_string(),
            format!("{:.0}", figure.rows_per_s),
            format!("{:.0}", figure.plain_rows_per_s),
            format!("{:.2}", figure.ratio),
            format!("{:.2}", figure.ratio_min),
            format!("{:.2}", figure.ratio_max),
            format!("{:.0}", figure.events_only_rows_per_s),
            format!("{:.2}", figure.ratio_to_events_only),
        ]);
        figures.writers.insert(writers, figure);
    }
    println!("{table}");
    println!(
        "load average at the start {:.1}; {} rows a statement",
        figures.load, args.batch
    );
    report::write("log", &figures)
}

async fn measure_log(url: &str, writers: usize, args: &Args) -> anyhow::Result<f64> {
    let stop = CancellationToken::new();
    let warm = Arc::new(Barrier::new(writers + 1));
    let seconds = Duration::from_secs_f64(args.seconds);
    let mut load = JoinSet::new();
    for w in 0..writers {
        // Each writer is a process of its own as far as the database can tell: one connection, one commit at a time.
        let store = Store::connect(&StoreConfig {
            url: url.to_owned(),
            connections_max: 1,
            application: format!("bench-{w}"),
        })?;
        let stop = stop.clone();
        let warm = warm.clone();
        let batch = args.batch;
        load.spawn(async move {
            let mut tasks = JoinSet::new();
            let config = WriterConfig {
                batch_max: batch,
                in_flight_max: 1,
                ..WriterConfig::new(format!("bench-{w}"))
            };
            let writer = Writer::spawn(store, config, None, &mut tasks, stop);
            // A new connection compiles its plans at first use; that is not what is measured.
            writer.commit(creation(w, usize::MAX)).await?;
            warm.wait().await;
            let deadline = Instant::now() + seconds;
            let mut rows = 0;
            while Instant::now() < deadline {
                let mutations = (0..batch).map(|i| creation(w, rows + i)).collect();
                for outcome in writer.commit_all(mutations).await {
                    anyhow::ensure!(matches!(outcome?, store::Outcome::Won { .. }), "a creation lost");
                }
                rows += batch;
            }
            Ok(rows)
        });
    }
    warm.wait().await;
    let began = Instant::now();
    let mut rows = 0;
    while let Some(done) = load.join_next().await {
        rows += done??;
    }
    let rate = rows as f64 / began.elapsed().as_secs_f64();
    stop.cancel();
    Ok(rate)
}

fn creation(writer: usize, i: usize) -> Mutation {
    let write = Write {
        kind: "resourceclaims".into(),
        namespace: "bench".into(),
        name: format!("c-{writer}-{i}").into(),
        uid: Uuid::now_v7(),
        op: Op::Create,
        body: body(i),
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

const PLAIN_EVENTS: &str = "INSERT INTO plain_events (seq, kind, namespace, name, uid, op, at, body)
    SELECT nextval('plain_seq'), 'resourceclaims', 'bench', name, uid, 0, now(), body
    FROM unnest($1::text[], $2::uuid[], $3::text[]) AS u(name, uid, body)";
const PLAIN_BOTH: &str = "WITH e AS (INSERT INTO plain_events (seq, kind, namespace, name, uid, op, at, body)
    SELECT nextval('plain_seq'), 'resourceclaims', 'bench', name, uid, 0, now(), body
    FROM unnest($1::text[], $2::uuid[], $3::text[]) AS u(name, uid, body))
    INSERT INTO plain_objects (kind, namespace, name, uid, seq, created_seq, body)
    SELECT 'resourceclaims', 'bench', name, uid, 1, 1, body FROM unnest($1::text[], $2::uuid[], $3::text[]) AS u(name, uid, body)";

async fn measure_plain(url: &str, writers: usize, args: &Args, objects: bool) -> anyhow::Result<f64> {
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(writers)?)
        .min_connections(u32::try_from(writers)?)
        .connect(url)
        .await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS plain_events (LIKE events INCLUDING ALL)")
        .execute(&pool)
        .await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS plain_objects (LIKE objects INCLUDING ALL)")
        .execute(&pool)
        .await?;
    sqlx::query("TRUNCATE plain_events, plain_objects").execute(&pool).await?;
    sqlx::query("CREATE SEQUENCE IF NOT EXISTS plain_seq CACHE 1000")
        .execute(&pool)
        .await?;
    let deadline = Instant::now() + Duration::from_secs_f64(args.seconds);
    let began = Instant::now();
    let mut load = JoinSet::new();
    for w in 0..writers {
        let pool = pool.clone();
        let batch = args.batch;
        load.spawn(async move {
            let mut rows = 0;
            while Instant::now() < deadline {
                let names: Vec<String> = (0..batch).map(|i| format!("c-{w}-{}", rows + i)).collect();
                let uids: Vec<Uuid> = (0..batch).map(|_| Uuid::now_v7()).collect();
                let bodies: Vec<Arc<str>> = (0..batch).map(body).collect();
                let bodies: Vec<&str> = bodies.iter().map(AsRef::as_ref).collect();
                let sql = if objects { PLAIN_BOTH } else { PLAIN_EVENTS };
                sqlx::query(sql).bind(&names).bind(&uids).bind(&bodies).execute(&pool).await?;
                rows += batch;
            }
            anyhow::Ok(rows)
        });
    }
    let mut rows = 0;
    while let Some(done) = load.join_next().await {
        rows += done??;
    }
    let rate = rows as f64 / began.elapsed().as_secs_f64();
    pool.close().await;
    Ok(rate)
}
