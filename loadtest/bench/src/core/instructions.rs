//! Instructions per claim under callgrind: a figure that does not depend on how busy the machine is, to see a regression with.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Serialize;

use super::Set;
use super::workload;
use crate::report;

/// Small enough for a machine that is fifty times slower.
const WORKLOADS: &[&str] = &["a-gpu-100", "b-pcie-100", "c-mig-50", "e-nic-100", "f-first-200"];

/// The function whose instructions, with those of all it calls, are counted.
const COUNTED: &str = "*decide_and_take*";

#[derive(Serialize)]
struct Figure {
    claims: usize,
    instructions: u64,
    instructions_per_claim: f64,
}

/// Runs each workload under callgrind. Without valgrind the figure is left out, and that is said.
pub(super) fn run(set: &Set) -> anyhow::Result<()> {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        println!("instructions: left out, valgrind is not installed");
        return Ok(());
    }
    let mut figures = BTreeMap::new();
    let mut table = report::table(&["workload", "claims", "instructions per claim"]);
    for &name in WORKLOADS.iter().filter(|name| set.has(name)) {
        let instructions = count(&set.file(name)).with_context(|| format!("workload {name}"))?;
        let claims = workload::read(&set.file(name))?.claims.len();
        let instructions_per_claim = instructions as f64 / claims as f64;
        table.add_row([name.to_owned(), claims.to_string(), format!("{instructions_per_claim:.0}")]);
        figures.insert(
            name,
            Figure {
                claims,
                instructions,
                instructions_per_claim,
            },
        );
    }
    ensure!(!figures.is_empty(), "the set has none of {}", WORKLOADS.join(", "));
    println!("{table}");
    report::write("core-instructions", &figures)
}

fn count(file: &Path) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(std::env::current_exe()?)
        .args(["core", "replay"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .context("cannot run valgrind")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the replay under valgrind failed: {told}");
    collected(&told).with_context(|| format!("valgrind does not tell what it collected: {told}"))
}

/// Reads the line `==123== Collected : 456`.
fn collected(told: &str) -> Option<u64> {
    let line = told.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// What runs under callgrind.
pub(super) fn replay(file: &Path) -> anyhow::Result<()> {
    let replay = workload::replay(&workload::read(file)?, 0);
    println!("{} claims", black_box(replay).outcomes.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_last_word_of_its_line() {
        let told = "==7== Callgrind\n==7== Events    : Ir\n==7== Collected : 1234567\n==7== \n";
        assert_eq!(collected(told), Some(1_234_567));
        assert_eq!(collected("==7== nothing"), None);
    }
}
