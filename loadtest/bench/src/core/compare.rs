//! One workload: the reference and ours, alternating, over the same claims.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::ensure;
use comfy_table::Table;
use serde::Serialize;

use structured::conformance::{Outcome, Workload};

use super::workload::{self, Replay, medians_per_claim};
use crate::peer::{ClaimReport, Conversation, Mode, RunOrder, RunReport};
use crate::report::{self, median};

/// Workers of kube-scheduler's node filter by default.
const SCHEDULER_WORKERS: usize = 16;

/// Replays of ours when nothing is compared.
const PAIRS_ALONE: usize = 5;

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pairs: usize,
    /// Of the reference, over all pairs. Infinite: to the end.
    seconds: f64,
}

impl Pace {
    pub(super) const ONCE_TO_THE_END: Self = Self {
        pairs: 1,
        seconds: f64::INFINITY,
    };

    pub(super) fn new(pairs: usize, seconds: f64) -> Self {
        let pairs = pairs.max(1);
        Self { pairs, seconds }
    }

    /// The wire knows no infinity: 0 is no limit there.
    fn seconds_of_run(self) -> f64 {
        if self.seconds.is_finite() {
            self.seconds / self.pairs as f64
        } else {
            0.0
        }
    }

    /// Whether another pair is due: a workload whose single claim takes long uses its time up at once.
    fn goes_on(self, pairs_done: usize, nanos_spent: u64) -> bool {
        pairs_done < self.pairs && nanos_spent as f64 / 1e9 < self.seconds
    }
}

/// Times of one side, in microseconds per claim: the reference's are medians of its runs' figures, ours are of each claim's median over the
/// replays.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Side {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
    pub(super) mean_us: f64,
    pub(super) cpu_us: f64,
    /// p99 / p50.
    pub(super) tail: f64,
}

/// The reference beside us. Ratios are theirs over ours, over the same first claims: how many times faster we are.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Beside {
    peer_us: f64,
    peer_p99_us: f64,
    peer_mean_us: f64,
    peer_cpu_us: f64,
    /// Claims that the reference was given time for.
    peer_claims: usize,
    peer_gave_up: usize,
    /// What it answered and how that differs from the expected outcome, if it does.
    peer_difference: Option<String>,
    /// Mean wall time per claim; median of the pairs. A lower bound where the reference gave up.
    pub(super) ratio_to_peer: f64,
    ratio_min: f64,
    ratio_max: f64,
    cpu_ratio: f64,
    pairs: usize,
}

impl Beside {
    pub(super) fn mean_us(&self) -> f64 {
        self.peer_mean_us
    }

    pub(super) fn n_claims(&self) -> usize {
        self.peer_claims
    }
}

/// What is known of a workload.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    pub(super) claims: usize,
    pub(super) allocated: usize,
    none: usize,
    /// The first outcome of ours that is not the expected one.
    pub(super) difference: Option<String>,
    ours_us: f64,
    pub(super) ours_total_ms: f64,
    /// Slowest claim of all runs.
    pub(super) ours_worst_us: f64,
    pub(super) ours: Side,
    #[serde(flatten)]
    pub(super) peer: Option<Beside>,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} claims, ours {} us", self.claims, short(self.ours.mean_us))?;
        if let Some(peer) = &self.peer {
            write!(f, ", reference {} us over {}", short(peer.peer_mean_us), peer.peer_claims)?;
        }
        match &self.difference {
            Some(difference) => write!(f, ", DIFFERS: {difference}"),
            None => Ok(()),
        }
    }
}

/// Runs both sides in turn.
pub(super) fn workload(
    workload: &Workload,
    expected: &[Outcome],
    conversation: Option<Conversation>,
    pace: Pace,
) -> anyhow::Result<Compared> {
    ensure!(
        expected.len() == workload.claims.len(),
        "{} claims, but {} expected outcomes",
        workload.claims.len(),
        expected.len()
    );
    let Some(mut conversation) = conversation else {
        let replays: Vec<_> = (0..PAIRS_ALONE).map(|_| workload::replay(workload, 0)).collect();
        return Ok(summary(workload, expected, &replays, None));
    };
    let order = RunOrder {
        mode: Mode::Seq,
        workers: 1,
        max_seconds: pace.seconds_of_run(),
    };
    let mut runs: Vec<RunReport> = Vec::new();
    let mut replays: Vec<Replay> = Vec::new();
    let mut spent = 0;
    while pace.goes_on(runs.len(), spent) {
        conversation.ask(&order)?;
        let run: RunReport = conversation.answer()?;
        ensure!(!run.claims.is_empty(), "the reference decided no claim");
        replays.push(workload::replay(workload, run.claims.len()));
        spent += run.claims.iter().map(|claim| claim.nanos).sum::<u64>();
        runs.push(run);
    }
    let beside = beside(expected, &runs, &replays);
    Ok(summary(workload, expected, &replays, Some(beside)))
}

fn summary(workload: &Workload, expected: &[Outcome], replays: &[Replay], peer: Option<Beside>) -> Compared {
    let outcomes = replays.iter().flat_map(|replay| expected.iter().zip(&replay.outcomes));
    let difference = first_difference(outcomes.map(|(wanted, got)| (wanted, got.clone())));
    let count = |outcome: &str| expected.iter().filter(|line| line.outcome == outcome).count();
    let cpu_nanos = median(replays.iter().map(|replay| replay.cpu_nanos as f64).collect());
    let mut ours = side_of_run(medians_per_claim(replays), 0);
    ours.cpu_us = cpu_nanos / 1e3 / workload.claims.len() as f64;
    let of_run = |replay: &Replay| replay.nanos.iter().sum::<u64>() as f64 / 1e6;
    let worst = replays.iter().flat_map(|replay| &replay.nanos).max();
    Compared {
        claims: workload.claims.len(),
        allocated: count("allocated"),
        none: count("none"),
        difference,
        ours_us: ours.p50_us,
        ours_total_ms: median(replays.iter().map(of_run).collect()),
        ours_worst_us: worst.map_or(f64::NAN, |nanos| *nanos as f64 / 1e3),
        ours,
        peer,
    }
}

fn beside(expected: &[Outcome], runs: &[RunReport], replays: &[Replay]) -> Beside {
    let theirs = side(runs.iter().map(|run| (nanos_of(run), run.cpu_nanos)));
    let ratios: Vec<f64> = runs
        .iter()
        .zip(replays)
        .map(|(run, replay)| wall_ratio(run, replay))
        .collect();
    let cpu_ratios = runs.iter().zip(replays).map(|(run, replay)| cpu_ratio(run, replay));
    let answers = runs.iter().flat_map(|run| expected.iter().zip(&run.claims));
    // A search that it gave up is no answer.
    let answers = answers.filter(|(_, claim)| claim.outcome != "timeout");
    Beside {
        peer_us: theirs.p50_us,
        peer_p99_us: theirs.p99_us,
        peer_mean_us: theirs.mean_us,
        peer_cpu_us: theirs.cpu_us,
        peer_claims: runs.iter().map(|run| run.claims.len()).max().unwrap_or(0),
        peer_gave_up: runs.iter().map(|run| run.gave_up).max().unwrap_or(0),
        peer_difference: first_difference(answers.map(|(wanted, claim)| (wanted, outcome_of(claim)))),
        ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratio_max: ratios.iter().copied().fold(0.0, f64::max),
        ratio_to_peer: median(ratios),
        cpu_ratio: median(cpu_ratios.collect()),
        pairs: runs.len(),
    }
}

/// Mean wall time per claim, theirs over ours, over the claims that the reference decided.
fn wall_ratio(run: &RunReport, replay: &Replay) -> f64 {
    let ours: u64 = replay.nanos.iter().take(run.claims.len()).sum();
    let theirs: u64 = run.claims.iter().map(|claim| claim.nanos).sum();
    theirs as f64 / ours.max(1) as f64
}

/// The same of CPU time: theirs of the whole process, ours of the one thread.
fn cpu_ratio(run: &RunReport, replay: &Replay) -> f64 {
    run.cpu_nanos as f64 / replay.cpu_nanos_prefix.max(1) as f64
}

fn nanos_of(run: &RunReport) -> Vec<u64> {
    run.claims.iter().map(|claim| claim.nanos).collect()
}

fn outcome_of(claim: &ClaimReport) -> Outcome {
    Outcome {
        outcome: claim.outcome.clone(),
        node: claim.node.clone(),
        devices: claim.devices.clone(),
        nodes_tried: 0,
    }
}

fn first_difference<'a>(mut pairs: impl Iterator<Item = (&'a Outcome, Outcome)>) -> Option<String> {
    let (wanted, got) = pairs.find(|(wanted, got)| !wanted.agrees(got))?;
    Some(format!("expected {wanted:?}, got {got:?}"))
}

/// Times per claim of each run, with the run's CPU time.
pub(super) fn side(runs: impl Iterator<Item = (Vec<u64>, u64)>) -> Side {
    let per_run: Vec<Side> = runs.map(|(nanos, cpu_nanos)| side_of_run(nanos, cpu_nanos)).collect();
    let middle = |of: fn(&Side) -> f64| median(per_run.iter().map(of).collect());
    Side {
        p50_us: middle(|side| side.p50_us),
        p99_us: middle(|side| side.p99_us),
        max_us: middle(|side| side.max_us),
        mean_us: middle(|side| side.mean_us),
        cpu_us: middle(|side| side.cpu_us),
        tail: middle(|side| side.tail),
    }
}

fn side_of_run(mut nanos: Vec<u64>, cpu_nanos: u64) -> Side {
    let n = nanos.len() as f64;
    let sum: u64 = nanos.iter().sum();
    nanos.sort_unstable();
    let at = |percent: usize| nanos[(nanos.len() * percent / 100).min(nanos.len() - 1)] as f64 / 1e3;
    Side {
        p50_us: at(50),
        p99_us: at(99),
        max_us: at(100),
        mean_us: sum as f64 / n / 1e3,
        cpu_us: cpu_nanos as f64 / n / 1e3,
        tail: at(99) / at(50),
    }
}

/// The head of this table names what is compared; ratios are how many times faster we are.
pub(super) fn table(workloads: &BTreeMap<String, Compared>) -> Table {
    let mut table = report::table(&[
        "workload",
        "claims",
        "ours p50",
        "p99",
        "mean us",
        "CPU us",
        "reference p50",
        "p99",
        "mean us",
        "claims",
        "ratio (min..max)",
        "CPU ratio",
        "gave up",
    ]);
    for (name, compared) in workloads {
        let ours = &compared.ours;
        let mut row = vec![name.clone(), compared.claims.to_string()];
        row.extend([ours.p50_us, ours.p99_us, ours.mean_us, ours.cpu_us].map(short));
        match &compared.peer {
            None => row.extend(std::iter::repeat_n("-".to_owned(), 7)),
            Some(peer) => {
                row.extend([peer.peer_us, peer.peer_p99_us, peer.peer_mean_us].map(short));
                row.push(peer.peer_claims.to_string());
                row.push(format!(
                    "{} ({}..{})",
                    short(peer.ratio_to_peer),
                    short(peer.ratio_min),
                    short(peer.ratio_max)
                ));
                row.extend([short(peer.cpu_ratio), peer.peer_gave_up.to_string()]);
            }
        }
        if compared.difference.is_some() {
            row[0].push_str(" DIFFERS");
        }
        table.add_row(row);
    }
    table
}

/// Three digits, however large.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The reference filtering nodes as kube-scheduler does, beside our `place`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Filtered {
    /// Claims that the reference with all its workers was given time for, and with one worker.
    peer_claims: usize,
    peer_one_worker_claims: usize,
    ours_mean_us: f64,
    peer_mean_us: f64,
    peer_cpu_us: f64,
    peer_one_worker_mean_us: f64,
    /// Wall time, the reference on all cores.
    pub(super) ratio_to_peer: f64,
    ratio_min: f64,
    ratio_max: f64,
    /// Wall time, one thread each.
    one_worker_ratio: f64,
    pub(super) cpu_ratio: f64,
    pairs: usize,
}

impl fmt::Display for Filtered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ours {} us, reference {} us",
            short(self.ours_mean_us),
            short(self.peer_mean_us)
        )
    }
}

/// Runs the reference's filter with 16 workers and with one, and ours, in turn.
pub(super) fn filtered(workload: &Workload, mut conversation: Conversation, pace: Pace) -> anyhow::Result<Filtered> {
    let order = |workers| RunOrder {
        mode: Mode::Sched,
        workers,
        max_seconds: pace.seconds_of_run() / 2.0,
    };
    let (mut many, mut one, mut replays) = (Vec::new(), Vec::new(), Vec::new());
    let mut spent = 0;
    while pace.goes_on(many.len(), spent) {
        for (workers, runs) in [(SCHEDULER_WORKERS, &mut many), (1, &mut one)] {
            conversation.ask(&order(workers))?;
            let run: RunReport = conversation.answer()?;
            ensure!(!run.claims.is_empty(), "the reference decided no claim");
            spent += run.claims.iter().map(|claim| claim.nanos).sum::<u64>();
            runs.push(run);
        }
        let n_claims = many.last().map_or(0, |run| run.claims.len());
        replays.push(workload::replay(workload, n_claims));
    }
    let n_claims = |runs: &[RunReport]| runs.iter().map(|run| run.claims.len()).max().unwrap_or(0);
    let ratios: Vec<f64> = many
        .iter()
        .zip(&replays)
        .map(|(run, replay)| wall_ratio(run, replay))
        .collect();
    let one_ratios = one.iter().zip(&replays).map(|(run, replay)| {
        let mean = run.claims.iter().map(|claim| claim.nanos).sum::<u64>() as f64 / run.claims.len() as f64;
        let n = run.claims.len().min(replay.nanos.len());
        mean * n as f64 / replay.nanos.iter().take(n).sum::<u64>().max(1) as f64
    });
    let cpu_ratios = many.iter().zip(&replays).map(|(run, replay)| cpu_ratio(run, replay));
    let of_peer = |runs: &[RunReport]| side(runs.iter().map(|run| (nanos_of(run), run.cpu_nanos)));
    let n_prefix = n_claims(&many);
    let prefixes = replays.iter().map(|replay| {
        let prefix: Vec<u64> = replay.nanos.iter().take(n_prefix).copied().collect();
        (prefix, replay.cpu_nanos_prefix)
    });
    Ok(Filtered {
        peer_claims: n_prefix,
        peer_one_worker_claims: n_claims(&one),
        ours_mean_us: side(prefixes).mean_us,
        peer_mean_us: of_peer(&many).mean_us,
        peer_cpu_us: of_peer(&many).cpu_us,
        peer_one_worker_mean_us: of_peer(&one).mean_us,
        ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratio_max: ratios.iter().copied().fold(0.0, f64::max),
        one_worker_ratio: median(one_ratios.collect()),
        cpu_ratio: median(cpu_ratios.collect()),
        pairs: many.len(),
        ratio_to_peer: median(ratios),
    })
}

/// With a note on what is compared.
pub(super) fn filtered_table(figures: &BTreeMap<String, Filtered>) -> String {
    let mut table = report::table(&[
        "sched style",
        "ours mean us",
        "reference, 16 workers",
        "claims",
        "ratio (min..max)",
        "CPU ratio",
        "one worker, us",
        "ratio",
    ]);
    for (name, figure) in figures {
        table.add_row([
            name.clone(),
            short(figure.ours_mean_us),
            short(figure.peer_mean_us),
            figure.peer_claims.to_string(),
            format!(
                "{} ({}..{})",
                short(figure.ratio_to_peer),
                short(figure.ratio_min),
                short(figure.ratio_max)
            ),
            short(figure.cpu_ratio),
            short(figure.peer_one_worker_mean_us),
            short(figure.one_worker_ratio),
        ]);
    }
    format!(
        "{table}\nThe reference filters nodes as kube-scheduler does, until enough fit, with 16 workers on all cores or with one; ours is `place` in one \
         thread, which finds the node of first fit without listing the others. Both end with a claim allocated; only the reference has a list to score."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_over_the_claims_that_both_decided() {
        let claim = |nanos| ClaimReport {
            outcome: "none".to_owned(),
            node: None,
            devices: Vec::new(),
            nanos,
        };
        let run = RunReport {
            claims: vec![claim(3_000), claim(5_000)],
            gave_up: 0,
            cpu_nanos: 9_000,
        };
        let replay = Replay {
            nanos: vec![100, 300, 1_000_000],
            cpu_nanos_prefix: 0,
            cpu_nanos: 0,
            outcomes: Vec::new(),
        };
        assert!((wall_ratio(&run, &replay) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn a_claim_counts_with_its_median_over_replays() {
        let replay = |nanos: [u64; 2]| Replay {
            nanos: nanos.to_vec(),
            cpu_nanos_prefix: 0,
            cpu_nanos: 0,
            outcomes: Vec::new(),
        };
        let replays = [replay([5, 900]), replay([7, 20]), replay([800, 10])];
        assert_eq!(medians_per_claim(&replays), [7, 20]);
    }

    #[test]
    fn percentiles_of_a_run_are_in_microseconds() {
        let side = side_of_run((1..=100).rev().map(|n| n * 1_000).collect(), 200_000);
        assert_eq!((side.p50_us, side.p99_us, side.max_us), (51.0, 100.0, 100.0));
        assert_eq!((side.mean_us, side.cpu_us), (50.5, 2.0));
    }

    #[test]
    fn a_workload_that_uses_its_time_up_is_not_repeated() {
        let pace = Pace::new(5, 8.0);
        assert!(pace.goes_on(0, 0));
        assert!(pace.goes_on(4, 7_900_000_000));
        assert!(!pace.goes_on(5, 0));
        assert!(!pace.goes_on(1, 10_000_000_000));
        assert!((pace.seconds_of_run() - 1.6).abs() < 1e-9);
        assert!(!Pace::ONCE_TO_THE_END.goes_on(1, 400));
    }
}
