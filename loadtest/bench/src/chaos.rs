//! Kills what runs, while claims flow, and proves afterwards that nothing acknowledged was lost and nothing was given twice.
//!
//! The stack is `dray up` itself, which restarts what dies. Victims are the services, nats-server and Postgres, all with SIGKILL.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rpc::dray::v1 as pb;
use rpc::dray::v1::units_client::UnitsClient;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Channel;

use crate::{cluster, machine, report};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    #[arg(long, default_value_t = 3)]
    allocators: usize,
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Picks the victims; printed, so that a run can be repeated.
    #[arg(long)]
    seed: Option<u64>,
}

/// The note that `dray up` leaves in its folder.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    server: String,
    database_url: String,
    processes: Vec<NotedProcess>,
}

#[derive(Deserialize)]
struct NotedProcess {
    name: String,
    pid: Option<i32>,
}

#[derive(Default, Serialize)]
struct Figures {
    seconds: f64,
    seed: u64,
    kills: std::collections::BTreeMap<String, u64>,
    submitted: u64,
    allocated: u64,
    deleted: u64,
    retries: u64,
    waiting_at_the_end: u64,
}

#[derive(Default)]
struct Counts {
    submitted: AtomicU64,
    allocated: AtomicU64,
    deleted: AtomicU64,
    retries: AtomicU64,
}

/// What was acknowledged.
#[derive(Default)]
struct Ledger {
    alive: HashSet<String>,
    deleted: HashSet<String>,
}

struct Up {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Up {
    fn drop(&mut self) {
        drop(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status());
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            machine::pause(100);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn note(dir: &Path) -> Option<Note> {
    serde_json::from_slice(&std::fs::read(dir.join("running.json")).ok()?).ok()
}

async fn start(args: &Args) -> anyhow::Result<(Up, Note)> {
    let dray: PathBuf = std::env::current_exe()?.with_file_name("dray");
    let dir = machine::open_dir()?;
    let child = Command::new(dray)
        .args([
            "up",
            "--grpc-listen",
            "127.0.0.1:0",
            "--log",
            "warn",
            "--allocators",
            &args.allocators.to_string(),
            "--data-dir",
        ])
        .arg(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start dray up")?;
    let up = Up { child, dir };
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(note) = note(up.dir.path()) {
            return Ok((up, note));
        }
        anyhow::ensure!(Instant::now() < deadline, "dray up is not ready after two minutes");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let (up, first) = start(&args).await?;
    let channel = Channel::from_shared(first.server.clone())?
        .connect_timeout(Duration::from_secs(2))
        .connect_lazy();
    // Fewer devices than the clients ask for together, so that some wait at any time.
    cluster::publish(&channel, 8, 4).await?;

    let counts = Arc::new(Counts::default());
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let stop = CancellationToken::new();
    let mut clients = JoinSet::new();
    for n in 0..args.clients {
        clients.spawn(client(n, channel.clone(), counts.clone(), ledger.clone(), stop.clone()));
    }
    let mut figures = Figures {
        seconds: args.seconds,
        seed,
        ..Figures::default()
    };
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let mut random = seed;
    while Instant::now() < end {
        random = next_random(random);
        tokio::time::sleep(Duration::from_millis(500 + random % 1_500)).await;
        random = next_random(random);
        if let Some(name) = kill_one(up.dir.path(), random)? {
            *figures.kills.entry(name).or_default() += 1;
        }
    }
    stop.cancel();
    while let Some(done) = clients.join_next().await {
        done??;
    }
    figures.submitted = counts.submitted.load(Ordering::Relaxed);
    figures.allocated = counts.allocated.load(Ordering::Relaxed);
    figures.deleted = counts.deleted.load(Ordering::Relaxed);
    figures.retries = counts.retries.load(Ordering::Relaxed);
    figures.waiting_at_the_end = settle(&channel, &first.database_url).await?;
    verify(&channel, &first.database_url, &*ledger.lock().await).await?;
    let mut table = report::table(&["chaos", "count"]);
    for (name, kills) in &figures.kills {
        table.add_row([format!("killed {name}"), kills.to_string()]);
    }
    for (name, count) in [
        ("submissions acknowledged", figures.submitted),
        ("seen allocated", figures.allocated),
        ("deletions acknowledged", figures.deleted),
        ("calls repeated", figures.retries),
        ("waiting at the end", figures.waiting_at_the_end),
    ] {
        table.add_row([name.to_owned(), count.to_string()]);
    }
    println!("{table}");
    println!("seed {seed}; the audit is clean, nothing acknowledged is lost");
    anyhow::ensure!(
        figures.allocated > 0 && figures.kills.values().sum::<u64>() > 0,
        "nothing happened: no claim was allocated or nothing was killed"
    );
    report::write("chaos", &figures)
}

fn next_random(state: u64) -> u64 {
    // splitmix64: the victims of a seed are the same on every machine.
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Kills one process; its name.
fn kill_one(dir: &Path, random: u64) -> anyhow::Result<Option<String>> {
    let Some(note) = note(dir) else { return Ok(None) };
    let alive: Vec<(&str, i32)> = note
        .processes
        .iter()
        .filter_map(|p| Some((p.name.as_str(), p.pid?)))
        .collect();
    let Some((name, pid)) = alive.get(usize::try_from(random % alive.len().max(1) as u64)?) else {
        return Ok(None);
    };
    Command::new("kill")
        .args(["-9", &pid.to_string()])
        .stderr(Stdio::null())
        .status()?;
    Ok(Some((*name).to_owned()))
}

/// Submits, waits a little, deletes; repeats a call that failed in passing until it is answered.
async fn client(
    number: usize,
    channel: Channel,
    counts: Arc<Counts>,
    ledger: Arc<Mutex<Ledger>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut units = UnitsClient::new(channel);
    let mut round = 0_u64;
    while !stop.is_cancelled() {
        round += 1;
        let request = cluster::one_gpu(format!("client-{number}-{round}"));
        let submitted = persist(&counts, || {
            let (mut units, request) = (units.clone(), request.clone());
            async move { units.submit(request).await }
        })
        .await?;
        counts.submitted.fetch_add(1, Ordering::Relaxed);
        let uid = submitted.unit_uid;
        ledger.lock().await.alive.insert(uid.clone());
        let timeout = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        if let Ok(unit) = units
            .wait(pb::WaitUnitRequest {
                uid: uid.clone(),
                timeout,
            })
            .await
            && unit.into_inner().phase == i32::from(pb::UnitPhase::Allocated)
        {
            counts.allocated.fetch_add(1, Ordering::Relaxed);
        }
        // Every fifth stays, as long as there is room for others.
        if round.is_multiple_of(5) && round < 10 {
            continue;
        }
        persist(&counts, || {
            let (mut units, uid) = (units.clone(), uid.clone());
            async move { units.delete(pb::DeleteUnitRequest { uid }).await }
        })
        .await?;
        counts.deleted.fetch_add(1, Ordering::Relaxed);
        let mut ledger = ledger.lock().await;
        ledger.alive.remove(&uid);
        ledger.deleted.insert(uid);
    }
    Ok(())
}

/// Repeats a call until it is answered; gives up after a minute and a half.
async fn persist<T, F>(counts: &Counts, mut call: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        match tokio::time::timeout(Duration::from_secs(15), call()).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) if matches!(status.code(), Code::InvalidArgument | Code::AlreadyExists | Code::Internal) => {
                return Err(status).context("a call was refused for good");
            }
            Ok(Err(status)) => anyhow::ensure!(Instant::now() < deadline, "no answer in a minute and a half: {status}"),
            Err(_) => anyhow::ensure!(Instant::now() < deadline, "no answer in a minute and a half"),
        }
        counts.retries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until every unit is decided: allocated, or waiting because nothing is free. Returns how many wait.
async fn settle(channel: &Channel, database_url: &str) -> anyhow::Result<u64> {
    let store = store::Store::connect(&store::StoreConfig::new(database_url, "chaos"))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut units = UnitsClient::new(channel.clone());
        let listed = units
            .list(pb::ListUnitsRequest {
                page_size: 5_000,
                ..Default::default()
            })
            .await;
        if let Ok(listed) = listed {
            let units = listed.into_inner().units;
            let waiting: Vec<_> = units
                .iter()
                .filter(|u| u.phase == i32::from(pb::UnitPhase::Pending))
                .collect();
            let held = store.holdings().await.map(|h| h.len()).unwrap_or(0);
            // Either nobody waits, or everything is taken.
            if waiting.is_empty() || held >= 8 * 4 {
                return Ok(waiting.len() as u64);
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "{} units wait though {held} of 32 devices are held: {:?}",
                waiting.len(),
                waiting.first()
            );
        } else {
            anyhow::ensure!(Instant::now() < deadline, "ingest does not answer");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn verify(channel: &Channel, database_url: &str, ledger: &Ledger) -> anyhow::Result<()> {
    let mut units = UnitsClient::new(channel.clone());
    for uid in &ledger.alive {
        units
            .get(pb::GetUnitRequest { uid: uid.clone() })
            .await
            .with_context(|| format!("unit {uid} was acknowledged and is lost"))?;
    }
    for uid in &ledger.deleted {
        let found = units.get(pb::GetUnitRequest { uid: uid.clone() }).await;
        anyhow::ensure!(
            matches!(&found, Err(status) if status.code() == Code::NotFound),
            "unit {uid} was deleted and is still there: {found:?}"
        );
    }
    let report = store::Store::connect(&store::StoreConfig::new(database_url, "chaos"))?
        .audit()
        .await?;
    anyhow::ensure!(report.is_clean(), "the audit found violations: {:?}", report.violations);
    Ok(())
}
