//! Why a unit has no devices, and what is missing: asked for after a refusal, never worked out by a decision.

mod reasons;
mod refusal;

use std::fmt;

use crate::cluster::Cluster;
use crate::request::CompiledUnit;

pub use reasons::{Reason, RequestReasons};
pub use refusal::{Unallocatable, UnallocatableKind};

/// Requests named in the one-line text.
const REQUESTS_TOLD_MAX: usize = 3;

/// A refusal with its reasons. Prints as one line that a person can act on.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What is explained.
    pub refusal: Unallocatable,
    /// Counted reasons, one entry per request or alternative; empty for faults of the claim.
    pub requests: Vec<RequestReasons>,
}

/// Explains a refusal of the unit: by `place` over all schedulable nodes (`node`: `None`), or by `allocate_on` for one.
///
/// The counts are those of the cluster as it is now. O(pools × requests); a pool that several nodes see is counted once.
#[must_use]
pub fn explain(cluster: &Cluster, unit: &CompiledUnit, node: Option<&str>, refusal: &Unallocatable) -> Explanation {
    let requests = match refusal.kind {
        UnallocatableKind::DoesNotFit | UnallocatableKind::Undecided => count(cluster, unit, node),
        UnallocatableKind::ClaimFault | UnallocatableKind::Cancelled => Vec::new(),
    };
    Explanation {
        refusal: refusal.clone(),
        requests,
    }
}

fn count(cluster: &Cluster, unit: &CompiledUnit, node: Option<&str>) -> Vec<RequestReasons> {
    let mut learned = cluster.learned();
    let node = match node {
        None if cluster.n_nodes() > 0 => {
            learned.index.refresh(cluster);
            return reasons::on_all_nodes(cluster, &mut learned, unit);
        }
        node => node.unwrap_or_default(),
    };
    match cluster.node_number(node) {
        Some(number) => cluster
            .node_view(&mut learned, number)
            .map(|view| reasons::on_node(cluster, unit, &view)),
        None => Some(reasons::on_node(cluster, unit, &cluster.stranger_view(&mut learned, node))),
    }
    .unwrap_or_default()
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
            (0, true) => f.write_str("no node to look at"),
            (0, false) => f.write_str("every request finds devices on its own, but no node has them together"),
            _ => Ok(()),
        }
    }
}
