//! `dray import openb`: a production cluster's nodes and pods as pools and claims, through the services and over gRPC.

mod objects;
mod publish;
mod report;
mod settle;
mod submit;
mod trace;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::client::audit::{self, DatabaseArgs};
use crate::client::connect::{Client, ServerArgs};
use crate::client::table;
use report::{Facts, Outcome};
use settle::Seen;

/// Faults shown; one is enough to know, more help to see a pattern.
const FAULTS_SHOWN: usize = 10;

/// Which part of the trace, and where to.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The trace's nodes.
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// The trace's pods.
    #[arg(long, value_name = "FILE")]
    pods: PathBuf,
    /// Only the first nodes.
    #[arg(long, value_name = "N")]
    max_nodes: Option<usize>,
    /// Only the first pods, those that are left out included.
    #[arg(long, value_name = "N")]
    max_pods: Option<usize>,
    /// Namespace of the claims.
    #[arg(short, long, default_value = "openb")]
    namespace: String,
    /// Longest time from the first submission to the last decision.
    #[arg(long, default_value = "10m", value_parser = humantime::parse_duration, value_name = "DURATION")]
    deadline: Duration,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Imports, waits, reports. An error if a claim got no answer or was refused, or if something is wrong with the outcome.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let nodes = trace::nodes(&args.nodes, args.max_nodes.unwrap_or(usize::MAX))?;
    let pods = trace::pods(&args.pods, args.max_pods.unwrap_or(usize::MAX))?;
    let client = Client::connect(&args.server).await?;
    let changed_pools = publish::publish(&client, &nodes).await?;

    let began = Instant::now();
    let mut seen = Seen::list(&client, &args.namespace).await?;
    let requests = pods
        .asking
        .iter()
        .map(|pod| objects::unit(&args.namespace, pod))
        .collect::<Result<_, _>>()?;
    let submitted = submit::submit(&client, requests).await?;
    let uids = submitted.accepted.values().cloned().collect();
    let ended = settle::settle(&client, &args.namespace, &mut seen, &uids, began + args.deadline).await?;
    // Units as they are watched name no devices; listed, they do.
    let seen = Seen::list(&client, &args.namespace).await?;

    let facts = Facts {
        nodes: &nodes,
        changed_pools,
        pods: &pods,
        submitted: &submitted,
        seen: &seen,
    };
    let outcome = Outcome::of(&facts);
    table::print(report::figures(&facts, &outcome, (ended - began).as_secs_f64()))?;
    if !outcome.waiting.is_empty() {
        table::print(format!("\n{}", report::reasons(&outcome)))?;
    }
    if !outcome.allocated.is_empty() {
        table::print(format!("\n{}", report::examples(&outcome)))?;
    }
    table::print("")?;
    verdict(&args, &facts, &outcome).await
}

/// Says whether the outcome is right: by the answers, and by the database where it can be reached.
async fn verdict(args: &Args, facts: &Facts<'_>, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    for fault in outcome.faults.iter().take(FAULTS_SHOWN) {
        table::print(format!("fault: {fault}"))?;
    }
    let is_clean = match args.database.find() {
        Some(url) => {
            let report = audit::audit(&url).await?;
            table::print(audit::verdict(&report))?;
            report
                .violations
                .iter()
                .try_for_each(|v| table::print(format!("  {}: {}", v.check, v.found)))?;
            report.is_clean()
        }
        None => {
            table::print("audit: not done, as no database was named; see `dray audit --help`")?;
            true
        }
    };
    let unanswered = outcome.undecided.len() + facts.submitted.refused.len();
    if !is_clean || !outcome.faults.is_empty() {
        bail!("the outcome is wrong: {}", table::counted(outcome.faults.len(), "fault"));
    }
    if unanswered > 0 {
        bail!("{} refused or undecided", table::counted(unanswered, "claim"));
    }
    Ok(())
}
