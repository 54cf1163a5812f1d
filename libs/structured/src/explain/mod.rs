//! Why a unit has no devices, and what is missing: asked for after a refusal, never worked out by a decision.

mod closest;
mod nearest_miss;
mod reasons;
mod refusal;
mod what_if;

use std::fmt;

use crate::cluster::Cluster;
use crate::learned::Learned;
use crate::request::CompiledUnit;

pub use nearest_miss::{Change, NearestMiss};
pub use reasons::{Reason, RequestReasons};
pub use refusal::{Unallocatable, UnallocatableKind};

use closest::{Candidate, Distance, Nearest, Where};
use reasons::Counting;

/// Requests named in the one-line text.
const REQUESTS_TOLD_MAX: usize = 3;

/// A refusal with its reasons. Prints as one line that a person can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What is explained.
    pub refusal: Unallocatable,
    /// Counted reasons, one entry per request or alternative; empty for faults of the claim.
    pub requests: Vec<RequestReasons>,
    /// What would have to change; `None` unless the answer was "does not fit", or if nothing was found within the budget.
    pub nearest_miss: Option<NearestMiss>,
}

/// Explains a refusal of the unit: by `place` over all schedulable nodes (`node`: `None`), or by `allocate_on` for one.
///
/// Looks at the cluster as it is now. O(pools × requests), a pool that several nodes see is counted once; then a bounded number of
/// decisions on the few nodes that are nearest by counts.
#[must_use]
pub fn explain(cluster: &Cluster, unit: &CompiledUnit, node: Option<&str>, refusal: &Unallocatable) -> Explanation {
    let mut explanation = Explanation {
        refusal: refusal.clone(),
        requests: Vec::new(),
        nearest_miss: None,
    };
    if matches!(refusal.kind, UnallocatableKind::ClaimFault | UnallocatableKind::Cancelled) {
        return explanation;
    }
    let mut learned = cluster.learned();
    let mut counting = Counting::new(unit, cluster.features());
    let mut nearest = Nearest::default();
    let mut unschedulable = Nearest::default();
    match node {
        None if cluster.n_nodes() > 0 => count_all(cluster, &mut learned, &mut counting, &mut nearest, &mut unschedulable),
        node => count_one(cluster, &mut learned, &mut counting, &mut nearest, node.unwrap_or_default()),
    }
    explanation.requests = counting.finish();
    if refusal.kind == UnallocatableKind::DoesNotFit {
        explanation.nearest_miss = closest::nearest_miss(cluster, &mut learned, unit, &nearest.0, &unschedulable.0);
    }
    explanation
}

fn count_all<'a>(
    cluster: &Cluster,
    learned: &mut Learned,
    counting: &mut Counting<'_>,
    nearest: &mut Nearest<'a>,
    unschedulable: &mut Nearest<'a>,
) {
    learned.index.refresh(cluster);
    let nodes = learned.index.in_order().collect::<Vec<_>>();
    // Building one view may move others, so all of them are built before anything is counted.
    for node in &nodes {
        cluster.node_view(learned, *node);
    }
    for node in nodes {
        let is_schedulable = cluster.node(node).is_some_and(|node| node.is_schedulable());
        let Some(view) = cluster.node_view(learned, node) else {
            continue;
        };
        let tallies = if is_schedulable {
            counting.add_node(&view)
        } else {
            counting.look_at(&view)
        };
        let candidate = Candidate {
            node: Where::Known(node),
            distance: Distance::of(counting.unit(), &tallies),
            tallies,
        };
        if is_schedulable { &mut *nearest } else { &mut *unschedulable }.add(candidate);
    }
}

fn count_one<'a>(
    cluster: &Cluster,
    learned: &mut Learned,
    counting: &mut Counting<'_>,
    nearest: &mut Nearest<'a>,
    name: &'a str,
) {
    let known = cluster.node_number(name).filter(|number| cluster.node(*number).is_some());
    let (node, view) = match known {
        Some(number) => (Where::Known(number), cluster.node_view(learned, number)),
        None => (Where::Stranger(name), Some(cluster.stranger_view(learned, name))),
    };
    if let Some(view) = view {
        let tallies = counting.add_node(&view);
        nearest.add(Candidate {
            node,
            distance: Distance::of(counting.unit(), &tallies),
            tallies,
        });
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.refusal.kind, &self.refusal.fault) {
            (UnallocatableKind::Cancelled | UnallocatableKind::ClaimFault, _) => return write!(f, "{}", self.refusal),
            (UnallocatableKind::Undecided, _) | (_, Some(_)) => write!(f, "{}; ", self.refusal)?,
            (_, None) => {}
        }
        let mut told = 0;
        for reasons in self
            .requests
            .iter()
            .filter(|reasons| reasons.is_short())
            .take(REQUESTS_TOLD_MAX)
        {
            f.write_str(if told == 0 { "" } else { "; " })?;
            write!(f, "{reasons}")?;
            told += 1;
        }
        match (told, self.requests.is_empty()) {
            (0, true) => f.write_str("no node to look at")?,
            (0, false) => f.write_str("every request finds devices on its own, but no node has them together")?,
            _ => {}
        }
        match &self.nearest_miss {
            Some(miss) => write!(f, "; {miss}"),
            None => Ok(()),
        }
    }
}
