//! Other ways than first fit to choose among the nodes that fit. Within the node the devices are those of first fit.
//!
//! A node's score is read off its sets of devices that match and are free, without searching it. Nodes are opened in the order of their
//! scores, so a placement is found exactly if first fit finds one, and nodes that cannot serve the wish stay ruled out as ever.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bits::members_of;
use crate::cluster::NodeNumber;
use crate::constraint::{Rule, ValueKind};
use crate::explain::Unallocatable;
use crate::features::Features;
use crate::node_index::Rank;
use crate::node_view::{NodeView, Position};
use crate::place::Scan;
use crate::plan::Plan;
use crate::pool_view::PoolView;
use crate::request::{Choice, CompiledUnit, Need};
use crate::values::Values;

/// Plans compared before the one that wastes least is taken.
const PLANS_COMPARED_MAX: usize = 8;

/// How `place` chooses among nodes. Among equals, the first in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The first node in order that fits.
    #[default]
    FirstFit,
    /// The node with the fewest free devices that match the unit, to keep other nodes whole.
    Pack,
    /// The node with the most free devices that match the unit, to spread load.
    Spread,
    /// The node where the plan breaks up the fewest groups of devices that are free as a whole: all matching devices of the node,
    /// those that agree on an attribute under `matchAttribute`, those that draw on one counter set. Then the one that leaves the
    /// fewest matching devices free. Compares the plans of up to 8 nodes: first those that are in use already or would be used
    /// whole, then those with the fewest free devices beyond what is needed.
    LeastFragmentation,
}

/// What a plan does to its node; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waste {
    groups_broken: usize,
    devices_left: u64,
}

/// Smaller is opened first.
type Score = (bool, u64);

/// Devices of a node that the unit could use.
#[derive(Clone, Copy, Debug, Default)]
struct Matching {
    free: u64,
    /// Some are held, or shared.
    is_in_use: bool,
}

/// A policy's name that is none of those known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy {0:?}: known are first-fit, pack, spread, least-fragmentation")]
pub struct UnknownPolicy(String);

impl std::str::FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.as_str() == name)
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

impl Policy {
    /// All policies, the default first.
    pub const ALL: [Self; 4] = [Self::FirstFit, Self::Pack, Self::Spread, Self::LeastFragmentation];

    /// The name in settings, for example `first-fit`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstFit => "first-fit",
            Self::Pack => "pack",
            Self::Spread => "spread",
            Self::LeastFragmentation => "least-fragmentation",
        }
    }

    fn score(self, matching: Matching, needed: u64) -> Score {
        match self {
            Self::FirstFit => (false, 0),
            Self::Pack => (false, matching.free),
            Self::Spread => (false, u64::MAX - matching.free),
            Self::LeastFragmentation => {
                let beyond = matching.free.saturating_sub(needed);
                (!matching.is_in_use && beyond > 0, beyond)
            }
        }
    }
}

impl Scan<'_> {
    /// Decides on the node that the policy likes best. O(devices of all nodes that may fit), in words of 64.
    pub(crate) fn by_score(&mut self, policy: Policy) -> Result<Plan, Unallocatable> {
        let mut candidates = self.candidates(policy);
        let mut best: Option<(Waste, Plan)> = None;
        let mut n_compared = 0;
        while let Some(Reverse((_, rank, node))) = candidates.pop() {
            if let Some(plan) = self.open(rank, node)? {
                if policy != Policy::LeastFragmentation {
                    return Ok(plan);
                }
                let waste = self.waste(node, &plan);
                n_compared += 1;
                if best.as_ref().is_none_or(|(least, _)| waste < *least) {
                    best = Some((waste, plan));
                }
            }
            if n_compared == PLANS_COMPARED_MAX || self.is_over_budget() {
                break;
            }
        }
        best.map(|(_, plan)| plan).ok_or_else(|| self.refusal())
    }

    fn candidates(&mut self, policy: Policy) -> BinaryHeap<Reverse<(Score, Rank, NodeNumber)>> {
        let needed = needed(self.unit);
        let mut candidates = Vec::new();
        let mut from = Rank::default();
        while let Some((rank, node)) = self.next_worth_opening(from) {
            from = rank.next();
            let Some(view) = self.cluster.node_view(self.learned, node) else {
                continue;
            };
            let matching = matching(self.unit, &view, self.cluster.features());
            candidates.push(Reverse((policy.score(matching, needed), rank, node)));
        }
        candidates.into()
    }

    fn waste(&mut self, node: NodeNumber, plan: &Plan) -> Waste {
        let Some(view) = self.cluster.node_view(self.learned, node) else {
            return Waste {
                groups_broken: usize::MAX,
                devices_left: u64::MAX,
            };
        };
        let features = self.cluster.features();
        let mut board = Board::of(self.unit, &view, features);
        board.take(plan);
        Waste {
            groups_broken: usize::from(board.is_broken(&board.matching))
                + board.broken_values(self.unit)
                + board.broken_counter_sets(),
            devices_left: board
                .matching
                .iter()
                .filter(|at| board.is_free(**at) && !board.is_taken(**at))
                .count() as u64,
        }
    }
}

/// The fewest devices that a unit takes; those in use by others do not count.
fn needed(unit: &CompiledUnit) -> u64 {
    let requests = unit.claims.iter().flat_map(|claim| &claim.requests);
    let need = |choice: &Choice| match choice.need {
        Need::Exactly(count) if !choice.admin_access => count,
        Need::Exactly(_) | Need::All => 0,
    };
    requests
        .map(|request| unit.choices[request.choices.clone()].iter().map(need).min().unwrap_or(0))
        .sum()
}

/// The devices of a word that some choice selects, in usable pools.
fn selected(unit: &CompiledUnit, view: &NodeView<'_>, word: usize, features: Features) -> u64 {
    if !view.pool_of_word(word).is_usable() {
        return 0;
    }
    let choices = unit.choices.iter();
    choices.fold(0, |all, choice| all | view.selectable(choice, word, features).0)
}

fn matching(unit: &CompiledUnit, view: &NodeView<'_>, features: Features) -> Matching {
    let mut sum = Matching::default();
    for word in 0..view.n_words() {
        let selected = selected(unit, view, word, features);
        let held = view.held_word(word);
        sum.free += u64::from((selected & !held).count_ones());
        sum.is_in_use |= selected & held != 0;
    }
    sum
}

/// One node before and after a plan.
struct Board<'a> {
    view: &'a NodeView<'a>,
    features: Features,
    /// Positions that some choice selects, ascending.
    matching: Vec<Position>,
    /// Positions that the plan takes, ascending.
    taken: Vec<Position>,
}

impl<'a> Board<'a> {
    fn of(unit: &CompiledUnit, view: &'a NodeView<'a>, features: Features) -> Self {
        let positions = |word: usize| {
            let bits = members_of(selected(unit, view, word, features));
            bits.map(move |bit| Position::try_from(word * 64 + bit).unwrap_or(Position::MAX))
        };
        Self {
            view,
            features,
            matching: (0..view.n_words()).flat_map(positions).collect(),
            taken: Vec::new(),
        }
    }

    fn take(&mut self, plan: &Plan) {
        let results = plan.claims.iter().flat_map(|(_, allocation)| &allocation.devices.results);
        let taken: Vec<_> = results
            .filter(|result| result.admin_access != Some(true))
            .map(|result| result.device_id())
            .collect();
        let is_taken = |at: &Position| {
            let (_, pool, local) = self.view.locate(*at);
            taken.contains(&pool.device_id(local))
        };
        self.taken = self.matching.iter().copied().filter(is_taken).collect();
    }

    fn is_free(&self, at: Position) -> bool {
        let (_, pool, local) = self.view.locate(at);
        !pool.is_held(local) && !pool.has_share(local)
    }

    fn is_taken(&self, at: Position) -> bool {
        self.taken.binary_search(&at).is_ok()
    }

    /// Whether a group was free as a whole and is no more, but not used up either.
    fn is_broken(&self, group: &[Position]) -> bool {
        let n_taken = group.iter().filter(|at| self.is_taken(**at)).count();
        0 < n_taken && n_taken < group.len() && group.iter().all(|at| self.is_free(*at))
    }

    /// Groups of devices that agree on an attribute that the unit wants to match.
    fn broken_values(&self, unit: &CompiledUnit) -> usize {
        let mut values = Values::default();
        let mut broken = 0;
        for (at, constraint) in unit.constraints.iter().enumerate() {
            if constraint.rule != Rule::Match {
                continue;
            }
            let mut groups: Vec<((ValueKind, u32), Vec<Position>)> = Vec::new();
            for position in &self.matching {
                let covers = |choice: &&Choice| {
                    let (word, bit) = (*position as usize / 64, position % 64);
                    constraint.covers(choice.id) && self.view.selectable(choice, word, self.features).0 >> bit & 1 == 1
                };
                let Some(choice) = unit.choices.iter().find(covers) else {
                    continue;
                };
                let Ok(Some(value)) = values.get(self.view, unit, at, choice, *position) else {
                    continue;
                };
                for member in &value.members {
                    let key = (value.kind, *member);
                    match groups.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, group)) => group.push(*position),
                        None => groups.push((key, vec![*position])),
                    }
                }
            }
            broken += groups.iter().filter(|(_, group)| self.is_broken(group)).count();
        }
        broken
    }

    /// Counter sets that nobody drew on, that the plan draws on, and of which something is left.
    fn broken_counter_sets(&self) -> usize {
        let mut broken = 0;
        for (pool_at, pool) in self.view.pools().iter().enumerate() {
            let Some(board) = &pool.board else { continue };
            let in_use = |local: usize| pool.is_held(local) || pool.has_share(local);
            let touched: Vec<u32> = sets_of(pool, (0..pool.len()).filter(|local| in_use(*local)));
            let taken: Vec<usize> = self
                .taken
                .iter()
                .map(|at| self.view.locate(*at))
                .filter(|(at, _, _)| *at == pool_at)
                .map(|(_, _, local)| local)
                .collect();
            let mut opened = sets_of(pool, taken.iter().copied());
            opened.retain(|set| !touched.contains(set));
            let mut reserved = board.nothing_reserved();
            taken.iter().for_each(|local| reserved.charge(board, *local));
            let has_rest = |set: &u32| {
                let mut draws = taken.iter().filter_map(|local| board.draws(*local));
                draws.any(|draws| {
                    let of_set = draws.sets.iter().any(|(other, _)| other == set);
                    let is_left = |counter: &u32| {
                        let left = board.left(*counter, Some(&reserved));
                        !left.is_negative() && left.nanos() != 0
                    };
                    of_set && draws.amounts.iter().any(|(counter, _)| is_left(counter))
                })
            };
            broken += opened.iter().filter(|set| has_rest(set)).count();
        }
        broken
    }
}

/// The counter sets that these devices draw on, each once.
fn sets_of(pool: &PoolView, devices: impl Iterator<Item = usize>) -> Vec<u32> {
    let board = pool.board.as_ref();
    let draws = devices.filter_map(|local| board?.draws(local));
    let mut sets: Vec<u32> = draws.flat_map(|draws| draws.sets.iter().map(|(set, _)| *set)).collect();
    sets.sort_unstable();
    sets.dedup();
    sets
}
