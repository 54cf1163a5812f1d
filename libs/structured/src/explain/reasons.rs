//! Counted reasons: per request, how many devices each rule removed.
//!
//! A device is counted under the first rule that removes it. What is left fits on its own; if that is enough for every
//! request and there still is no plan, the requests are in each other's way.

use std::fmt;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::bits::members_of;
use crate::features::Features;
use crate::node_view::NodeView;
use crate::pool_view::{Health, PoolView};
use crate::request::{Choice, CompiledUnit, Need};

/// What became of the devices that one request, or one of its alternatives, could look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReasons {
    /// The claim's number in the unit.
    pub claim: usize,
    /// `request`, or `request/alternative`.
    pub request: String,
    /// Devices needed on one node; `None`: all that match.
    pub needed: Option<u64>,
    /// Nodes looked at.
    pub nodes: u64,
    /// Devices looked at.
    pub devices: u64,
    /// Devices that no rule removes.
    pub fit: u64,
    /// The most of them that one node has.
    pub fit_on_one_node: u64,
    /// Devices per first rule that removes them, most first.
    pub removed: Vec<(Reason, u64)>,
}

/// A rule that removes a device from a request, in the order in which they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its pool is being updated.
    PoolIncomplete,
    /// Its pool contradicts itself.
    PoolInvalid,
    /// This selector of the class (from 0) is false.
    ClassSelector(usize),
    /// This selector of the request (from 0) is false.
    RequestSelector(usize),
    /// A selector cannot be evaluated on it.
    SelectorFails,
    /// It has binding conditions, and they are switched off.
    BindingConditions,
    /// It belongs to other nodes.
    OtherNode,
    /// A claim holds it.
    Allocated,
    /// It skips node operations, which the node does not support.
    NodeOperations,
    /// It has a taint that the request does not tolerate.
    Tainted,
    /// Too little is left of the counters it draws on.
    Counters,
    /// It cannot hold the requested capacity now.
    Capacity,
}

impl Reason {
    /// The name used in the API, for example `allocated`; the selector's number is told apart from it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PoolIncomplete => "pool-incomplete",
            Self::PoolInvalid => "pool-invalid",
            Self::ClassSelector(_) => "class-selector",
            Self::RequestSelector(_) => "request-selector",
            Self::SelectorFails => "selector-fails",
            Self::BindingConditions => "binding-conditions",
            Self::OtherNode => "other-node",
            Self::Allocated => "allocated",
            Self::NodeOperations => "node-operations",
            Self::Tainted => "tainted",
            Self::Counters => "counters",
            Self::Capacity => "capacity",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolIncomplete => f.write_str("in incomplete pools"),
            Self::PoolInvalid => f.write_str("in invalid pools"),
            Self::ClassSelector(at) => write!(f, "fail class selector #{at}"),
            Self::RequestSelector(at) => write!(f, "fail selector #{at}"),
            Self::SelectorFails => f.write_str("cannot be evaluated by a selector"),
            Self::BindingConditions => f.write_str("have binding conditions"),
            Self::OtherNode => f.write_str("for other nodes"),
            Self::Allocated => f.write_str("allocated"),
            Self::NodeOperations => f.write_str("need node operations to be skipped"),
            Self::Tainted => f.write_str("tainted"),
            Self::Counters => f.write_str("short of counters"),
            Self::Capacity => f.write_str("short of capacity"),
        }
    }
}

impl RequestReasons {
    /// Whether no node has enough devices for this request alone.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.fit_on_one_node < self.needed.unwrap_or(1)
    }
}

impl fmt::Display for RequestReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            request, devices, fit, ..
        } = self;
        match self.needed {
            Some(needed) if *fit > 0 => {
                let most = self.fit_on_one_node;
                write!(
                    f,
                    "{fit} of {devices} devices fit request {request:?}, at most {most} of {needed} on one node"
                )?;
            }
            _ => write!(f, "{fit} of {devices} devices fit request {request:?}")?,
        }
        for (at, (reason, count)) in self.removed.iter().enumerate() {
            write!(f, "{} {count} {reason}", if at == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// What became of the devices of a pool, or of several, for one choice.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) devices: u64,
    pub(super) fit: u64,
    pub(super) removed: Vec<(Reason, u64)>,
}

impl Tally {
    fn remove(&mut self, reason: Reason, n_devices: u64) {
        if n_devices == 0 {
            return;
        }
        match self.removed.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, count)) => *count += n_devices,
            None => self.removed.push((reason, n_devices)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.devices += other.devices;
        self.fit += other.fit;
        other.removed.iter().for_each(|(reason, count)| self.remove(*reason, *count));
    }

    /// How many devices these rules removed.
    pub(super) fn removed_by(&self, rules: impl Fn(Reason) -> bool) -> u64 {
        self.removed
            .iter()
            .filter(|(reason, _)| rules(*reason))
            .map(|(_, count)| count)
            .sum()
    }
}

/// Counts node by node; a pool that several nodes see is counted once.
pub(super) struct Counting<'u> {
    unit: &'u CompiledUnit,
    features: Features,
    nodes: u64,
    /// Per choice, over all nodes added.
    total: Vec<Tally>,
    fit_on_one_node: Vec<u64>,
    /// By address of the pool view, and whether the node supports skipped operations: per choice.
    counted: FxHashMap<(usize, bool), Rc<[Tally]>>,
    added: FxHashSet<usize>,
}

impl<'u> Counting<'u> {
    pub(super) fn new(unit: &'u CompiledUnit, features: Features) -> Self {
        Self {
            unit,
            features,
            nodes: 0,
            total: vec![Tally::default(); unit.choices.len()],
            fit_on_one_node: vec![0; unit.choices.len()],
            counted: FxHashMap::default(),
            added: FxHashSet::default(),
        }
    }

    pub(super) fn unit(&self) -> &'u CompiledUnit {
        self.unit
    }

    /// Adds a node to the reasons and returns what it has, per choice. Views must stay where they are until the end.
    pub(super) fn add_node(&mut self, node: &NodeView<'_>) -> Vec<Tally> {
        for pool in node.pools() {
            if self.added.insert(address(pool)) {
                let tallies = self.count(node, pool);
                self.total
                    .iter_mut()
                    .zip(&*tallies)
                    .for_each(|(total, tally)| total.add(tally));
            }
        }
        let here = self.look_at(node);
        self.nodes += 1;
        for (most, tally) in self.fit_on_one_node.iter_mut().zip(&here) {
            *most = tally.fit.max(*most);
        }
        here
    }

    /// What a node has, per choice, without adding it.
    pub(super) fn look_at(&mut self, node: &NodeView<'_>) -> Vec<Tally> {
        let mut here = vec![Tally::default(); self.unit.choices.len()];
        for pool in node.pools() {
            let tallies = self.count(node, pool);
            here.iter_mut().zip(&*tallies).for_each(|(sum, tally)| sum.add(tally));
        }
        here
    }

    fn count(&mut self, node: &NodeView<'_>, pool: &PoolView) -> Rc<[Tally]> {
        let supported = node.supports_skipped_operations;
        let tallies = self.counted.entry((address(pool), supported)).or_insert_with(|| {
            let choices = self.unit.choices.iter();
            choices
                .map(|choice| count_pool(pool, choice, supported, self.features))
                .collect()
        });
        Rc::clone(tallies)
    }

    pub(super) fn finish(self) -> Vec<RequestReasons> {
        let nodes = self.nodes;
        let counts = self.total.into_iter().zip(self.fit_on_one_node);
        let reasons = self
            .unit
            .choices
            .iter()
            .zip(counts)
            .map(|(choice, (mut total, fit_on_one_node))| {
                total
                    .removed
                    .sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
                RequestReasons {
                    claim: choice.claim,
                    request: choice.name.clone(),
                    needed: match choice.need {
                        Need::Exactly(count) => Some(count),
                        Need::All => None,
                    },
                    nodes,
                    devices: total.devices,
                    fit: total.fit,
                    fit_on_one_node,
                    removed: total.removed,
                }
            });
        reasons.collect()
    }
}

fn address(pool: &PoolView) -> usize {
    std::ptr::from_ref(pool).addr()
}

fn count_pool(pool: &PoolView, choice: &Choice, skips_supported: bool, features: Features) -> Tally {
    let n_devices = pool.len() as u64;
    let mut tally = Tally {
        devices: n_devices,
        ..Tally::default()
    };
    match pool.health {
        Health::Usable => {}
        Health::Incomplete => {
            tally.remove(Reason::PoolIncomplete, n_devices);
            return tally;
        }
        Health::Invalid(_) => {
            tally.remove(Reason::PoolInvalid, n_devices);
            return tally;
        }
    }
    for (selector, refused) in pool.refused(&choice.filter).into_iter().enumerate() {
        tally.remove(choice.filter.reason(selector), u64::from(refused));
    }
    for word in 0..pool.n_words() {
        let (matching, failing) = pool.answer(&choice.filter, word);
        let (left, _) = pool.selectable(&choice.filter, word, features);
        tally.remove(Reason::SelectorFails, u64::from(failing.count_ones()));
        let gone = matching & !left;
        let bound = members_of(gone).filter(|bit| !features.binding_conditions && pool.has_binding_conditions(word * 64 + bit));
        let n_bound = bound.count() as u64;
        tally.remove(Reason::BindingConditions, n_bound);
        tally.remove(Reason::OtherNode, u64::from(gone.count_ones()) - n_bound);
        let held = if choice.admin_access { 0 } else { left & pool.held_word(word) };
        tally.remove(Reason::Allocated, u64::from(held.count_ones()));
        for bit in members_of(left & !held) {
            match removed_by_state(pool, choice, word * 64 + bit, skips_supported, features) {
                Some(reason) => tally.remove(reason, 1),
                None => tally.fit += 1,
            }
        }
    }
    tally
}

/// The first rule beyond selection and use that removes a device.
pub(super) fn removed_by_state(
    pool: &PoolView,
    choice: &Choice,
    device: usize,
    skips_supported: bool,
    features: Features,
) -> Option<Reason> {
    if pool.skips_node_operations(device) && !(features.optional_node_operations && skips_supported) {
        return Some(Reason::NodeOperations);
    }
    if features.device_taints && pool.is_tainted_for(device, &choice.tolerations) {
        return Some(Reason::Tainted);
    }
    let shared_already = features.consumable_capacity && pool.is_shareable(device) && pool.has_share(device);
    let charged = pool.consumes_counters(device) && !shared_already;
    if charged || (pool.consumes_counters(device) && !features.partitionable_devices) {
        let board = pool.board.as_ref();
        if !board.is_some_and(|board| board.allows(device, None, features.compatibility_groups)) {
            return Some(Reason::Counters);
        }
    }
    if !features.consumable_capacity {
        return None;
    }
    if pool.has_share(device) && !pool.is_shareable(device) && !choice.admin_access {
        return Some(Reason::Allocated);
    }
    let fits = match pool.capacity_of(device) {
        None => choice.capacity.is_empty(),
        Some(facts) => match facts.consumption(&choice.capacity, features.fractional_capacity_range) {
            Ok(Some(consumption)) => facts.has_left(&consumption, pool.consumed(device), None),
            Ok(None) | Err(_) => false,
        },
    };
    (!fits).then_some(Reason::Capacity)
}
