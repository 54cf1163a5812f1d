//! Goal lines of the performance reference, section 6, as far as the allocator alone decides them: 1–8, 20 and 22.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::Serialize;

use super::Figures;
use super::compare::{Compared, Filtered, short};
use crate::report;

/// The trace of line 22.
pub(super) const OPENB: &str = "h-openb";

/// What upstream allocates of it.
const OPENB_ALLOCATED: usize = 6_780;

/// Fewer claims have no 99th percentile.
const TAIL_CLAIMS_MIN: usize = 100;

/// How far a line is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Below,
    /// Must hold for a release.
    Floor,
    /// The claim to make.
    Good,
    /// Worth publishing.
    Record,
}

/// A line with its value.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Goal {
    line: u32,
    what: &'static str,
    value: f64,
    unit: &'static str,
    /// Which workload or size decides.
    decided_by: String,
    floor: f64,
    good: f64,
    record: f64,
    level: Level,
    note: String,
}

/// The worst of several values, and whose it is.
#[derive(Clone, Debug)]
struct Worst {
    value: f64,
    of: String,
}

/// Whether more is better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

/// A line without its value.
struct Line {
    number: u32,
    what: &'static str,
    unit: &'static str,
    better: Better,
    floor: f64,
    good: f64,
    record: f64,
}

impl Line {
    const fn ratio(number: u32, what: &'static str, [floor, good, record]: [f64; 3]) -> Self {
        Self {
            number,
            what,
            unit: "times",
            better: Better::More,
            floor,
            good,
            record,
        }
    }

    const fn limit(number: u32, what: &'static str, unit: &'static str, [floor, good, record]: [f64; 3]) -> Self {
        Self {
            number,
            what,
            unit,
            better: Better::Less,
            floor,
            good,
            record,
        }
    }

    fn level(&self, value: f64) -> Level {
        let reaches = |limit: f64| match self.better {
            Better::More => value >= limit,
            Better::Less => value <= limit,
        };
        [
            (self.record, Level::Record),
            (self.good, Level::Good),
            (self.floor, Level::Floor),
        ]
        .into_iter()
        .find(|(limit, _)| reaches(*limit))
        .map_or(Level::Below, |(_, level)| level)
    }

    fn worst(&self, values: impl Iterator<Item = (String, f64)>) -> Option<Worst> {
        let worst = values.min_by(|(_, a), (_, b)| match self.better {
            Better::More => a.total_cmp(b),
            Better::Less => b.total_cmp(a),
        });
        worst.map(|(of, value)| Worst { value, of })
    }

    fn goal(&self, worst: Worst, note: impl Into<String>) -> Goal {
        Goal {
            line: self.number,
            what: self.what,
            value: worst.value,
            unit: self.unit,
            decided_by: worst.of,
            floor: self.floor,
            good: self.good,
            record: self.record,
            level: self.level(worst.value),
            note: note.into(),
        }
    }
}

/// Every line for which there are figures.
pub(super) fn judge(figures: &Figures) -> Vec<Goal> {
    let mut goals = Vec::new();
    goals.extend(first_fit(&figures.workloads));
    goals.extend(filtered(&figures.sched));
    goals.extend(hard(&figures.workloads));
    goals.extend(tails(&figures.workloads));
    if let Some(growth) = &figures.growth {
        let line = Line::limit(8, "exponent of cost in nodes, 100 to 5,000", "", [0.5, 0.15, 0.05]);
        let series = [("empty", &growth.empty), ("half full", &growth.half), ("full", &growth.full)];
        let worst = line.worst(series.into_iter().map(|(name, series)| (name.to_owned(), series.exponent)));
        goals.extend(worst.map(|worst| line.goal(worst, "without the first claims, which do once what is done once")));
    }
    if let Some(selectors) = &figures.selectors {
        let line = Line::ratio(20, "selector cost per device: reference / ours", [10.0, 100.0, 1_000.0]);
        let worst = Worst {
            value: selectors.ratio_to_peer,
            of: "family a".to_owned(),
        };
        goals.push(line.goal(worst, "our whole time spread over the reference's evaluations"));
    }
    goals.extend(openb(&figures.workloads));
    goals
}

fn ratios<'a>(
    workloads: &'a BTreeMap<String, Compared>,
    is_of_line: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (String, f64)> + 'a {
    let of_line = workloads.iter().filter(move |(name, _)| is_of_line(name));
    // A rate with a wrong outcome does not count.
    let counted = of_line.filter(|(_, compared)| compared.difference.is_none());
    counted.filter_map(|(name, compared)| Some((name.clone(), compared.peer.as_ref()?.ratio_to_peer)))
}

/// Lines 1 and 2.
fn first_fit(workloads: &BTreeMap<String, Compared>) -> Vec<Goal> {
    let mut goals = Vec::new();
    let plain = |name: &str| ["a-", "b-", "e-", "h-"].iter().any(|family| name.starts_with(family));
    // "Good" is two promises: 100 times on 100 nodes, 200 times on 5,000 full ones.
    let on_100 = Line::ratio(1, "first fit, a b e h", [10.0, 100.0, 1_000.0]);
    let worst = on_100.worst(ratios(workloads, plain));
    goals.extend(worst.map(|worst| on_100.goal(worst, "the good level is meant for 100 nodes; see the next line")));
    let small = Line::ratio(1, "first fit, 100 nodes", [10.0, 100.0, 1_000.0]);
    let worst = small.worst(ratios(workloads, |name| plain(name) && name.ends_with("-100")));
    goals.extend(worst.map(|worst| small.goal(worst, "")));
    let full = Line::ratio(1, "first fit, 5,000 full nodes", [10.0, 200.0, 1_000.0]);
    let worst = full.worst(ratios(workloads, |name| name == "a-gpu-5000-full"));
    goals.extend(worst.map(|worst| full.goal(worst, "")));
    let counters = Line::ratio(2, "first fit, c f", [10.0, 50.0, 300.0]);
    let worst = counters.worst(ratios(workloads, |name| name.starts_with("c-") || name.starts_with("f-")));
    goals.extend(worst.map(|worst| counters.goal(worst, "")));
    goals
}

/// Lines 3 and 4.
fn filtered(sched: &BTreeMap<String, Filtered>) -> Vec<Goal> {
    let of = |family: &'static str| {
        let of_family = sched
            .iter()
            .filter(move |(name, _)| family.split(' ').any(|f| name.starts_with(f)));
        of_family.map(|(name, filtered)| (name.clone(), filtered.ratio_to_peer))
    };
    let note = "ours places without listing all feasible nodes; the reference has all cores";
    let local = Line::ratio(3, "sched style, a-1000 a-5000 b-1000", [50.0, 500.0, 2_000.0]);
    let network = Line::ratio(4, "sched style, g-1k g-10k", [50.0, 500.0, 5_000.0]);
    let local = local.worst(of("a- b-")).map(|worst| local.goal(worst, note));
    let network = network.worst(of("g-")).map(|worst| network.goal(worst, note));
    local.into_iter().chain(network).collect()
}

/// Lines 5 and 6: the slowest claim, in milliseconds; the median over runs, and the slowest run in the note.
fn hard(workloads: &BTreeMap<String, Compared>) -> Vec<Goal> {
    let is_cluster = |name: &str| ["d-unsat", "d-needle"].iter().any(|shape| name.starts_with(shape));
    let is_one_node = |name: &str| name.starts_with("d-") && !is_cluster(name) && !name.starts_with("d-part");
    let one_node = Line::limit(5, "hard cases, slowest answer", "ms", [100.0, 5.0, 0.5]);
    let cluster = Line::limit(6, "unsatisfiable and needle, 100 nodes", "ms", [20.0, 2.0, 0.2]);
    let mut goals = Vec::new();
    for (line, is_of_line) in [(one_node, &is_one_node as &dyn Fn(&str) -> bool), (cluster, &is_cluster)] {
        let of_line: Vec<_> = workloads
            .iter()
            .filter(|(name, compared)| is_of_line(name) && compared.difference.is_none())
            .collect();
        let slowest = of_line
            .iter()
            .map(|(_, compared)| compared.ours_worst_us / 1e3)
            .fold(0.0, f64::max);
        let worst = line.worst(
            of_line
                .iter()
                .map(|(name, compared)| ((*name).clone(), compared.ours.max_us / 1e3)),
        );
        let note = format!("{} files, slowest of all runs {} ms", of_line.len(), short(slowest));
        goals.extend(worst.map(|worst| line.goal(worst, note)));
    }
    goals
}

/// Line 7.
fn tails(workloads: &BTreeMap<String, Compared>) -> Option<Goal> {
    let line = Line::limit(7, "p99 / p50", "", [10.0, 5.0, 3.0]);
    let with_tail = workloads
        .iter()
        .filter(|(_, compared)| compared.claims >= TAIL_CLAIMS_MIN && compared.difference.is_none());
    let worst = line.worst(with_tail.map(|(name, compared)| (name.clone(), compared.ours.tail)))?;
    Some(line.goal(worst, format!("workloads of {TAIL_CLAIMS_MIN} claims and more")))
}

/// Line 22. The reference is rarely given the time for all claims; then its mean over the first ones stands for all, which flatters it:
/// its claims get slower as nodes fill up.
fn openb(workloads: &BTreeMap<String, Compared>) -> Option<Goal> {
    let compared = workloads.get(OPENB).filter(|compared| compared.difference.is_none())?;
    let peer = compared.peer.as_ref()?;
    let line = Line::ratio(22, "openb, all claims: reference / ours", [50.0, 500.0, 5_000.0]);
    let theirs_ms = peer.mean_us() * compared.claims as f64 / 1e3;
    let worst = Worst {
        value: theirs_ms / compared.ours_total_ms,
        of: OPENB.to_owned(),
    };
    let extent = if peer.n_claims() == compared.claims {
        "the reference decided all".to_owned()
    } else {
        format!(
            "the reference's mean of its first {} stands for all: at least this much",
            peer.n_claims()
        )
    };
    let note = format!(
        "{} allocated (upstream {OPENB_ALLOCATED}), ours {} ms; {extent}",
        compared.allocated,
        short(compared.ours_total_ms)
    );
    Some(line.goal(worst, note))
}

pub(super) fn table(goals: &[Goal]) -> Table {
    let mut table = report::table(&[
        "line",
        "figure",
        "value",
        "level",
        "floor / good / record",
        "decided by",
        "note",
    ]);
    for goal in goals {
        table.add_row([
            goal.line.to_string(),
            goal.what.to_owned(),
            format!("{} {}", short(goal.value), goal.unit),
            format!("{:?}", goal.level).to_lowercase(),
            format!("{} / {} / {}", goal.floor, goal.good, goal.record),
            goal.decided_by.clone(),
            goal.note.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_inclusive_in_both_directions() {
        let ratio = Line::ratio(1, "", [10.0, 100.0, 1_000.0]);
        assert_eq!(
            [9.9, 10.0, 100.0, 1_000.0].map(|value| ratio.level(value)),
            [Level::Below, Level::Floor, Level::Good, Level::Record]
        );
        let limit = Line::limit(5, "", "ms", [100.0, 5.0, 0.5]);
        assert_eq!(
            [101.0, 100.0, 5.0, 0.5].map(|value| limit.level(value)),
            [Level::Below, Level::Floor, Level::Good, Level::Record]
        );
    }

    #[test]
    fn the_worst_value_decides() {
        let values = || [("x", 3.0), ("y", 1.0)].map(|(of, value)| (of.to_owned(), value)).into_iter();
        let ratio = Line::ratio(1, "", [0.0; 3]).worst(values()).expect("values");
        assert_eq!((ratio.of.as_str(), ratio.value), ("y", 1.0));
        let limit = Line::limit(5, "", "", [0.0; 3]).worst(values()).expect("values");
        assert_eq!((limit.of.as_str(), limit.value), ("x", 3.0));
    }
}
