//! Durable claims per second, end to end: over gRPC, through ingest, NATS, the search and both commits, to the watcher that sees the allocation.
//!
//! Three parts in one run: a burst, a steady phase of submit and delete at 50–75 % full, and one claim in flight at a time. Beside them the
//! floor: the rows of both commits and of the submission record, written with the same statement, batch size and connections from
//! mutations made beforehand; and single commits and NATS round trips.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use rpc::dray::v1 as pb;
use rpc::dray::v1::units_client::UnitsClient;
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::fleet::{Cpu, Fleet};
use crate::machine::load;
use crate::{cluster, floor, report};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    #[arg(long, default_value_t = 8)]
    devices: usize,
    #[arg(long, default_value_t = 7_500)]
    burst: usize,
    /// Seconds of the steady phase.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Claims submitted and not yet allocated, at most, in the steady phase.
    #[arg(long, default_value_t = 1_024)]
    outstanding: usize,
    /// Claims allocated one at a time.
    #[arg(long, default_value_t = 300)]
    singles: usize,
}

#[derive(Serialize)]
pub(crate) struct CpuPerClaim {
    postgres_us: f64,
    nats_us: f64,
    services_us: f64,
    client_us: f64,
}

#[derive(Serialize)]
struct Figures {
    nodes: usize,
    devices: usize,
    burst_claims: usize,
    burst_claims_per_s: f64,
    burst_p50_ms: f64,
    burst_p99_ms: f64,
    claims_per_s: f64,
    floor_claims_per_s: f64,
    /// The same with the rows of the deletion: what the steady phase writes.
    floor_with_deletion_per_s: f64,
    ratio_to_floor: f64,
    burst_ratio_to_floor: f64,
    p50_ms: f64,
    p99_ms: f64,
    single_p50_ms: f64,
    single_p99_ms: f64,
    single_commit_ms: f64,
    nats_round_trip_ms: f64,
    single_ratio: f64,
    cpu_per_claim: CpuPerClaim,
    load: f64,
}

/// What the watcher tells: a unit was allocated.
struct Allocated {
    uid: String,
    at: Instant,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let load = load();
    let fleet = Fleet::start(1).await?;
    cluster::publish(&fleet.channel, args.nodes, args.devices).await?;
    let mut watch = Watch::start(&fleet).await?;

    let burst = burst(&fleet, &mut watch, args.burst).await?;
    eprintln!("burst: {:.0} claims/s", burst.rate);
    let steady = steady(&fleet, &mut watch, &args, burst.uids).await?;
    eprintln!("steady: {:.0} claims/s", steady.rate);
    let singles = singles(&fleet, args.singles).await?;
    let round_trip_ms = floor::nats_round_trip_ms(&fleet.nats).await?;
    let single_commit_ms = floor::single_commit_ms(&fleet.url).await?;
    let clean = store::Store::connect(&store::StoreConfig::new(fleet.url.clone(), "bench"))?
        .audit()
        .await?;
    anyhow::ensure!(clean.is_clean(), "the audit found violations: {:?}", clean.violations);
    let floor = floor::claims_per_s(&fleet.database, args.burst).await?;

    let yardstick = single_commit_ms + 2.0 * round_trip_ms;
    let figures = Figures {
        nodes: args.nodes,
        devices: args.devices,
        burst_claims: args.burst,
        burst_claims_per_s: burst.rate,
        burst_p50_ms: burst.latency.value_at_quantile(0.5) as f64 / 1e3,
        burst_p99_ms: burst.latency.value_at_quantile(0.99) as f64 / 1e3,
        claims_per_s: steady.rate,
        floor_claims_per_s: floor.claims_per_s,
        floor_with_deletion_per_s: floor.with_deletion_per_s,
        ratio_to_floor: steady.rate / floor.with_deletion_per_s,
        burst_ratio_to_floor: burst.rate / floor.claims_per_s,
        p50_ms: steady.latency.value_at_quantile(0.5) as f64 / 1e3,
        p99_ms: steady.latency.value_at_quantile(0.99) as f64 / 1e3,
        single_p50_ms: singles.value_at_quantile(0.5) as f64 / 1e3,
        single_p99_ms: singles.value_at_quantile(0.99) as f64 / 1e3,
        single_commit_ms,
        nats_round_trip_ms: round_trip_ms,
        single_ratio: singles.value_at_quantile(0.5) as f64 / 1e3 / yardstick,
        cpu_per_claim: burst.cpu,
        load,
    };
    print(&figures);
    report::write("e2e", &figures)
}

fn print(f: &Figures) {
    let mut table = report::table(&["figure", "value", "beside"]);
    let mut row = |name: &str, value: String, beside: String| {
        table.add_row([name.to_owned(), value, beside]);
    };
    row(
        "burst, claims/s",
        format!("{:.0}", f.burst_claims_per_s),
        format!("{:.2} of the floor", f.burst_ratio_to_floor),
    );
    row(
        "steady, claims/s (each also deleted)",
        format!("{:.0}", f.claims_per_s),
        format!(
            "{:.2} of the floor with deletion, {:.0}",
            f.ratio_to_floor, f.floor_with_deletion_per_s
        ),
    );
    row(
        "floor, claims/s",
        format!("{:.0}", f.floor_claims_per_s),
        "bare SQL, the same rows of submission and allocation".into(),
    );
    row(
        "burst, submit to allocated p50 / p99",
        format!("{:.1} / {:.1} ms", f.burst_p50_ms, f.burst_p99_ms),
        "queueing".into(),
    );
    row(
        "steady, submit to allocated p50 / p99",
        format!("{:.1} / {:.1} ms", f.p50_ms, f.p99_ms),
        "saturated".into(),
    );
    row(
        "one in flight p50 / p99",
        format!("{:.2} / {:.2} ms", f.single_p50_ms, f.single_p99_ms),
        format!(
            "{:.1} x (commit {:.2} ms + 2 x NATS {:.2} ms)",
            f.single_ratio, f.single_commit_ms, f.nats_round_trip_ms
        ),
    );
    let c = &f.cpu_per_claim;
    row(
        "CPU per claim (burst)",
        format!("{:.0} µs", c.postgres_us + c.nats_us + c.services_us + c.client_us),
        format!(
            "Postgres {:.0}, NATS {:.0}, services {:.0}, client {:.0}",
            c.postgres_us, c.nats_us, c.services_us, c.client_us
        ),
    );
    println!("{table}");
    println!(
        "{} nodes x {} devices, load average at the start {:.1}",
        f.nodes, f.devices, f.load
    );
}

/// One stream that sees every allocation.
pub(crate) struct Watch {
    allocated: mpsc::Receiver<Allocated>,
    _task: JoinSet<()>,
}

impl Watch {
    pub(crate) async fn start(fleet: &Fleet) -> anyhow::Result<Self> {
        let head = rpc::dray::v1::log_client::LogClient::new(fleet.channel.clone())
            .head(pb::HeadRequest {})
            .await?
            .into_inner();
        let request = pb::WatchUnitsRequest {
            namespace: String::new(),
            after_sequence: head.sequence,
        };
        let mut events = UnitsClient::new(fleet.channel.clone()).watch(request).await?.into_inner();
        let (out, allocated) = mpsc::channel(100_000);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok(Some(event)) = events.message().await {
                let Some(unit) = event.unit.filter(|unit| unit.phase == i32::from(pb::UnitPhase::Allocated)) else {
                    continue;
                };
                if event.operation == "DELETED" {
                    continue;
                }
                if out
                    .send(Allocated {
                        uid: unit.uid,
                        at: Instant::now(),
                    })
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { allocated, _task: task })
    }

    async fn next(&mut self) -> anyhow::Result<Allocated> {
        let next = tokio::time::timeout(Duration::from_secs(60), self.allocated.recv()).await;
        next.context("no allocation for a minute")?.context("the watch ended")
    }
}

pub(crate) struct Burst {
    pub(crate) rate: f64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) uids: VecDeque<String>,
    pub(crate) cpu: CpuPerClaim,
}

/// Submits `n` claims at once over one stream and waits until all are allocated.
pub(crate) async fn burst(fleet: &Fleet, watch: &mut Watch, n: usize) -> anyhow::Result<Burst> {
    let before = fleet.cpu();
    let began = Instant::now();
    let requests: Vec<pb::SubmitRequest> = (0..n).map(|i| cluster::one_gpu(format!("burst-{i}"))).collect();
    let mut client = UnitsClient::new(fleet.channel.clone());
    let submitted: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    // Latency counts from the moment at which the client hands the claim over.
    let handed: Arc<Vec<std::sync::OnceLock<Instant>>> = Arc::new((0..n).map(|_| std::sync::OnceLock::new()).collect());
    let marks = handed.clone();
    let outgoing = tokio_stream::iter(requests.into_iter().enumerate().map(move |(i, request)| {
        marks[i].get_or_init(Instant::now);
        request
    }));
    let mut answers = client.submit_stream(outgoing).await?.into_inner();
    let reader = submitted.clone();
    let reading = tokio::spawn(async move {
        let mut seen = 0;
        while let Some(answer) = answers.message().await? {
            let Some(pb::submit_stream_response::Result::Accepted(accepted)) = answer.result else {
                anyhow::bail!("refused: {answer:?}");
            };
            let index: usize = answer.client_id.trim_start_matches("burst-").parse()?;
            let at = *handed[index].get_or_init(Instant::now);
            reader.lock().await.insert(accepted.unit_uid, at);
            seen += 1;
        }
        anyhow::ensure!(seen == n, "{seen} of {n} answers");
        Ok(())
    });
    let mut allocations = Vec::with_capacity(n);
    while allocations.len() < n {
        allocations.push(watch.next().await?);
    }
    let last = allocations.iter().map(|a| a.at).max().unwrap_or(began);
    reading.await??;
    let cpu = per_claim(fleet.cpu().since(before), n);
    let submitted = submitted.lock().await;
    let mut latency = Histogram::new(3)?;
    for allocation in &allocations {
        let at = submitted
            .get(&allocation.uid)
            .context("an allocation of a unit that was not submitted here")?;
        latency.record(u64::try_from((allocation.at - *at).as_micros())?)?;
    }
    Ok(Burst {
        rate: n as f64 / (last - began).as_secs_f64(),
        latency,
        uids: allocations.into_iter().map(|a| a.uid).collect(),
        cpu,
    })
}

fn per_claim(cpu: Cpu, n: usize) -> CpuPerClaim {
    let us = |seconds: f64| seconds * 1e6 / n as f64;
    CpuPerClaim {
        postgres_us: us(cpu.postgres),
        nats_us: us(cpu.nats),
        services_us: us(cpu.services),
        client_us: us(cpu.client),
    }
}

struct Steady {
    rate: f64,
    latency: Histogram<u64>,
}

/// Submits and deletes so that the cluster stays between half and three quarters full.
async fn steady(fleet: &Fleet, watch: &mut Watch, args: &Args, mut live: VecDeque<String>) -> anyhow::Result<Steady> {
    let total = args.nodes * args.devices;
    let deletes = Arc::new(Semaphore::new(256));
    let mut deleting = JoinSet::new();
    let delete = |uid: String, deleting: &mut JoinSet<anyhow::Result<()>>| {
        let mut client = UnitsClient::new(fleet.channel.clone());
        let room = deletes.clone();
        deleting.spawn(async move {
            let _room = room.acquire_owned().await?;
            client.delete(pb::DeleteUnitRequest { uid }).await?;
            Ok(())
        });
    };
    while live.len() > total * 5 / 8 {
        if let Some(uid) = live.pop_front() {
            delete(uid, &mut deleting);
        }
    }
    while let Some(done) = deleting.join_next().await {
        done??;
    }

    let (requests, outgoing) = mpsc::channel::<pb::SubmitRequest>(args.outstanding);
    let mut client = UnitsClient::new(fleet.channel.clone());
    let mut answers = client
        .submit_stream(tokio_stream::wrappers::ReceiverStream::new(outgoing))
        .await?
        .into_inner();
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(args.seconds);
    let mut handed: HashMap<String, Instant> = HashMap::new();
    let mut pending: HashMap<String, Instant> = HashMap::new();
    let mut early: HashMap<String, Instant> = HashMap::new();
    let mut latency = Histogram::new(3)?;
    let (mut next, mut allocated, mut outstanding) = (0_usize, 0_usize, 0_usize);
    let note = |submitted: Instant, at: Instant, latency: &mut Histogram<u64>| -> anyhow::Result<()> {
        latency.record(u64::try_from(at.saturating_duration_since(submitted).as_micros())?)?;
        Ok(())
    };
    while Instant::now() < end {
        while outstanding < args.outstanding {
            let id = format!("steady-{next}");
            handed.insert(id.clone(), Instant::now());
            if requests.try_send(cluster::one_gpu(id.clone())).is_err() {
                handed.remove(&id);
                break;
            }
            next += 1;
            outstanding += 1;
        }
        tokio::select! {
            answer = answers.message() => {
                let answer = answer?.context("the stream ended")?;
                let Some(pb::submit_stream_response::Result::Accepted(accepted)) = answer.result else { anyhow::bail!("refused: {answer:?}") };
                let at = handed.remove(&answer.client_id).context("an answer to nothing")?;
                match early.remove(&accepted.unit_uid) {
                    Some(done) => note(at, done, &mut latency)?,
                    None => { pending.insert(accepted.unit_uid, at); }
                }
            }
            done = watch.next() => {
                let done = done?;
                allocated += 1;
                outstanding -= 1;
                match pending.remove(&done.uid) {
                    Some(at) => note(at, done.at, &mut latency)?,
                    None => { early.insert(done.uid.clone(), done.at); }
                }
                live.push_back(done.uid);
                if live.len() > total * 5 / 8 && let Some(uid) = live.pop_front() {
                    delete(uid, &mut deleting);
                }
                while let Some(done) = deleting.try_join_next() {
                    done??;
                }
            }
        }
    }
    let rate = allocated as f64 / began.elapsed().as_secs_f64();
    drop(requests);
    while outstanding > 0 {
        tokio::select! {
            answer = answers.message() => { if answer?.is_none() { tokio::time::sleep(Duration::from_millis(1)).await } }
            done = watch.next() => { done?; outstanding -= 1; }
        }
    }
    while let Some(done) = deleting.join_next().await {
        done??;
    }
    Ok(Steady { rate, latency })
}

/// One claim in flight: submit, wait, delete, again.
async fn singles(fleet: &Fleet, n: usize) -> anyhow::Result<Histogram<u64>> {
    let mut client = UnitsClient::new(fleet.channel.clone());
    let mut latency = Histogram::new(3)?;
    for i in 0..n + 20 {
        let began = Instant::now();
        let submitted = client.submit(cluster::one_gpu(format!("single-{i}"))).await?.into_inner();
        let unit = client
            .wait(pb::WaitUnitRequest {
                uid: submitted.unit_uid.clone(),
                timeout: None,
            })
            .await?
            .into_inner();
        let took = began.elapsed();
        anyhow::ensure!(unit.phase == i32::from(pb::UnitPhase::Allocated), "not allocated: {unit:?}");
        if i >= 20 {
            latency.record(u64::try_from(took.as_micros())?)?;
        }
        client.delete(pb::DeleteUnitRequest { uid: submitted.unit_uid }).await?;
    }
    Ok(latency)
}
