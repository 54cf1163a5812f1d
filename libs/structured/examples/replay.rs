//! Replays `allocbench/1` workloads and prints time per claim: `replay <bench folder> [name prefix]`.
//!
//! For profiling the core by hand; outcomes are compared with the expected files, and a figure of a workload with a
//! difference counts for nothing.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use structured::conformance::{Workload, run_workload};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: replay <bench folder> [name prefix]")?);
    let prefix = arguments.next().unwrap_or_default();
    let mut paths: Vec<_> = std::fs::read_dir(folder.join("workloads"))?.collect::<Result<_, _>>()?;
    paths.sort_by_key(|entry| entry.file_name());
    println!(
        "{:<18} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "workload", "claims", "load ms", "total ms", "p50 us", "p99 us", "max us"
    );
    for path in paths {
        let name = path.file_name().to_string_lossy().replace(".json.gz", "");
        if !name.starts_with(&prefix) {
            continue;
        }
        let content = unpack(&path.path())?;
        let expected = unpack(&folder.join("expected").join(format!("{name}.jsonl.gz")))?;
        let workload = Workload::parse(&content)?;
        let begun = Instant::now();
        let mut replay = workload.replay();
        let loaded = begun.elapsed();
        let mut times = Vec::with_capacity(workload.n_claims());
        loop {
            let begun = Instant::now();
            if replay.next().is_none() {
                break;
            }
            times.push(begun.elapsed());
        }
        let total: Duration = times.iter().sum();
        times.sort_unstable();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_secs_f64() * 1e6;
        let verdict = run_workload(&content, &expected)?;
        println!(
            "{name:<18} {:>7} {:>9.1} {:>9.2} {:>9.1} {:>9.1} {:>9.1} {}",
            times.len(),
            loaded.as_secs_f64() * 1e3,
            total.as_secs_f64() * 1e3,
            at(50),
            at(99),
            at(100),
            verdict.difference.unwrap_or_default()
        );
    }
    Ok(())
}

fn unpack(path: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}
