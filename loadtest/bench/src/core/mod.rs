//! The allocator alone: all workloads of a set, ours and the reference implementation in the same run, alternating; how our cost grows
//! with the cluster; what a device costs in memory. Judged by the goal lines of the performance reference.
//!
//! A rate counts only if every outcome is the expected one: a difference fails the command.

mod compare;
mod generate;
mod goals;
mod growth;
mod instructions;
mod memory;
mod selectors;
mod workload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::peer::Peer;
use crate::{machine, report};
use compare::{Compared, Filtered, Pace};

/// Where the whole set is, beside this project.
const SET: &str = "../shared/data/bench";
/// The part of it that the project carries for its tests.
const OWN_PART_OF_SET: &str = "libs/structured/testdata/bench";

/// Workloads whose claims are also put to the reference as kube-scheduler would.
const FILTERED: &[&str] = &["a-gpu-1000", "a-gpu-5000", "b-pcie-1000", "g-net-1k", "g-net-10k"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with `workloads` and `expected`.
    folder: Option<PathBuf>,
    /// Only workloads whose name starts so; may be repeated.
    #[arg(long, value_name = "PREFIX")]
    only: Vec<String>,
    /// Alternating runs per workload.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// The reference's time per workload over all its runs. One run is made in any case, and a claim is never broken off.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Measure ours only.
    #[arg(long)]
    no_peer: bool,
    /// Leave growth and memory out.
    #[arg(long)]
    no_growth: bool,
    /// Let the reference decide all claims of h-openb once (some 400 s) instead of estimating from the first ones.
    #[arg(long)]
    whole_openb: bool,
    /// Only count instructions under callgrind.
    #[arg(long)]
    instructions: bool,
    /// Used by this command itself: one measurement in a process of its own.
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(clap::Subcommand)]
enum Part {
    /// Memory per device of a generated cluster, as JSON.
    #[command(hide = true)]
    Memory(memory::Args),
    /// Replays one workload, to be run under a profiler.
    #[command(hide = true)]
    Replay { file: PathBuf },
}

/// All that is written to `target/bench/core.json`.
#[derive(Serialize)]
struct Figures {
    workloads: BTreeMap<String, Compared>,
    sched: BTreeMap<String, Filtered>,
    selectors: Option<selectors::Figures>,
    growth: Option<growth::Figures>,
    memory: Option<memory::Figures>,
    goals: Vec<goals::Goal>,
    load_before: f64,
    load_after: f64,
    seconds: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.part {
        Some(Part::Memory(part)) => return memory::probe(part),
        Some(Part::Replay { file }) => return instructions::replay(file),
        None => {}
    }
    let set = Set::find(args)?;
    if args.instructions {
        return instructions::run(&set);
    }
    let began = std::time::Instant::now();
    let load_before = machine::load();
    let peer = (!args.no_peer).then(Peer::build).transpose()?;
    let mut figures = Figures {
        workloads: workloads(args, &set, peer.as_ref())?,
        sched: BTreeMap::new(),
        selectors: None,
        growth: None,
        memory: None,
        goals: Vec::new(),
        load_before,
        load_after: f64::NAN,
        seconds: f64::NAN,
    };
    println!("{}", compare::table(&figures.workloads));
    if let Some(peer) = &peer {
        figures.sched = filtered(args, &set, peer)?;
        figures.selectors = selectors::measure(&set, peer, args.pairs)?;
    }
    if !figures.sched.is_empty() {
        println!("{}", compare::filtered_table(&figures.sched));
    }
    if !args.no_growth {
        figures.growth = Some(growth::measure()?);
        figures.memory = Some(memory::measure()?);
    }
    figures.growth.iter().for_each(|growth| println!("{}", growth::table(growth)));
    figures.memory.iter().for_each(|memory| println!("{memory}"));
    figures.goals = goals::judge(&figures);
    println!("{}", goals::table(&figures.goals));
    figures.load_after = machine::load();
    figures.seconds = began.elapsed().as_secs_f64();
    println!(
        "load average {:.1} before, {:.1} after; {:.0} s in all",
        figures.load_before, figures.load_after, figures.seconds
    );
    report::write("core", &figures)?;
    let differing: Vec<&str> = figures
        .workloads
        .iter()
        .filter(|(_, compared)| compared.difference.is_some())
        .map(|(name, _)| name.as_str())
        .collect();
    ensure!(
        differing.is_empty(),
        "outcomes differ from the expected ones, so these rates count for nothing: {}",
        differing.join(", ")
    );
    Ok(())
}

/// A set of workloads with the outcome of every claim.
struct Set {
    folder: PathBuf,
    names: Vec<String>,
}

impl Set {
    fn find(args: &Args) -> anyhow::Result<Self> {
        let folder = match &args.folder {
            Some(folder) => folder.clone(),
            None if Path::new(SET).is_dir() => PathBuf::from(SET),
            None => {
                eprintln!("there is no {SET}: measuring the part of the set in {OWN_PART_OF_SET}");
                PathBuf::from(OWN_PART_OF_SET)
            }
        };
        let workloads = folder.join("workloads");
        let entries = std::fs::read_dir(&workloads).with_context(|| format!("cannot read {}", workloads.display()))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".json.gz").map(str::to_owned));
        }
        names.retain(|name| args.only.is_empty() || args.only.iter().any(|prefix| name.starts_with(prefix)));
        names.sort();
        ensure!(!names.is_empty(), "no workload of that name in {}", workloads.display());
        Ok(Self { folder, names })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join("workloads").join(format!("{name}.json.gz"))
    }

    fn expected(&self, name: &str) -> PathBuf {
        self.folder.join("expected").join(format!("{name}.jsonl.gz"))
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

fn workloads(args: &Args, set: &Set, peer: Option<&Peer>) -> anyhow::Result<BTreeMap<String, Compared>> {
    let mut figures = BTreeMap::new();
    for name in &set.names {
        let workload = workload::read(&set.file(name))?;
        let expected = workload::read_expected(&set.expected(name))?;
        let conversation = peer.map(|peer| peer.workload(&set.file(name))).transpose()?;
        let is_whole = args.whole_openb && name == goals::OPENB;
        let pace = if is_whole {
            Pace::ONCE_TO_THE_END
        } else {
            Pace::new(args.pairs, args.seconds)
        };
        let compared = compare::workload(&workload, &expected, conversation, pace).with_context(|| format!("workload {name}"))?;
        eprintln!("{name}: {compared}");
        figures.insert(name.clone(), compared);
    }
    Ok(figures)
}

fn filtered(args: &Args, set: &Set, peer: &Peer) -> anyhow::Result<BTreeMap<String, Filtered>> {
    let mut figures = BTreeMap::new();
    for &name in FILTERED.iter().filter(|name| set.has(name)) {
        let workload = workload::read(&set.file(name))?;
        let conversation = peer.workload(&set.file(name))?;
        let pace = Pace::new(args.pairs, args.seconds);
        let measured = compare::filtered(&workload, conversation, pace).with_context(|| format!("workload {name}"))?;
        eprintln!("{name}, all feasible nodes: {measured}");
        figures.insert(name.to_owned(), measured);
    }
    Ok(figures)
}
