//! The openb trace through the services: all pods of a production cluster, parts of GPUs as shares, submitted over gRPC by `dray import
//! openb`, which also audits. Nothing is released.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;

use crate::fleet::Fleet;
use crate::machine::load;
use crate::report;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with nodes.csv and pods.csv.
    #[arg(long, default_value = "../shared/data/openb")]
    trace: PathBuf,
}

#[derive(Serialize)]
struct Figures {
    seconds: f64,
    allocated: usize,
    waiting: usize,
    load: f64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let load = load();
    let fleet = Fleet::start(1).await?;
    let began = Instant::now();
    let status = Command::new(std::env::current_exe()?.with_file_name("dray"))
        .args(["import", "openb", "--server", &fleet.server, "--database-url", &fleet.url])
        .arg("--nodes")
        .arg(args.trace.join("nodes.csv"))
        .arg("--pods")
        .arg(args.trace.join("pods.csv"))
        .stdin(Stdio::null())
        .status()
        .context("cannot run dray import openb")?;
    let seconds = began.elapsed().as_secs_f64();
    anyhow::ensure!(status.success(), "the import failed: {status}");
    let store = store::Store::connect(&store::StoreConfig::new(fleet.url.clone(), "bench"))?;
    let (units, _) = store.list_all("units").await?;
    let waiting = units
        .iter()
        .filter(|unit| unit.body.contains("\"phase\":\"Pending\""))
        .count();
    let figures = Figures {
        seconds,
        allocated: units.len() - waiting,
        waiting,
        load,
    };
    println!(
        "openb: {} allocated, {} waiting, {:.1} s (publishing the nodes included), load {:.1}",
        figures.allocated, figures.waiting, seconds, load
    );
    report::write("openb", &figures)
}
