//! How the time per claim grows with the number of nodes, with empty, half full and full clusters of family `a`.
//!
//! The claims are the same for all sizes, and full clusters have as many free nodes whatever their size: else the cost would grow
//! because more claims find something, not because there are more nodes to pass over. Each claim's time is its median over replays from a
//! fresh state. The first tenth of the claims is shown apart: it compiles selectors and opens nodes for the first time, once in the life of
//! an allocator.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::Serialize;

use super::compare::short;
use super::generate::{Prefill, Spec};
use super::workload::{self, Replay, medians_per_claim};
use crate::report;

/// The range of the goal line, then the range of a fleet.
const NODES: &[(usize, usize)] = &[
    (100, 8),
    (300, 8),
    (1_000, 8),
    (2_000, 8),
    (5_000, 8),
    (10_000, 10),
    (100_000, 10),
];
/// Largest number of nodes of the goal line.
const GOAL_NODES_MAX: usize = 5_000;
/// As in the set's scaling series.
const CLAIMS: usize = 60;
/// Free nodes of a full cluster, more than the claims need.
const FREE_NODES: usize = 64;
/// Claims that pay for what is done once.
const FIRST_CLAIMS: usize = CLAIMS / 10;

#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) empty: Series,
    pub(super) half: Series,
    /// All but the last 64 nodes in use.
    pub(super) full: Series,
    /// 99 of 100 devices in use, anywhere: few claims find something in the smaller ones.
    sparse: Series,
    /// Time per claim with 99 of 100 devices in use over time per claim half full, per number of nodes.
    sparse_to_half: BTreeMap<usize, f64>,
}

#[derive(Default, Serialize)]
pub(super) struct Series {
    points: BTreeMap<usize, Point>,
    /// Slope of log time over log nodes up to 5,000 nodes, and from 1,000 to 100,000.
    pub(super) exponent: f64,
    exponent_to_100k: f64,
    /// The same with the first claims in the mean.
    exponent_with_first: f64,
}

#[derive(Clone, Copy, Serialize)]
struct Point {
    devices: usize,
    /// Mean over the claims after the first ones.
    us: f64,
    p50_us: f64,
    /// Mean over all claims.
    with_first_us: f64,
    first_claim_us: f64,
    allocated: usize,
}

/// Measures all points; some seconds of generating dominate.
pub(super) fn measure() -> anyhow::Result<Figures> {
    let fills = [
        Prefill::None,
        Prefill::Half,
        Prefill::AllButNodes(FREE_NODES),
        Prefill::NearlyAll,
    ];
    let mut all = fills.map(|_| Series::default());
    for &(nodes, devices_per_node) in NODES {
        let spec = |prefill| Spec {
            seed: 900,
            nodes,
            devices_per_node,
            claims: CLAIMS,
            prefill,
        };
        let mut workload = spec(Prefill::None).workload()?;
        let repeats = if nodes > GOAL_NODES_MAX { 5 } else { 15 };
        for (series, prefill) in all.iter_mut().zip(fills) {
            workload.preallocated = spec(prefill).preallocated();
            let replays: Vec<_> = (0..repeats).map(|_| workload::replay(&workload, 0)).collect();
            series.points.insert(nodes, point(nodes * devices_per_node, &replays));
        }
        eprintln!("growth: {nodes} nodes measured");
    }
    all.iter_mut().for_each(Series::fit);
    let [empty, half, full, sparse] = all;
    let ratio = |(nodes, point): (&usize, &Point)| Some((*nodes, point.us / half.points.get(nodes)?.us));
    Ok(Figures {
        sparse_to_half: sparse.points.iter().filter_map(ratio).collect(),
        empty,
        half,
        full,
        sparse,
    })
}

fn point(devices: usize, replays: &[Replay]) -> Point {
    let nanos = medians_per_claim(replays);
    let mut sorted = nanos[FIRST_CLAIMS..].to_vec();
    sorted.sort_unstable();
    let allocated = |replay: &Replay| replay.outcomes.iter().filter(|o| o.outcome == "allocated").count();
    Point {
        devices,
        us: mean_us(&nanos[FIRST_CLAIMS..]),
        p50_us: sorted[sorted.len() / 2] as f64 / 1e3,
        with_first_us: mean_us(&nanos),
        first_claim_us: nanos[0] as f64 / 1e3,
        allocated: replays.first().map_or(0, allocated),
    }
}

fn mean_us(nanos: &[u64]) -> f64 {
    nanos.iter().sum::<u64>() as f64 / nanos.len() as f64 / 1e3
}

impl Series {
    fn fit(&mut self) {
        let slope_over = |range: std::ops::RangeInclusive<usize>, of: fn(&Point) -> f64| {
            slope(self.points.range(range).map(|(nodes, point)| (*nodes as f64, of(point))))
        };
        let exponent = slope_over(0..=GOAL_NODES_MAX, |point| point.us);
        let exponent_to_100k = slope_over(1_000..=usize::MAX, |point| point.us);
        let exponent_with_first = slope_over(0..=GOAL_NODES_MAX, |point| point.with_first_us);
        (self.exponent, self.exponent_to_100k, self.exponent_with_first) = (exponent, exponent_to_100k, exponent_with_first);
    }
}

/// Least squares through the logarithms.
fn slope(points: impl Iterator<Item = (f64, f64)>) -> f64 {
    let logs: Vec<(f64, f64)> = points.map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let (mean_x, mean_y) = (
        logs.iter().map(|(x, _)| x).sum::<f64>() / n,
        logs.iter().map(|(_, y)| y).sum::<f64>() / n,
    );
    let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    covariance / variance
}

pub(super) fn table(figures: &Figures) -> Table {
    let mut table = report::table(&[
        "us per claim, nodes",
        "devices",
        "empty",
        "first claim",
        "half full",
        "first claim",
        "all but 64 nodes full",
        "first claim",
        "99 % of devices in use",
        "first claim",
        "allocated",
        "99 % / half",
    ]);
    let all = [&figures.empty, &figures.half, &figures.full, &figures.sparse];
    for (nodes, point) in &figures.empty.points {
        let mut row = vec![nodes.to_string(), point.devices.to_string()];
        let points: Vec<&Point> = all.iter().filter_map(|series| series.points.get(nodes)).collect();
        row.extend(points.iter().flat_map(|point| [short(point.us), short(point.first_claim_us)]));
        let allocated: Vec<String> = points.iter().map(|point| point.allocated.to_string()).collect();
        row.push(allocated.join("/"));
        row.push(short(figures.sparse_to_half.get(nodes).copied().unwrap_or(f64::NAN)));
        table.add_row(row);
    }
    let mut add_exponents = |what: &str, exponent: fn(&Series) -> f64| {
        let mut row = vec![what.to_owned(), String::new()];
        row.extend(all.iter().flat_map(|series| [short(exponent(series)), String::new()]));
        table.add_row(row);
    };
    add_exponents("exponent to 5,000", |series| series.exponent);
    add_exponents("exponent 1,000 to 100,000", |series| series.exponent_to_100k);
    add_exponents("exponent to 5,000 with first claims", |series| series.exponent_with_first);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_the_exponent_of_a_power() {
        let square = [1.0, 10.0, 100.0_f64].map(|x| (x, 3.0 * x.powi(2)));
        assert!((slope(square.into_iter()) - 2.0).abs() < 1e-9);
        let level = [1.0, 10.0, 100.0].map(|x| (x, 5.0));
        assert!(slope(level.into_iter()).abs() < 1e-9);
    }
}
