//! Judges sets of inputs with recorded results: a file or a folder of any mixture of
//! - CEL vectors (`{"vectors" or an array of {id, expression, device, expect}}`, by file name `cel*.json`),
//! - allocator cases (`*.json` in the form of conformance/allocator),
//! - workloads (`workloads/*.json.gz` beside `expected/*.jsonl.gz`),
//! - scenarios (folders with `expect.json` and `input.yaml`): their `allocate`, `consumed` and `allocationConfig` parts.
//!
//! Prints each failure with its difference, and `N passed, M failed`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use structured::conformance::{run_cases, run_scenario, run_workload};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files or folders; folders are searched whole.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Scenarios without a part that is judged here: sequences, which are tests of their own.
    sequences: BTreeSet<String>,
}

impl Tally {
    fn add(&mut self, from: &Path, id: &str, difference: Option<String>) {
        match difference {
            None => self.passed += 1,
            Some(difference) => {
                self.failed += 1;
                println!("FAILED {} {id}\n{difference}", from.display());
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    for path in &args.paths {
        judge(path, &mut tally)?;
    }
    if !tally.sequences.is_empty() {
        let names: Vec<&str> = tally.sequences.iter().map(String::as_str).collect();
        println!("not judged here (steps.md only): {}", names.join(" "));
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    anyhow::ensure!(tally.failed == 0, "some results differ");
    anyhow::ensure!(tally.passed > 0, "nothing of a known form was found");
    Ok(())
}

fn judge(path: &Path, tally: &mut Tally) -> anyhow::Result<()> {
    if path.is_dir() {
        if path.join("expect.json").exists() {
            return scenario(path, tally);
        }
        let mut entries: Vec<PathBuf> = fs::read_dir(path)?
            .map(|entry| entry.map(|e| e.path()))
            .collect::<Result<_, _>>()?;
        entries.sort();
        // Expected outcomes are read with their workloads.
        for entry in entries.iter().filter(|entry| !entry.ends_with("expected")) {
            judge(entry, tally)?;
        }
        return Ok(());
    }
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(".json.gz") {
        return workload(path, &name, tally);
    }
    if !name.ends_with(".json") {
        return Ok(());
    }
    let content = fs::read_to_string(path)?;
    if name.starts_with("cel") {
        let results = device_selectors::vectors::run(&content).with_context(|| format!("{}", path.display()))?;
        for result in results {
            let difference = (!result.agrees()).then(|| result.differences.join("\n"));
            tally.add(path, &result.id, difference);
        }
        return Ok(());
    }
    for verdict in run_cases(&content).with_context(|| format!("{}", path.display()))? {
        tally.add(path, &verdict.id, verdict.difference);
    }
    Ok(())
}

fn scenario(folder: &Path, tally: &mut Tally) -> anyhow::Result<()> {
    let name = folder
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let input = fs::read_to_string(folder.join("input.yaml"))?;
    let expect = fs::read_to_string(folder.join("expect.json"))?;
    let verdicts = run_scenario(&name, &input, &expect).with_context(|| format!("{}", folder.display()))?;
    if verdicts.is_empty() {
        tally.sequences.insert(name);
    }
    for verdict in verdicts {
        tally.add(folder, &verdict.id, verdict.difference);
    }
    Ok(())
}

fn workload(path: &Path, name: &str, tally: &mut Tally) -> anyhow::Result<()> {
    let bare = name.trim_end_matches(".json.gz");
    let expected = path
        .parent()
        .and_then(Path::parent)
        .context("a workload without a set")?
        .join("expected")
        .join(format!("{bare}.jsonl.gz"));
    let verdict = run_workload(&unpack(path)?, &unpack(&expected)?).with_context(|| format!("{}", path.display()))?;
    tally.add(path, &verdict.id, verdict.difference);
    Ok(())
}

fn unpack(path: &Path) -> anyhow::Result<String> {
    let mut content = String::new();
    let file = fs::File::open(path).with_context(|| format!("{}", path.display()))?;
    flate2::read::GzDecoder::new(file).read_to_string(&mut content)?;
    Ok(content)
}
