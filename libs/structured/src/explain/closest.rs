//! Finding the nearest miss: a few nodes, chosen by counts, on which changes are tried from the cheapest to the dearest.
//!
//! In this order, and the first that helps is told: one cheap change (see [`Change`]) on any of the nodes, a node that is not
//! schedulable, the fewest cheap changes together, one dear change, the fewest changes of any kind together. Among equals the
//! cheaper class, then the node that is nearer by counts. "Fewest" is exact for one and two changes; beyond that the set is
//! one from which nothing can be left out. All of it within a budget of work.

use resource_api::claim::DeviceSelector;
use resource_api::ids::{DeviceId, DeviceName};
use resource_api::quantity::Quantity;
use resource_api::taint::DeviceTaint;

use super::nearest_miss::{Change, NearestMiss};
use super::reasons::{Reason, Tally, removed_by_state};
use super::what_if::{Atom, Dropped, WhatIf, draw, newest_generation, slices_of, sources_of};
use crate::bits::members_of;
use crate::cluster::{Cluster, NodeEntry, NodeNumber};
use crate::constraint::Rule;
use crate::learned::Learned;
use crate::node_view::{NodeView, Position};
use crate::plan::Plan;
use crate::pool_view::{Health, PoolView};
use crate::request::{Choice, CompiledUnit, Need};
use crate::taints;
use crate::values::Values;

/// Nodes looked at closely.
pub(super) const NODES_MAX: usize = 8;

/// Changes of one sort tried on one node.
const ATOMS_MAX: usize = 64;

/// Sets of changes up to this size are tried in pairs for a smaller answer.
const PAIRED_MAX: usize = 24;

/// Search steps and devices looked at, over all attempts of one explanation.
const WORK_MAX: u64 = 200_000;

/// A node, known or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Where<'a> {
    Known(NodeNumber),
    Stranger(&'a str),
}

/// How far a node is from fitting by counts alone; smaller is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Distance {
    /// Requests that the node has not enough devices for, whatever is dropped.
    hopeless: u64,
    /// Requests that need devices which are refused for what they are.
    refused: u64,
    /// At least this many changes.
    changes: u64,
}

impl Distance {
    /// Of a node that has this, per choice.
    pub(super) fn of(unit: &CompiledUnit, tallies: &[Tally]) -> Self {
        let mut sum = Self {
            hopeless: 0,
            refused: 0,
            changes: 0,
        };
        for request in unit.claims.iter().flat_map(|claim| &claim.requests) {
            let choices = unit.choices[request.choices.clone()].iter();
            if let Some(nearest) = choices.map(|choice| Self::of_choice(choice, &tallies[choice.id])).min() {
                sum.hopeless += nearest.hopeless;
                sum.refused += nearest.refused;
                sum.changes += nearest.changes;
            }
        }
        sum
    }

    fn of_choice(choice: &Choice, tally: &Tally) -> Self {
        let held = tally.removed_by(|reason| reason == Reason::Allocated);
        let by_state = tally.removed_by(|reason| {
            matches!(
                reason,
                Reason::Tainted | Reason::Counters | Reason::Capacity | Reason::PoolIncomplete | Reason::PoolInvalid
            )
        });
        let refused = tally.removed_by(|reason| {
            matches!(
                reason,
                Reason::ClassSelector(_) | Reason::RequestSelector(_) | Reason::NodeOperations
            )
        });
        let short = match choice.need {
            Need::Exactly(need) => need.saturating_sub(tally.fit),
            Need::All => held + by_state + u64::from(tally.fit + held + by_state == 0),
        };
        let changes = if by_state >= short { short.min(1) } else { short };
        Self {
            hopeless: u64::from(short > held + by_state + refused),
            refused: u64::from(short > held + by_state),
            changes,
        }
    }
}

/// A node that may be near.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) node: Where<'a>,
    pub(super) distance: Distance,
    pub(super) tallies: Vec<Tally>,
}

/// The nearest candidates, nearest first; among equals the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Nearest<'a>(pub(super) Vec<Candidate<'a>>);

impl<'a> Nearest<'a> {
    pub(super) fn add(&mut self, candidate: Candidate<'a>) {
        let at = self.0.partition_point(|other| other.distance <= candidate.distance);
        if at < NODES_MAX {
            self.0.insert(at, candidate);
            self.0.truncate(NODES_MAX);
        }
    }
}

/// A set of changes that helps on a candidate. The order decides.
struct Found {
    candidate: usize,
    atoms: Vec<Atom>,
    plan: Plan,
}

impl Found {
    fn key(&self) -> (usize, u8, usize) {
        let class = self.atoms.iter().map(class_of).max().unwrap_or_default();
        (self.atoms.len(), class, self.candidate)
    }
}

/// See the module. `candidates` and `unschedulable`: nearest first.
pub(super) fn nearest_miss(
    cluster: &Cluster,
    learned: &mut Learned,
    unit: &CompiledUnit,
    candidates: &[Candidate<'_>],
    unschedulable: &[Candidate<'_>],
) -> Option<NearestMiss> {
    let mut hunt = Hunt {
        cluster,
        learned,
        unit,
        dropped: Vec::new(),
        work_left: WORK_MAX,
    };
    let is_cheap = |candidate: &Candidate<'_>| candidate.distance.refused == 0;
    if let Some(found) = hunt.best(candidates, is_cheap, |what_if, work| {
        one_of(what_if, &cheap_atoms(what_if, false), work)
    }) {
        return hunt.told(candidates, &found);
    }
    for candidate in unschedulable.iter().filter(|candidate| is_cheap(candidate)) {
        let plan = hunt.on(candidate.node, |what_if, work| what_if.attempt(&[], work)).flatten();
        if let Some(plan) = plan {
            return Some(NearestMiss::WouldFit {
                alternatives: alternatives(&plan),
                node: plan.node,
                changes: vec![Change::MakeSchedulable],
            });
        }
    }
    if let Some(found) = hunt.best(candidates, is_cheap, |what_if, work| {
        fewest_of(what_if, cheap_atoms(what_if, false), work)
    }) {
        return hunt.told(candidates, &found);
    }
    hunt.dropped = dropped_selectors(hunt.learned, unit);
    let in_reach = |candidate: &Candidate<'_>| candidate.distance.hopeless == 0;
    if let Some(found) = hunt.best(candidates, in_reach, |what_if, work| {
        one_of(what_if, &dear_atoms(what_if), work)
    }) {
        return hunt.told(candidates, &found);
    }
    if let Some(found) = hunt.best(candidates, in_reach, |what_if, work| {
        let mut atoms = cheap_atoms(what_if, true);
        atoms.extend(dear_atoms(what_if));
        atoms.sort_by_key(class_of);
        fewest_of(what_if, atoms, work)
    }) {
        return hunt.told(candidates, &found);
    }
    candidates.first().and_then(|candidate| hunt.short(candidate))
}

/// What the search for the nearest miss works with.
struct Hunt<'a> {
    cluster: &'a Cluster,
    learned: &'a mut Learned,
    unit: &'a CompiledUnit,
    dropped: Vec<Dropped>,
    work_left: u64,
}

impl Hunt<'_> {
    fn on<T>(&mut self, node: Where<'_>, look: impl FnOnce(&WhatIf<'_>, &mut u64) -> T) -> Option<T> {
        let stranger;
        let (entry, view) = match node {
            Where::Known(number) => (self.cluster.node(number)?, self.cluster.node_view(self.learned, number)?),
            Where::Stranger(name) => {
                stranger = NodeEntry::stranger(name);
                (&stranger, self.cluster.stranger_view(self.learned, name))
            }
        };
        let what_if = WhatIf {
            cluster: self.cluster,
            unit: self.unit,
            node: entry,
            view: &view,
            dropped: &self.dropped,
        };
        Some(look(&what_if, &mut self.work_left))
    }

    /// The best that `look` finds on those candidates for which `is_worth` holds.
    fn best(
        &mut self,
        candidates: &[Candidate<'_>],
        is_worth: impl Fn(&Candidate<'_>) -> bool,
        look: impl Fn(&WhatIf<'_>, &mut u64) -> Option<(Vec<Atom>, Plan)>,
    ) -> Option<Found> {
        let mut best: Option<Found> = None;
        for (at, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| is_worth(candidate)) {
            // One change of the first two classes cannot be beaten.
            if best.as_ref().is_some_and(|best| best.key() < (1, 2, 0)) {
                break;
            }
            let Some((atoms, plan)) = self.on(candidate.node, &look).flatten() else {
                continue;
            };
            let found = Found {
                candidate: at,
                atoms,
                plan,
            };
            if best.as_ref().is_none_or(|best| found.key() < best.key()) {
                best = Some(found);
            }
        }
        best
    }

    fn told(&mut self, candidates: &[Candidate<'_>], found: &Found) -> Option<NearestMiss> {
        let node = candidates.get(found.candidate)?.node;
        let mut changes = self.on(node, |what_if, _| {
            let changes = found.atoms.iter().map(|atom| change(what_if, atom));
            changes.collect::<Vec<_>>()
        })?;
        changes.sort_by_key(Change::class);
        Some(NearestMiss::WouldFit {
            node: found.plan.node.clone(),
            changes,
            alternatives: alternatives(&found.plan),
        })
    }

    /// The request that the node has not enough devices for, if there is one.
    fn short(&mut self, candidate: &Candidate<'_>) -> Option<NearestMiss> {
        let unit = self.unit;
        let short = unit.choices.iter().find_map(|choice| {
            let Need::Exactly(needed) = choice.need else { return None };
            let fit = candidate.tallies.get(choice.id)?.fit;
            (fit < needed).then_some((choice, fit, needed))
        });
        let (choice, fit, needed) = short?;
        let node = self.on(candidate.node, |what_if, _| what_if.view.name.into())?;
        Some(NearestMiss::Short {
            node,
            claim: choice.claim,
            request: choice.name.clone(),
            fit,
            needed,
        })
    }
}

fn class_of(atom: &Atom) -> u8 {
    match atom {
        Atom::FreeCapacity { .. } => 0,
        Atom::FreeDevice(_) => 1,
        Atom::CompletePool(_) => 2,
        Atom::RepairPool(_) => 3,
        Atom::Tolerate { .. } => 4,
        Atom::DropConstraint(_) => 6,
        Atom::DropSelector(_) => 7,
        Atom::RaiseCounter { .. } => 8,
        Atom::EnlargeDevice { .. } => 9,
        Atom::SkipNodeOperations => 10,
    }
}

/// The first change that helps alone.
fn one_of(what_if: &WhatIf<'_>, atoms: &[Atom], work_left: &mut u64) -> Option<(Vec<Atom>, Plan)> {
    atoms.iter().find_map(|atom| {
        let plan = what_if.attempt(std::slice::from_ref(atom), work_left)?;
        exact(what_if, vec![atom.clone()], plan, work_left)
    })
}

/// Changes that help together and of which none can be left out; `atoms`: cheapest first, the dearest are left out first.
fn fewest_of(what_if: &WhatIf<'_>, atoms: Vec<Atom>, work_left: &mut u64) -> Option<(Vec<Atom>, Plan)> {
    // Parts of a capacity matter where nothing else is missing.
    let atoms: Vec<_> = atoms
        .into_iter()
        .filter(|atom| !matches!(atom, Atom::FreeCapacity { .. }))
        .collect();
    let plan = what_if.attempt(&atoms, work_left)?;
    let used: Vec<_> = atoms.iter().filter(|atom| is_used(what_if, atom, &plan)).cloned().collect();
    let (mut few, mut plan) = match what_if.attempt(&used, work_left) {
        Some(plan) => (used, plan),
        None => (atoms.clone(), plan),
    };
    for at in (0..few.len()).rev() {
        let mut fewer = few.clone();
        fewer.remove(at);
        if let Some(found) = what_if.attempt(&fewer, work_left) {
            (few, plan) = (fewer, found);
        }
    }
    if few.len() > 2 && atoms.len() <= PAIRED_MAX {
        let pairs = (0..atoms.len()).flat_map(|a| (a + 1..atoms.len()).map(move |b| (a, b)));
        let smaller = pairs.map(|(a, b)| vec![atoms[a].clone(), atoms[b].clone()]).find_map(|pair| {
            let plan = what_if.attempt(&pair, work_left)?;
            Some((pair, plan))
        });
        (few, plan) = smaller.unwrap_or((few, plan));
    }
    exact(what_if, few, plan, work_left)
}

/// Counters were raised generously: now by what is missing.
fn exact(what_if: &WhatIf<'_>, atoms: Vec<Atom>, plan: Plan, work_left: &mut u64) -> Option<(Vec<Atom>, Plan)> {
    let is_generous = |atom: &Atom| matches!(atom, Atom::RaiseCounter { .. });
    if !atoms.iter().any(is_generous) {
        return Some((atoms, plan));
    }
    let exact = atoms.iter().map(|atom| match atom {
        Atom::RaiseCounter { pool, set, counter, .. } => Some(Atom::RaiseCounter {
            by: what_if.counter_shortfall(&atoms, &plan, (pool, set, counter))?,
            pool: pool.clone(),
            set: set.clone(),
            counter: counter.clone(),
        }),
        other => Some(other.clone()),
    });
    let exact: Vec<_> = exact.collect::<Option<_>>()?;
    let plan = what_if.attempt(&exact, work_left)?;
    Some((exact, plan))
}

/// Whether the plan may need the change; errs on the side of yes.
fn is_used(what_if: &WhatIf<'_>, atom: &Atom, plan: &Plan) -> bool {
    let mut results = plan.claims.iter().flat_map(|(_, allocation)| &allocation.devices.results);
    match atom {
        Atom::FreeDevice(device) => {
            let draws = what_if
                .view
                .pools()
                .iter()
                .any(|pool| pool.id == device.pool_id() && pool.board.is_some());
            draws || results.any(|result| result.device_id() == *device)
        }
        Atom::EnlargeDevice { device, .. } => results.any(|result| result.device_id() == *device),
        Atom::CompletePool(pool) | Atom::RepairPool(pool) | Atom::RaiseCounter { pool, .. } => plan.pools.contains(pool),
        Atom::Tolerate { choice, .. } => {
            let choice = &what_if.unit.choices[*choice];
            results.any(|result| result.request == choice.name)
        }
        Atom::DropSelector(at) => {
            let choice = &what_if.unit.choices[what_if.dropped[*at].choice];
            results.any(|result| result.request == choice.name)
        }
        Atom::FreeCapacity { .. } | Atom::DropConstraint(_) | Atom::SkipNodeOperations => true,
    }
}

/// What may change without touching what is asked for or what there is. `any_device`: of devices that selectors refuse, too.
fn cheap_atoms(what_if: &WhatIf<'_>, any_device: bool) -> Vec<Atom> {
    let mut shares = Vec::new();
    let mut freed = Vec::new();
    let mut pools = Vec::new();
    let mut tolerations = Vec::new();
    for pool in what_if.view.pools() {
        match &pool.health {
            Health::Usable => {}
            Health::Incomplete => pools.push(Atom::CompletePool(pool.id.clone())),
            Health::Invalid(_) => pools.push(Atom::RepairPool(pool.id.clone())),
        }
        for at in 0..pool.len() {
            let wanted_by = |choice: &&Choice| any_device || selects(what_if, pool, choice, at);
            let choices: Vec<&Choice> = what_if.unit.choices.iter().filter(wanted_by).collect();
            if choices.is_empty() && !pool.consumes_counters(at) {
                continue;
            }
            if pool.is_held(at) || pool.has_share(at) {
                freed.push(Atom::FreeDevice(pool.device_id(at)));
            }
            for choice in choices {
                shares.extend(missing_shares(what_if, pool, choice, at));
                tolerations.extend(missing_tolerations(what_if, pool, choice, at));
            }
        }
        freed.extend(elsewhere_in_use(what_if, pool).map(Atom::FreeDevice));
    }
    let mut atoms = Vec::new();
    for mut sort in [shares, freed, pools, tolerations] {
        distinct(&mut sort);
        sort.truncate(ATOMS_MAX);
        atoms.extend(sort);
    }
    atoms
}

/// Asking for less, or having more.
fn dear_atoms(what_if: &WhatIf<'_>) -> Vec<Atom> {
    let mut atoms: Vec<_> = (0..what_if.unit.constraints.len()).map(Atom::DropConstraint).collect();
    atoms.extend((0..what_if.dropped.len()).map(Atom::DropSelector));
    let mut larger = Vec::new();
    for pool in what_if.view.pools() {
        if pool.board.is_some() {
            let mut counters = counters_of(what_if, pool);
            counters.truncate(ATOMS_MAX);
            atoms.extend(counters);
        }
        for at in 0..pool.len() {
            for choice in &what_if.unit.choices {
                if selects(what_if, pool, choice, at) {
                    larger.extend(missing_capacity(what_if, pool, choice, at));
                }
            }
        }
    }
    distinct(&mut larger);
    larger.truncate(ATOMS_MAX);
    atoms.extend(larger);
    let skips = |pool: &&PoolView| (0..pool.len()).any(|at| pool.skips_node_operations(at));
    let may_skip = what_if.cluster.features().optional_node_operations && !what_if.view.supports_skipped_operations;
    if may_skip && what_if.view.pools().iter().any(skips) {
        atoms.push(Atom::SkipNodeOperations);
    }
    atoms
}

fn distinct(atoms: &mut Vec<Atom>) {
    let mut kept: Vec<Atom> = Vec::new();
    for atom in atoms.drain(..) {
        if kept.len() < ATOMS_MAX && !kept.contains(&atom) {
            kept.push(atom);
        }
    }
    *atoms = kept;
}

fn selects(what_if: &WhatIf<'_>, pool: &PoolView, choice: &Choice, at: usize) -> bool {
    let (matching, _) = pool.selectable(&choice.filter, at / 64, what_if.cluster.features());
    matching >> (at % 64) & 1 == 1
}

/// Devices of the pool that other nodes use and that draw on its counters.
fn elsewhere_in_use(what_if: &WhatIf<'_>, pool: &PoolView) -> impl Iterator<Item = DeviceId> {
    let known = what_if.cluster.pool_by_id(&pool.id).filter(|_| pool.board.is_some());
    let newest = known.and_then(newest_generation);
    let slices = known.zip(newest).map(|(known, newest)| slices_of(known, newest));
    let devices = slices.into_iter().flatten().flat_map(sources_of);
    let names: Vec<DeviceName> = devices
        .filter(|(_, kind)| !kind.device.consumes_counters.is_empty())
        .filter(|(name, _)| known.is_some_and(|known| known.uses.contains_key(*name)))
        .filter(|(name, _)| pool.position(name).is_none())
        .map(|(name, _)| name.clone())
        .collect();
    let (driver, pool) = (pool.id.driver.clone(), pool.id.pool.clone());
    names.into_iter().map(move |device| DeviceId {
        driver: driver.clone(),
        pool: pool.clone(),
        device,
    })
}

fn missing_shares(what_if: &WhatIf<'_>, pool: &PoolView, choice: &Choice, at: usize) -> Vec<Atom> {
    let features = what_if.cluster.features();
    if !(features.consumable_capacity && pool.is_shareable(at) && pool.has_share(at)) {
        return Vec::new();
    }
    let Some(facts) = pool.capacity_of(at) else {
        return Vec::new();
    };
    let shortfalls = facts.shortfalls(&choice.capacity, features.fractional_capacity_range, pool.consumed(at));
    let given_back = shortfalls.into_iter().filter(|shortfall| !shortfall.even_empty);
    given_back
        .map(|shortfall| Atom::FreeCapacity {
            device: pool.device_id(at),
            capacity: shortfall.capacity,
            missing: shortfall.missing,
        })
        .collect()
}

fn missing_capacity(what_if: &WhatIf<'_>, pool: &PoolView, choice: &Choice, at: usize) -> Vec<Atom> {
    let features = what_if.cluster.features();
    let Some(facts) = pool.capacity_of(at).filter(|_| features.consumable_capacity) else {
        return Vec::new();
    };
    let shortfalls = facts.shortfalls(&choice.capacity, features.fractional_capacity_range, pool.consumed(at));
    shortfalls
        .into_iter()
        .map(|shortfall| Atom::EnlargeDevice {
            device: pool.device_id(at),
            capacity: shortfall.capacity,
            missing: shortfall.missing,
        })
        .collect()
}

fn missing_tolerations(what_if: &WhatIf<'_>, pool: &PoolView, choice: &Choice, at: usize) -> Vec<Atom> {
    if !what_if.cluster.features().device_taints || !pool.is_tainted_for(at, &choice.tolerations) {
        return Vec::new();
    }
    let device = pool.device(at);
    let rules = what_if.cluster.taint_rules_of(&pool.id);
    let by_rules = rules.filter(|rule| taints::concerns_device(rule, device.name));
    let on_device = device
        .kind()
        .device
        .taints
        .iter()
        .chain(by_rules.map(|rule| &rule.spec.taint));
    on_device
        .filter(|taint| taints::first_untolerated([*taint], &choice.tolerations).is_some())
        .map(|taint| Atom::Tolerate {
            choice: choice.id,
            taint: DeviceTaint {
                time_added: None,
                ..taint.clone()
            },
        })
        .collect()
}

/// Every counter of the pool, raised by all that is ever drawn on it.
fn counters_of(what_if: &WhatIf<'_>, pool: &PoolView) -> Vec<Atom> {
    let Some(known) = what_if.cluster.pool_by_id(&pool.id) else {
        return Vec::new();
    };
    let Some(newest) = newest_generation(known) else {
        return Vec::new();
    };
    let mut atoms = Vec::new();
    for set in slices_of(known, newest).flat_map(|entry| entry.slice.layout().shared_counters()) {
        for counter in set.counters.keys() {
            let devices = slices_of(known, newest).flat_map(sources_of);
            let drawn = devices.fold(Quantity::ZERO, |sum, (_, kind)| {
                sum.plus(&draw(&kind.device, &set.name, counter))
            });
            if drawn.signum() > 0 {
                atoms.push(Atom::RaiseCounter {
                    pool: pool.id.clone(),
                    set: set.name.clone(),
                    counter: counter.clone(),
                    by: drawn,
                });
            }
        }
    }
    atoms
}

/// Every choice's filter without each one of its selectors.
fn dropped_selectors(learned: &mut Learned, unit: &CompiledUnit) -> Vec<Dropped> {
    let with_cel = |selectors: &[DeviceSelector]| -> Vec<DeviceSelector> {
        selectors.iter().filter(|selector| selector.cel.is_some()).cloned().collect()
    };
    let mut dropped = Vec::new();
    for choice in &unit.choices {
        let class = with_cel(choice.class.as_ref().map_or(&[], |class| &class.spec.selectors));
        let request = with_cel(unit.selectors_of(choice));
        for selector in 0..choice.filter.n_selectors() {
            let (mut class, mut request) = (class.clone(), request.clone());
            if selector < class.len() {
                class.remove(selector);
            } else if selector - class.len() < request.len() {
                request.remove(selector - class.len());
            }
            dropped.push(Dropped {
                choice: choice.id,
                selector,
                filter: learned.filters.filter(&class, &request),
            });
        }
    }
    dropped
}

/// The change as it is told.
fn change(what_if: &WhatIf<'_>, atom: &Atom) -> Change {
    let unit = what_if.unit;
    match atom {
        Atom::FreeCapacity {
            device,
            capacity,
            missing,
        } => Change::FreeCapacity {
            device: device.clone(),
            capacity: capacity.clone(),
            missing: missing.clone(),
        },
        Atom::FreeDevice(device) => {
            let pool = what_if.cluster.pool_by_id(&device.pool_id());
            let holders = pool.and_then(|pool| pool.uses.get(&device.device)).map(|used| used.holders());
            Change::FreeDevice {
                device: device.clone(),
                holders: holders.unwrap_or_default(),
            }
        }
        Atom::CompletePool(pool) => Change::CompletePool { pool: pool.clone() },
        Atom::RepairPool(id) => {
            let problem = what_if.view.pools().iter().find_map(|pool| match &pool.health {
                Health::Invalid(problem) if pool.id == *id => Some(problem.clone()),
                Health::Invalid(_) | Health::Usable | Health::Incomplete => None,
            });
            Change::RepairPool {
                pool: id.clone(),
                problem: problem.unwrap_or_default(),
            }
        }
        Atom::Tolerate { choice, taint } => Change::Tolerate {
            claim: unit.choices[*choice].claim,
            request: unit.choices[*choice].name.clone(),
            taint: taint.clone(),
        },
        Atom::DropConstraint(at) => dropped_constraint(what_if, *at),
        Atom::DropSelector(at) => {
            let dropped = &what_if.dropped[*at];
            let choice = &unit.choices[dropped.choice];
            let mut without = choice.clone();
            without.filter = dropped.filter.clone();
            Change::DropSelector {
                claim: choice.claim,
                request: choice.name.clone(),
                selector: choice.filter.reason(dropped.selector),
                matching: n_matching(what_if, choice),
                matching_without: n_matching(what_if, &without),
            }
        }
        Atom::RaiseCounter { pool, set, counter, by } => Change::RaiseCounter {
            pool: pool.clone(),
            counter_set: set.clone(),
            counter: counter.clone(),
            missing: by.clone(),
        },
        Atom::EnlargeDevice {
            device,
            capacity,
            missing,
        } => Change::EnlargeDevice {
            device: device.clone(),
            capacity: capacity.clone(),
            missing: missing.clone(),
        },
        Atom::SkipNodeOperations => Change::SkipNodeOperations,
    }
}

fn n_matching(what_if: &WhatIf<'_>, choice: &Choice) -> u64 {
    let words = 0..what_if.view.n_words();
    words
        .map(|word| {
            u64::from(
                what_if
                    .view
                    .selectable(choice, word, what_if.cluster.features())
                    .0
                    .count_ones(),
            )
        })
        .sum()
}

fn dropped_constraint(what_if: &WhatIf<'_>, at: usize) -> Change {
    let unit = what_if.unit;
    let constraint = &unit.constraints[at];
    let claim = unit
        .claims
        .iter()
        .position(|claim| claim.constraints.contains(&at))
        .unwrap_or_default();
    let first = unit.claims.get(claim).map_or(0, |claim| claim.constraints.start);
    let requests = unit.claims.get(claim).into_iter().flat_map(|claim| &claim.requests);
    let needed = requests.map(|request| {
        let covered = unit.choices[request.choices.clone()]
            .iter()
            .filter(|choice| constraint.covers(choice.id));
        let need = |choice: &Choice| match choice.need {
            Need::Exactly(count) => count,
            Need::All => 1,
        };
        covered.map(need).min().unwrap_or(0)
    });
    Change::DropConstraint {
        claim,
        constraint: at - first,
        rule: constraint.to_string(),
        agree: most_in_agreement(what_if.cluster, unit, what_if.view, at),
        needed: needed.sum(),
    }
}

/// The most free devices of the node that satisfy a constraint together, each counted for all its values.
fn most_in_agreement(cluster: &Cluster, unit: &CompiledUnit, view: &NodeView<'_>, at: usize) -> u64 {
    let features = cluster.features();
    let constraint = &unit.constraints[at];
    let mut values = Values::default();
    let mut groups: Vec<((crate::constraint::ValueKind, u32), u64)> = Vec::new();
    for word in 0..view.n_words() {
        let covered: Vec<_> = unit.choices.iter().filter(|choice| constraint.covers(choice.id)).collect();
        let open = |choice: &Choice| view.selectable(choice, word, features).0 & !view.held_word(word);
        let all = covered.iter().fold(0, |all, choice| all | open(choice));
        for bit in members_of(all) {
            let position = Position::try_from(word * 64 + bit).unwrap_or(Position::MAX);
            let (_, pool, local) = view.locate(position);
            let fits = |choice: &&&Choice| {
                open(choice) >> bit & 1 == 1
                    && removed_by_state(pool, choice, local, view.supports_skipped_operations, features).is_none()
            };
            let Some(choice) = covered.iter().find(fits) else { continue };
            let Ok(Some(value)) = values.get(view, unit, at, choice, position) else {
                continue;
            };
            for member in &value.members {
                let key = (value.kind, *member);
                match groups.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, count)) => *count += 1,
                    None => groups.push((key, 1)),
                }
            }
        }
    }
    match constraint.rule {
        Rule::Match => groups.iter().map(|(_, count)| *count).max().unwrap_or(0),
        Rule::Distinct => groups.len() as u64,
    }
}

/// The alternatives of `firstAvailable` requests that a plan uses, each once.
fn alternatives(plan: &Plan) -> Vec<String> {
    let mut alternatives: Vec<String> = Vec::new();
    for result in plan.claims.iter().flat_map(|(_, allocation)| &allocation.devices.results) {
        if result.request.contains('/') && !alternatives.contains(&result.request) {
            alternatives.push(result.request.clone());
        }
    }
    alternatives
}
