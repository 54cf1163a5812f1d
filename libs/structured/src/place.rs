//! Deciding: on one given node, or on the first node that fits.
//!
//! What looks like a scan over nodes is not one: nodes that failed an equal wish before are left out until they change
//! (`node_index`), and a node whose free devices do not suffice by number is turned away before it is searched.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::{Cluster, NodeNumber};
use crate::explain::Unallocatable;
use crate::fault::{Fault, FaultKind, Scope, Stop};
use crate::features::Features;
use crate::learned::Learned;
use crate::limits::Limits;
use crate::node_index::{Beginning, Rank, Wish};
use crate::node_view::{NodeView, Position};
use crate::plan::{self, Plan};
use crate::policy::Policy;
use crate::pool_view::Health;
use crate::request::{Choice, CompiledUnit, Need};
use crate::search::{Answer, Search};

/// Words of devices up to which counting is cheaper than searching.
const WORDS_COUNTED_MAX: usize = 16;

/// Decides for one node, known or not, schedulable or not: the question that the upstream allocator answers.
///
/// Error: that there is no plan; [`explain`](crate::explain()) says why. Cost: grows with the devices that the node sees.
pub fn allocate_on(cluster: &Cluster, unit: &CompiledUnit, node: &str, limits: &Limits<'_>) -> Result<Plan, Unallocatable> {
    let mut learned = cluster.learned();
    let view = match cluster.node_number(node).and_then(|node| cluster.node(node).map(|_| node)) {
        Some(number) => cluster.node_view(&mut learned, number),
        None => Some(cluster.stranger_view(&mut learned, node)),
    };
    let Some(view) = view else {
        return Err(Unallocatable::does_not_fit(None));
    };
    match decide(cluster, unit, &view, limits, &mut 0) {
        Ok(plan) => Ok(plan),
        Err(Stop::Cancelled) => Err(Unallocatable::cancelled()),
        Err(Stop::Fault(fault)) if fault.scope == Scope::Claim => Err(Unallocatable::fault(fault)),
        Err(Stop::Undecided) => Err(Unallocatable::undecided()),
        Err(Stop::Fault(fault)) => Err(Unallocatable::does_not_fit(Some(fault))),
        Err(Stop::DoesNotFit) => Err(Unallocatable::does_not_fit(None)),
    }
}

/// Decides on a schedulable node that fits: the first, or the one that the policy likes best. Without any node, only what is usable
/// everywhere can be given.
///
/// Error: that there is no plan; [`explain`](crate::explain()) says why. Nodes on which a budget ended are passed over; if no other
/// fits, the answer is "undecided".
pub fn place(cluster: &Cluster, unit: &CompiledUnit, policy: Policy, limits: &Limits<'_>) -> Result<Plan, Unallocatable> {
    if cluster.n_nodes() == 0 {
        return allocate_on(cluster, unit, "", limits);
    }
    let mut learned = cluster.learned();
    learned.index.refresh(cluster);
    let uses_wide = cluster.uses_wide(&mut learned.wide_matches, unit);
    let mut wish = learned.index.take(unit.signature(), || Beginning {
        uses_wide,
        may_fit: |node| cluster.n_free_at_most(node, uses_wide) >= unit.least_devices(),
    });
    let mut scan = Scan {
        cluster,
        learned: &mut learned,
        unit,
        wish: &mut wish,
        uses_wide,
        limits,
        steps: 0,
        undecided: false,
    };
    let answer = match policy {
        Policy::FirstFit => scan.first_fit(),
        Policy::Pack | Policy::Spread | Policy::LeastFragmentation => scan.by_score(policy),
    };
    learned.index.put_back(unit.signature(), wish);
    answer
}

/// One look for a node.
pub(crate) struct Scan<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) learned: &'a mut Learned,
    pub(crate) unit: &'a CompiledUnit,
    wish: &'a mut Wish,
    uses_wide: bool,
    limits: &'a Limits<'a>,
    steps: u64,
    undecided: bool,
}

impl Scan<'_> {
    fn first_fit(&mut self) -> Result<Plan, Unallocatable> {
        let mut from = Rank::default();
        while let Some((rank, node)) = self.next_worth_opening(from) {
            from = rank.next();
            if let Some(plan) = self.open(rank, node)? {
                return Ok(plan);
            }
            if self.is_over_budget() {
                break;
            }
        }
        Err(self.refusal())
    }

    /// The first schedulable node from `from` on that is not known or counted to be unable to serve the wish.
    pub(crate) fn next_worth_opening(&mut self, mut from: Rank) -> Option<(Rank, NodeNumber)> {
        while let Some((rank, node)) = self.learned.index.next(self.wish, from) {
            from = rank.next();
            if !self.cluster.node(node).is_some_and(|node| node.is_schedulable()) {
                continue;
            }
            if self.cluster.n_free_at_most(node, self.uses_wide) >= self.unit.least_devices() {
                return Some((rank, node));
            }
            self.learned.index.rule_out(self.wish, rank);
        }
        None
    }

    /// Decides on a node; if it does not fit, it is ruled out until it changes. Error: no node need be tried any more.
    pub(crate) fn open(&mut self, rank: Rank, node: NodeNumber) -> Result<Option<Plan>, Unallocatable> {
        if let Some(entry) = self.cluster.node(node) {
            self.wish.node_faults.remove(&entry.name);
        }
        match self.try_node(node) {
            Ok(plan) => return Ok(Some(plan)),
            Err(Stop::Cancelled) => return Err(Unallocatable::cancelled()),
            Err(Stop::Fault(fault)) if fault.kind.is_pool_trouble() => {
                self.learned.index.rule_out(self.wish, rank);
                if let Some(entry) = self.cluster.node(node) {
                    self.wish.node_faults.insert(Arc::clone(&entry.name), fault);
                }
            }
            Err(Stop::Fault(fault)) => return Err(Unallocatable::fault(fault)),
            Err(Stop::Undecided) => self.undecided = true,
            Err(Stop::DoesNotFit) => self.learned.index.rule_out(self.wish, rank),
        }
        Ok(None)
    }

    fn try_node(&mut self, node: NodeNumber) -> Result<Plan, Stop> {
        let view = self.cluster.node_view(self.learned, node).ok_or(Stop::DoesNotFit)?;
        decide_on(self.cluster, self.unit, &view, self.limits, &mut self.steps)
    }

    /// Whether no more nodes may be opened.
    pub(crate) fn is_over_budget(&mut self) -> bool {
        let is_over = self.steps > self.limits.steps_max;
        self.undecided |= is_over;
        is_over
    }

    /// That no node was found.
    pub(crate) fn refusal(&self) -> Unallocatable {
        if self.undecided {
            return Unallocatable::undecided();
        }
        Unallocatable::does_not_fit(self.wish.node_faults.values().next().cloned())
    }
}

/// Counts, then decides.
pub(crate) fn decide_on(
    cluster: &Cluster,
    unit: &CompiledUnit,
    view: &NodeView<'_>,
    limits: &Limits<'_>,
    steps: &mut u64,
) -> Result<Plan, Stop> {
    if cluster.bad_selector().is_none() && is_short_by_count(unit, view, cluster.features()) {
        return Err(Stop::DoesNotFit);
    }
    decide(cluster, unit, view, limits, steps)
}

/// Whether some request, or all of them together, ask for more devices than are selectable and not held. Errs on the
/// side of searching.
///
/// Only where nothing could fail in a way that the search would have to report: pools that are in order, selectors that
/// fail on no device.
fn is_short_by_count(unit: &CompiledUnit, node: &NodeView<'_>, features: Features) -> bool {
    if node.n_words() > WORDS_COUNTED_MAX || node.pools().iter().any(|pool| !pool.is_usable()) {
        return false;
    }
    let mut open: SmallVec<[u64; WORDS_COUNTED_MAX]> = SmallVec::from_elem(0, node.n_words());
    let mut is_short = false;
    let mut least_in_all = 0;
    for request in unit.claims.iter().flat_map(|claim| &claim.requests) {
        let mut all_short = !request.choices.is_empty();
        let mut least = u64::MAX;
        for choice in &unit.choices[request.choices.clone()] {
            let Need::Exactly(need) = choice.need else { return false };
            let Some(n_open) = count_open(node, choice, features, &mut open) else {
                return false;
            };
            all_short &= n_open < need;
            least = least.min(need);
        }
        is_short |= all_short;
        least_in_all += if request.choices.is_empty() { 0 } else { least };
    }
    let n_open: u64 = open.iter().map(|word| u64::from(word.count_ones())).sum();
    is_short || (least_in_all > n_open && !unit.has_admin_access && !may_share(node, features, &open))
}

/// Whether one of these devices may go to several requests.
fn may_share(node: &NodeView<'_>, features: Features, devices: &[u64]) -> bool {
    features.consumable_capacity
        && devices
            .iter()
            .enumerate()
            .any(|(word, devices)| devices & node.shareable_word(word) != 0)
}

/// How many devices a choice may have that nobody holds, added to `open`; `None`: its selectors fail on one.
fn count_open(node: &NodeView<'_>, choice: &Choice, features: Features, open: &mut [u64]) -> Option<u64> {
    let mut n_open = 0;
    for (word, open) in open.iter_mut().enumerate() {
        let (matching, failing) = node.selectable(choice, word, features);
        if failing != 0 {
            return None;
        }
        let held = if choice.admin_access { 0 } else { node.held_word(word) };
        *open |= matching & !held;
        n_open += u64::from((matching & !held).count_ones());
    }
    Some(n_open)
}

/// The checks before the search, the search, and the plan.
fn decide(
    cluster: &Cluster,
    unit: &CompiledUnit,
    node: &NodeView<'_>,
    limits: &Limits<'_>,
    steps: &mut u64,
) -> Result<Plan, Stop> {
    if limits.is_stopped() {
        return Err(Stop::Cancelled);
    }
    if let Some(problem) = cluster.bad_selector() {
        return Err(Fault::claim(FaultKind::BadNodeSelector, problem).into());
    }
    let features = cluster.features();
    let mut lists = vec![None; unit.choices.len()];
    unit.check_before_search(|choice| {
        let list = all_list(unit, node, features, choice)?;
        let len = list.len() as u64;
        lists[choice.id] = Some(list);
        Ok(Some(len))
    })?;
    let mut search = Search::new(unit, node, features, limits, lists);
    let answer = search.run();
    *steps += search.steps;
    match answer? {
        Answer::Yes => Ok(plan::build(unit, node, features, &search.picks, search.steps)?),
        Answer::No | Answer::Over => Err(invalid_pool(node).map_or(Stop::DoesNotFit, Stop::Fault)),
    }
}

/// The devices of a request in mode All: everything selectable, whether taken or not, that could hold the request empty.
fn all_list(unit: &CompiledUnit, node: &NodeView<'_>, features: Features, choice: &Choice) -> Result<Vec<Position>, Stop> {
    for pool in node.pools() {
        let (kind, problem) = match &pool.health {
            Health::Usable => continue,
            Health::Incomplete => (FaultKind::AllPoolIncomplete, "is being updated".to_owned()),
            Health::Invalid(problem) => (FaultKind::AllPoolInvalid, format!("is invalid: {problem}")),
        };
        let text = format!(
            "{}: allocationMode All, but pool {} {problem}",
            unit.place_of(choice),
            pool.id
        );
        return Err(Fault::claim(kind, text).into());
    }
    let mut list = Vec::new();
    for word in 0..node.n_words() {
        let (matching, failing) = node.selectable(choice, word, features);
        for bit in crate::bits::members_of(matching | failing) {
            let position = Position::try_from(word * 64 + bit).unwrap_or(Position::MAX);
            if failing >> bit & 1 == 1 {
                return Err(node.selector_fault(unit, choice, position).into());
            }
            if could_hold_empty(unit, node, features, choice, position)? {
                list.push(position);
            }
        }
    }
    Ok(list)
}

fn could_hold_empty(
    unit: &CompiledUnit,
    node: &NodeView<'_>,
    features: Features,
    choice: &Choice,
    position: Position,
) -> Result<bool, Stop> {
    if !features.consumable_capacity {
        return Ok(true);
    }
    let (_, pool, local) = node.locate(position);
    match pool.capacity_of(local) {
        None => Ok(choice.capacity.is_empty()),
        Some(facts) => match facts.consumption(&choice.capacity, features.fractional_capacity_range) {
            Ok(found) => Ok(found.is_some()),
            Err(fault) => Err(Fault::capacity(unit, choice, &fault, &pool.device_id(local)).into()),
        },
    }
}

fn invalid_pool(node: &NodeView<'_>) -> Option<Fault> {
    node.pools().iter().find_map(|pool| match &pool.health {
        Health::Invalid(problem) => Some(Fault {
            kind: FaultKind::InvalidPool,
            scope: Scope::Node,
            message: format!("node {}: pool {} is invalid: {problem}", node.name, pool.id),
        }),
        Health::Usable | Health::Incomplete => None,
    })
}
