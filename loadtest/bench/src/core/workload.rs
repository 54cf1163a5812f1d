//! Replays of `allocbench/1` workloads with time per claim.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use structured::conformance::{Outcome, Workload, decide_and_take};

/// Time per claim of one replay.
pub(crate) struct Replay {
    /// Wall time of compiling, deciding and taking, per claim.
    pub(crate) nanos: Vec<u64>,
    /// CPU time of this thread for the first claims, as many as were asked for, and for all.
    pub(crate) cpu_nanos_prefix: u64,
    pub(crate) cpu_nanos: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Reads a workload's file.
pub(crate) fn read(file: &Path) -> anyhow::Result<Workload> {
    Workload::parse(&unpack(file)?).with_context(|| format!("{}", file.display()))
}

/// Reads the outcomes expected of a workload, one per claim.
pub(crate) fn read_expected(file: &Path) -> anyhow::Result<Vec<Outcome>> {
    Outcome::read_expected(&unpack(file)?).with_context(|| format!("{}", file.display()))
}

/// Decides every claim in order and takes what it is given.
pub(crate) fn replay(workload: &Workload, cpu_prefix: usize) -> Replay {
    let claims = &workload.claims;
    let mut cluster = workload.cluster();
    let mut nanos = Vec::with_capacity(claims.len());
    let mut answers = Vec::with_capacity(claims.len());
    let cpu_before = thread_cpu_nanos();
    let mut cpu_at_prefix = cpu_before;
    for (at, claim) in claims.iter().enumerate() {
        if at == cpu_prefix {
            cpu_at_prefix = thread_cpu_nanos();
        }
        let began = Instant::now();
        let answer = decide_and_take(&mut cluster, claim);
        nanos.push(nanos_since(began));
        answers.push(answer);
    }
    let cpu_after = thread_cpu_nanos();
    if cpu_prefix >= claims.len() {
        cpu_at_prefix = cpu_after;
    }
    Replay {
        nanos,
        cpu_nanos_prefix: cpu_at_prefix - cpu_before,
        cpu_nanos: cpu_after - cpu_before,
        outcomes: answers.iter().map(Outcome::of).collect(),
    }
}

/// Per claim the median of its times: replays are equal, so what differs between them is the machine's doing.
pub(crate) fn medians_per_claim(replays: &[Replay]) -> Vec<u64> {
    let n_claims = replays.iter().map(|replay| replay.nanos.len()).min().unwrap_or(0);
    let of_claim = |claim: usize| {
        let mut nanos: Vec<u64> = replays.iter().map(|replay| replay.nanos[claim]).collect();
        nanos.sort_unstable();
        nanos[nanos.len() / 2]
    };
    (0..n_claims).map(of_claim).collect()
}

fn unpack(file: &Path) -> anyhow::Result<String> {
    let mut content = String::new();
    let packed = std::fs::File::open(file).with_context(|| format!("{}", file.display()))?;
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut content)
        .with_context(|| format!("{}", file.display()))?;
    Ok(content)
}

pub(crate) fn nanos_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this thread.
pub(crate) fn thread_cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock");
    u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX)
}
