//! Which nodes are worth opening for a wish.
//!
//! For each wish tried lately a set of nodes that may serve it: all at first, minus those where the search failed. Taking
//! devices never helps a wish, so a failure stands until something of the node gets better (a release, a slice, a label).
//! Equal claims therefore never open a full node twice, and a node that changes is one bit per wish.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::bits::RankSet;
use crate::cluster::{Cluster, NodeNumber};
use crate::fault::Fault;
use crate::signature::Signature;

/// Wishes remembered; the one not asked for longest gives way.
const WISHES_MAX: usize = 256;

/// The nodes that may serve one wish.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) may_fit: RankSet,
    /// The faults of pools that kept nodes out, by rank.
    pub(crate) node_faults: BTreeMap<usize, Fault>,
    all_woken_at: u64,
    last_asked: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NodeIndex {
    /// Nodes in the order of first fit.
    ranked: Vec<NodeNumber>,
    rank_of: Vec<usize>,
    is_current: bool,
    wishes: FxHashMap<Signature, Wish>,
    all_woken_at: u64,
    clock: u64,
}

impl NodeIndex {
    /// The order of nodes has to be worked out again, and with it everything that is kept by rank.
    pub(crate) fn on_nodes_changed(&mut self) {
        self.is_current = false;
        self.wishes.clear();
    }

    /// The node is worth another look for every wish.
    pub(crate) fn wake(&mut self, node: NodeNumber) {
        if !self.is_current {
            return;
        }
        if let Some(rank) = self.rank_of.get(node).copied() {
            self.wishes.values_mut().for_each(|wish| wish.may_fit.insert(rank));
        }
    }

    /// Every node is worth another look.
    pub(crate) fn wake_all(&mut self) {
        self.all_woken_at += 1;
    }

    pub(crate) fn refresh(&mut self, cluster: &Cluster) {
        if self.is_current {
            return;
        }
        self.ranked = cluster.nodes_in_order();
        self.rank_of = vec![usize::MAX; self.ranked.iter().max().map_or(0, |node| node + 1)];
        for (rank, node) in self.ranked.iter().enumerate() {
            self.rank_of[*node] = rank;
        }
        self.wishes.clear();
        self.is_current = true;
    }

    pub(crate) fn node_at(&self, rank: usize) -> NodeNumber {
        self.ranked[rank]
    }

    pub(crate) fn ranked(&self) -> &[NodeNumber] {
        &self.ranked
    }

    /// Takes the wish out, to be put back with [`NodeIndex::put_back`]. `may_fit` is asked about each node if the wish is not known.
    pub(crate) fn take(&mut self, signature: &Signature, may_fit: impl Fn(NodeNumber) -> bool) -> Wish {
        self.clock += 1;
        let known = self
            .wishes
            .remove(signature)
            .filter(|wish| wish.all_woken_at == self.all_woken_at);
        let mut wish = known.unwrap_or_else(|| Wish {
            may_fit: RankSet::of(self.ranked.len(), |rank| may_fit(self.ranked[rank])),
            node_faults: BTreeMap::new(),
            all_woken_at: self.all_woken_at,
            last_asked: 0,
        });
        wish.last_asked = self.clock;
        wish
    }

    pub(crate) fn put_back(&mut self, signature: &Signature, wish: Wish) {
        if self.wishes.len() >= WISHES_MAX {
            let oldest = self
                .wishes
                .iter()
                .min_by_key(|(_, wish)| wish.last_asked)
                .map(|(signature, _)| signature.clone());
            oldest.and_then(|signature| self.wishes.remove(&signature));
        }
        self.wishes.insert(signature.clone(), wish);
    }
}
