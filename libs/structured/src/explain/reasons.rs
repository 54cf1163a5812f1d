//! Counted reasons: per request, how many devices each rule removed.
//!
//! A device is counted under the first rule that removes it. What is left fits on its own; if that is enough for every
//! request and there still is no plan, the requests are in each other's way.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::bits::members_of;
use crate::cluster::Cluster;
use crate::features::Features;
use crate::learned::Learned;
use crate::node_view::NodeView;
use crate::pool_view::{Health, PoolView};
use crate::request::{Choice, CompiledUnit, Need};

/// What became of the devices that one request, or one of its alternatives, could look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReasons {
    /// `namespace/name`.
    pub claim: String,
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

    fn remove(&mut self, reason: Reason, n_devices: u64) {
        if n_devices == 0 {
            return;
        }
        match self.removed.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, count)) => *count += n_devices,
            None => self.removed.push((reason, n_devices)),
        }
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

/// The reasons as they are on one node.
pub(crate) fn on_node(cluster: &Cluster, unit: &CompiledUnit, node: &NodeView<'_>) -> Vec<RequestReasons> {
    let mut counting = Counting::new(unit, cluster.features());
    counting.add_node(node);
    counting.finish()
}

/// The reasons over all schedulable nodes; a pool that several nodes see is counted once. O(pools × requests).
pub(crate) fn on_all_nodes(cluster: &Cluster, learned: &mut Learned, unit: &CompiledUnit) -> Vec<RequestReasons> {
    let mut counting = Counting::new(unit, cluster.features());
    for node in learned.index.in_order().collect::<Vec<_>>() {
        if !cluster.node(node).is_some_and(|node| node.is_schedulable()) {
            continue;
        }
        if let Some(view) = cluster.node_view(learned, node) {
            counting.add_node(&view);
        }
    }
    counting.finish()
}

struct Counting<'u> {
    unit: &'u CompiledUnit,
    features: Features,
    reasons: Vec<RequestReasons>,
    /// By address of the pool views counted already: how many devices fit, per choice.
    counted: FxHashMap<usize, Vec<u64>>,
}

impl<'u> Counting<'u> {
    fn new(unit: &'u CompiledUnit, features: Features) -> Self {
        let reasons = unit.choices.iter().map(|choice| RequestReasons {
            claim: unit.claim_name(choice),
            request: choice.name.clone(),
            needed: match choice.need {
                Need::Exactly(count) => Some(count),
                Need::All => None,
            },
            nodes: 0,
            devices: 0,
            fit: 0,
            fit_on_one_node: 0,
            removed: Vec::new(),
        });
        Self {
            unit,
            features,
            reasons: reasons.collect(),
            counted: FxHashMap::default(),
        }
    }

    fn add_node(&mut self, node: &NodeView<'_>) {
        let mut fit_here = vec![0; self.reasons.len()];
        for pool in node.pools() {
            let fits = self.counted.entry(std::ptr::from_ref(*pool).addr()).or_insert_with(|| {
                let choices = self.unit.choices.iter().zip(&mut self.reasons);
                let fits = choices.map(|(choice, reasons)| {
                    let fit = count_pool(pool, choice, node.supports_skipped_operations, self.features, reasons);
                    reasons.fit += fit;
                    fit
                });
                fits.collect()
            });
            fit_here.iter_mut().zip(fits.iter()).for_each(|(sum, fit)| *sum += fit);
        }
        for (reasons, fit) in self.reasons.iter_mut().zip(fit_here) {
            reasons.nodes += 1;
            reasons.fit_on_one_node = reasons.fit_on_one_node.max(fit);
        }
    }

    fn finish(mut self) -> Vec<RequestReasons> {
        for reasons in &mut self.reasons {
            reasons
                .removed
                .sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
        }
        self.reasons
    }
}

/// Counts the devices of a pool; returns how many fit.
fn count_pool(pool: &PoolView, choice: &Choice, skips_supported: bool, features: Features, reasons: &mut RequestReasons) -> u64 {
    let n_devices = pool.len() as u64;
    reasons.devices += n_devices;
    match pool.health {
        Health::Usable => {}
        Health::Incomplete => return drop_all(reasons, Reason::PoolIncomplete, n_devices),
        Health::Invalid(_) => return drop_all(reasons, Reason::PoolInvalid, n_devices),
    }
    for (selector, refused) in pool.refused(&choice.filter).into_iter().enumerate() {
        reasons.remove(choice.filter.reason(selector), u64::from(refused));
    }
    let mut fit = 0;
    for word in 0..pool.n_words() {
        let (matching, failing) = pool.answer(&choice.filter, word);
        let (left, _) = pool.selectable(&choice.filter, word, features);
        reasons.remove(Reason::SelectorFails, u64::from(failing.count_ones()));
        let gone = matching & !left;
        let bound = members_of(gone).filter(|bit| !features.binding_conditions && pool.has_binding_conditions(word * 64 + bit));
        let n_bound = bound.count() as u64;
        reasons.remove(Reason::BindingConditions, n_bound);
        reasons.remove(Reason::OtherNode, u64::from(gone.count_ones()) - n_bound);
        let held = if choice.admin_access { 0 } else { left & pool.held_word(word) };
        reasons.remove(Reason::Allocated, u64::from(held.count_ones()));
        for bit in members_of(left & !held) {
            match removed_by_state(pool, choice, word * 64 + bit, skips_supported, features) {
                Some(reason) => reasons.remove(reason, 1),
                None => fit += 1,
            }
        }
    }
    fit
}

fn drop_all(reasons: &mut RequestReasons, reason: Reason, n_devices: u64) -> u64 {
    reasons.remove(reason, n_devices);
    0
}

/// The first rule beyond selection and use that removes a device.
fn removed_by_state(
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
    if pool.consumes_counters(device) && !shared_already {
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
