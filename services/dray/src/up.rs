//! `dray up`: everything on one machine. Postgres, NATS and the services are child processes, started in order, restarted
//! when they die, and stopped in order.

mod process;
pub(crate) mod ready;
pub(crate) mod running;
mod stack;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::client::table;
use running::Running;
use stack::Stack;

/// How often the parts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What to start and where.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the database, NATS's store and logs. Default: /var/lib/dray for root, else $XDG_DATA_HOME/dray.
    #[arg(long, env = "DRAY_DATA_DIR", value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Folder of `postgres` and `initdb`, if they are neither on PATH nor where Debian puts them.
    #[arg(long, value_name = "FOLDER")]
    postgres_bin: Option<PathBuf>,
    /// The `nats-server` program, if it is not on PATH.
    #[arg(long, value_name = "FILE")]
    nats_bin: Option<PathBuf>,
    /// Port of Postgres; 0 takes a free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    postgres_port: u16,
    /// Port of NATS; 0 takes a free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    nats_port: u16,
    /// Where ingest serves gRPC; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    grpc_listen: SocketAddr,
    /// Allocator processes.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    allocators: u16,
    /// Simulated nodes beside this machine's own, in one process.
    #[arg(long, default_value_t = 0, value_name = "N")]
    nodes: u32,
    /// Feature gates to switch at the start, e.g. `DRADerivedAttributes=true`; those not named stay as they are. `dray gates` shows all.
    #[arg(long, env = "DRAY_FEATURE_GATES", value_name = "NAME=BOOL,...")]
    feature_gates: Option<String>,
    /// What the services log, in the syntax of their `chassis.telemetry.log`.
    #[arg(long, default_value = "info", value_name = "FILTER")]
    log: String,
    /// Stop when standard input closes: for a parent that must not be outlived.
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

/// Runs until a signal comes.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Some(data_dir) = args.data_dir.clone().or_else(embedded::default_root) else {
        bail!("no place for data: name a folder with --data-dir");
    };
    if let Some(other) = running::find(Some(&data_dir)) {
        bail!(
            "{} is in use by a running `dray up` (process {}, {})",
            data_dir.display(),
            other.pid,
            other.server
        );
    }
    let (stop, insist) = (CancellationToken::new(), CancellationToken::new());
    let signals = tokio::spawn(watch_signals(stop.clone(), insist.clone())?);
    if args.stop_with_stdin {
        crate::service::stop_with_stdin(stop.clone());
    }
    let mut stack = Stack::new(args, data_dir.clone());
    let outcome = tokio::select! {
        outcome = bring_up_and_look_after(&mut stack) => outcome,
        () = stop.cancelled() => Ok(()),
    };
    running::remove(&data_dir);
    let stopped = stack.stop(insist).await;
    signals.abort();
    signals.await.ok();
    outcome.and(stopped)
}

/// The first signal asks for an orderly stop, a second one insists.
fn watch_signals(stop: CancellationToken, insist: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    Ok(async move {
        for token in [stop, insist] {
            tokio::select! {
                _ = interrupt.recv() => (),
                _ = terminate.recv() => (),
            }
            eprintln!("\nstopping");
            token.cancel();
        }
    })
}

/// Returns only with an error.
async fn bring_up_and_look_after(stack: &mut Stack) -> anyhow::Result<()> {
    stack.start().await?;
    table::print(banner(&stack.running()?))?;
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        stack.look_after().await?;
    }
}

/// What runs where, and what to do next.
fn banner(running: &Running) -> String {
    let mut rows = table::table(&["what", "where", "log"]);
    let address = |name: &str, health: Option<&String>| match name {
        "postgres" => running.database_url.clone(),
        "nats-server" => running.nats_url.clone(),
        "ingest" => running.server.clone(),
        _ => health.map(|health| format!("{health}/metrics")).unwrap_or_default(),
    };
    for process in &running.processes {
        let log = process.log.display().to_string();
        rows.add_row([process.name.clone(), address(&process.name, process.health.as_ref()), log]);
    }
    let server = match running.server.as_str() {
        "http://127.0.0.1:7070" => String::new(),
        other => format!("export DRAY_SERVER={other}\n  "),
    };
    format!(
        "{}\n\nDray is ready. In another terminal:\n  {server}dray apply -f examples/gpus.yaml\n  dray submit -f examples/claim.yaml --wait\n  \
         dray get claims\n  dray audit\nCtrl-C stops everything.",
        table::text(&rows)
    )
}
