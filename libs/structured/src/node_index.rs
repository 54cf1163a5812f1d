//! Which nodes are worth opening for a wish.
//!
//! For each wish tried lately a set of nodes that may serve it: all at first, minus those that are short by number and those where the
//! search failed. Taking devices never helps a wish, so a failure stands until something of the node gets better (a release, a
//! slice, a label). Equal claims therefore never open a full node twice, and a node that changes is one bit per wish.
//!
//! Nodes stand in the order of first fit, in blocks of bounded size: one that joins or leaves moves the bits of its block only.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::bits::low_mask;
use crate::cluster::{Cluster, NodeNumber};
use crate::fault::Fault;
use crate::signature::Signature;

/// Wishes remembered; the one not asked for longest gives way.
const WISHES_MAX: usize = 256;

/// Nodes of a block.
const BLOCK: usize = 64;

/// Nodes of a new block: the rest is room for nodes that join.
const BLOCK_FILL: usize = 48;

const NOWHERE: u32 = u32::MAX;

/// Where a node stands in the order of first fit; meaningful until nodes join or leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(usize);

impl Rank {
    /// The place after this one.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The nodes that may serve one wish.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// By block.
    may_fit: Vec<u64>,
    /// The faults of pools that kept nodes out, by name of the node.
    pub(crate) node_faults: BTreeMap<Arc<str>, Fault>,
    /// Some device that many nodes see may serve it.
    uses_wide: bool,
    wide: WideState,
    last_asked: u64,
}

/// What happened so far to pools that many nodes see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WideState {
    slices_changed: u64,
    freed: u64,
}

/// What a new wish starts from.
pub(crate) struct Beginning<F> {
    /// Some device that many nodes see may serve it.
    pub(crate) uses_wide: bool,
    /// Whether the node is worth opening.
    pub(crate) may_fit: F,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NodeIndex {
    blocks: Vec<Vec<NodeNumber>>,
    /// The blocks in the order of their nodes.
    order: Vec<u32>,
    block_of: Vec<u32>,
    is_current: bool,
    wishes: FxHashMap<Signature, Wish>,
    wide: WideState,
    clock: u64,
}

impl NodeIndex {
    /// The order of nodes has to be worked out again, and with it everything that is kept by it.
    pub(crate) fn forget_order(&mut self) {
        self.is_current = false;
        self.wishes.clear();
    }

    /// The node is worth another look for every wish.
    pub(crate) fn wake(&mut self, node: NodeNumber) {
        let Some((block, at)) = self.find(node) else { return };
        for wish in self.wishes.values_mut() {
            wish.may_fit[block] |= 1 << at;
        }
    }

    /// Slices that many nodes see have changed: every node is worth another look.
    pub(crate) fn wake_all(&mut self) {
        self.wide.slices_changed += 1;
    }

    /// A device that many nodes see is free: every node is worth another look for wishes that may use it.
    pub(crate) fn wake_users_of_wide(&mut self) {
        self.wide.freed += 1;
    }

    pub(crate) fn refresh(&mut self, cluster: &Cluster) {
        if self.is_current {
            return;
        }
        let nodes = cluster.nodes_in_order();
        self.blocks = nodes.chunks(BLOCK_FILL).map(<[NodeNumber]>::to_vec).collect();
        self.order = (0..small(self.blocks.len())).collect();
        self.block_of = vec![NOWHERE; nodes.iter().max().map_or(0, |node| node + 1)];
        for (block, nodes) in self.blocks.iter().enumerate() {
            nodes.iter().for_each(|node| self.block_of[*node] = small(block));
        }
        self.wishes.clear();
        self.is_current = true;
    }

    /// A node joins; `is_before` says whether another stands before it.
    pub(crate) fn insert(&mut self, node: NodeNumber, is_before: impl Fn(NodeNumber) -> bool) {
        if !self.is_current {
            return;
        }
        if self.order.is_empty() {
            return self.forget_order();
        }
        let starts_before = |block: &u32| self.blocks[*block as usize].first().is_some_and(|first| is_before(*first));
        let place = self.order.partition_point(starts_before).saturating_sub(1);
        let mut block = self.order[place] as usize;
        let mut at = self.blocks[block].partition_point(|other| is_before(*other));
        if self.blocks[block].len() == BLOCK {
            let new = self.split(place);
            if at > BLOCK / 2 {
                (block, at) = (new, at - BLOCK / 2);
            }
        }
        self.blocks[block].insert(at, node);
        if self.block_of.len() <= node {
            self.block_of.resize(node + 1, NOWHERE);
        }
        self.block_of[node] = small(block);
        for wish in self.wishes.values_mut() {
            let bits = wish.may_fit[block];
            let below = bits & low_mask(at);
            wish.may_fit[block] = below | 1 << at | (bits & !low_mask(at)) << 1;
        }
    }

    /// Moves the upper half of a full block into a new one behind it.
    fn split(&mut self, place: usize) -> usize {
        let (block, new) = (self.order[place] as usize, self.blocks.len());
        let upper = self.blocks[block].split_off(BLOCK / 2);
        upper.iter().for_each(|node| self.block_of[*node] = small(new));
        self.blocks.push(upper);
        self.order.insert(place + 1, small(new));
        for wish in self.wishes.values_mut() {
            wish.may_fit.push(wish.may_fit[block] >> (BLOCK / 2));
            wish.may_fit[block] &= low_mask(BLOCK / 2);
        }
        new
    }

    /// A node leaves.
    pub(crate) fn remove(&mut self, node: NodeNumber) {
        let Some((block, at)) = self.find(node) else { return };
        self.blocks[block].remove(at);
        self.block_of[node] = NOWHERE;
        for wish in self.wishes.values_mut() {
            let bits = wish.may_fit[block];
            wish.may_fit[block] = bits & low_mask(at) | (bits >> 1) & !low_mask(at);
        }
        if self.blocks[block].is_empty() {
            self.order.retain(|other| *other as usize != block);
            if self.order.len() < self.blocks.len() / 2 {
                self.forget_order();
            }
        }
    }

    fn find(&self, node: NodeNumber) -> Option<(usize, usize)> {
        let block = self
            .block_of
            .get(node)
            .filter(|block| self.is_current && **block != NOWHERE)?;
        let block = *block as usize;
        let at = self.blocks[block].iter().position(|other| *other == node)?;
        Some((block, at))
    }

    /// All nodes in order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = NodeNumber> {
        self.order
            .iter()
            .flat_map(|block| self.blocks[*block as usize].iter().copied())
    }

    /// The first node from `rank` on that may serve the wish, and where it stands.
    pub(crate) fn next(&self, wish: &Wish, rank: Rank) -> Option<(Rank, NodeNumber)> {
        let mut place = rank.0 / BLOCK;
        let mut mask = !low_mask(rank.0 % BLOCK);
        while let Some(block) = self.order.get(place) {
            let rest = wish.may_fit[*block as usize] & mask;
            if rest != 0 {
                let at = rest.trailing_zeros() as usize;
                return Some((Rank(place * BLOCK + at), self.blocks[*block as usize][at]));
            }
            place += 1;
            mask = u64::MAX;
        }
        None
    }

    /// The node that stands there cannot serve the wish until something of it gets better.
    pub(crate) fn rule_out(&self, wish: &mut Wish, rank: Rank) {
        let block = self.order[rank.0 / BLOCK] as usize;
        wish.may_fit[block] &= !(1 << (rank.0 % BLOCK));
    }

    /// Takes the wish out, to be put back with [`NodeIndex::put_back`]. `begin` is asked if it is not known.
    pub(crate) fn take<F: Fn(NodeNumber) -> bool>(
        &mut self,
        signature: &Signature,
        begin: impl FnOnce() -> Beginning<F>,
    ) -> Wish {
        self.clock += 1;
        let known = self.wishes.remove(signature).filter(|wish| {
            wish.wide.slices_changed == self.wide.slices_changed && (!wish.uses_wide || wish.wide.freed == self.wide.freed)
        });
        let mut wish = known.unwrap_or_else(|| {
            let Beginning { uses_wide, may_fit } = begin();
            let of_block = |nodes: &Vec<NodeNumber>| {
                let nodes = nodes.iter().enumerate();
                nodes.fold(0, |bits, (at, node)| bits | u64::from(may_fit(*node)) << at)
            };
            Wish {
                may_fit: self.blocks.iter().map(of_block).collect(),
                node_faults: BTreeMap::new(),
                uses_wide,
                wide: self.wide,
                last_asked: 0,
            }
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

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
