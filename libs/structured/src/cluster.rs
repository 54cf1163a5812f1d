//! Everything a decision looks at: classes, slices as pools, nodes, and what is taken, kept up to date in single steps.
//!
//! Owned by one allocator. Changes take `&mut self` and cost what they touch; decisions take `&self`. What decisions learn
//! (pools as nodes see them, answers of selectors, nodes that cannot serve a wish) is remembered inside, behind a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resource_api::claim::{DeviceRequestAllocationResult, DeviceSelector};
use resource_api::class::DeviceClass;
use resource_api::ids::{DeviceId, DeviceName, PoolId, Uid};
use resource_api::meta::TextMap;
use resource_api::node::{Node, NodeView as NodeFactsView};
use resource_api::slice::ResourceSlice;
use resource_api::taint::DeviceTaintRule;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::features::Features;
use crate::holdings::Held;
use crate::learned::Learned;
use crate::packed::Packer;
use crate::pool::{Audience, Pool, SliceEntry};
use crate::selectors::Filter;
use crate::taints;

/// What a decision needs to know of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: String,
    /// Labels, for node selectors of slices and devices.
    pub labels: TextMap,
    /// `place` leaves such nodes out; `allocate_on` does not.
    pub unschedulable: bool,
    /// `status.declaredFeatures`.
    pub declared_features: Vec<String>,
}

impl NodeFacts {
    /// What a decision needs to know of this object.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        Self {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
            unschedulable: node.spec.unschedulable,
            declared_features: node.status.declared_features.clone(),
        }
    }
}

/// In which order first fit takes nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// Bytewise by name.
    #[default]
    ByName,
    /// As they were put first; for replays of recorded clusters.
    AsPut,
}

/// How many devices there are, and how many nobody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Devices of usable pools.
    pub devices: usize,
    /// Of these, not held whole by any claim.
    pub free: usize,
}

/// See [`Cluster::n_free_at_most`].
pub(crate) const UNCOUNTED: u32 = u32::MAX;

pub(crate) type PoolIndex = usize;
pub(crate) type NodeNumber = usize;

/// A node that an object describes, or that a slice names.
#[derive(Debug)]
pub(crate) struct NodeEntry {
    pub(crate) name: Arc<str>,
    facts: Option<NodeFacts>,
    /// Pools with a slice for this very node.
    pools: SmallVec<[PoolIndex; 2]>,
}

impl NodeEntry {
    /// A node about which nothing is known but its name.
    pub(crate) fn stranger(name: &str) -> Self {
        Self {
            name: name.into(),
            facts: None,
            pools: SmallVec::new(),
        }
    }

    pub(crate) fn pools(&self) -> &[PoolIndex] {
        &self.pools
    }

    pub(crate) fn view(&self) -> NodeFactsView<'_> {
        static NO_LABELS: TextMap = TextMap::new();
        NodeFactsView {
            name: &self.name,
            labels: self.facts.as_ref().map_or(&NO_LABELS, |facts| &facts.labels),
        }
    }

    pub(crate) fn is_schedulable(&self) -> bool {
        self.facts.as_ref().is_none_or(|facts| !facts.unschedulable)
    }

    pub(crate) fn supports_skipped_operations(&self) -> bool {
        let declared = self.facts.iter().flat_map(|facts| &facts.declared_features);
        declared.into_iter().any(|feature| feature == "DRAOptionalNodeOperations")
    }
}

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    features: Features,
    order: NodeOrder,
    classes: BTreeMap<String, Arc<DeviceClass>>,
    taint_rules: BTreeMap<String, Arc<DeviceTaintRule>>,
    pools: Vec<Option<Pool>>,
    unused_pools: Vec<PoolIndex>,
    pool_by_id: FxHashMap<PoolId, PoolIndex>,
    pool_of_slice: FxHashMap<String, PoolIndex>,
    /// Pools that nodes see by other means than being named.
    wide_pools: FxHashSet<PoolIndex>,
    /// Slices with a node selector that cannot be read on any node, and why.
    bad_selectors: BTreeMap<String, String>,
    nodes: Vec<Option<NodeEntry>>,
    unused_nodes: Vec<NodeNumber>,
    node_by_name: FxHashMap<Arc<str>, NodeNumber>,
    holdings: FxHashMap<Uid, Vec<Held>>,
    /// Per node: how many devices nobody holds whole, counting pools of this node alone; [`UNCOUNTED`]: hard to say.
    n_free: Vec<u32>,
    preferred: Option<Preferred>,
    packer: Packer,
    learned: Mutex<Learned>,
}

struct Preferred(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl std::fmt::Debug for Preferred {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Preferred")
    }
}

impl Cluster {
    /// A cluster without any object.
    #[must_use]
    pub fn new(features: Features) -> Self {
        Self::with_node_order(features, NodeOrder::ByName)
    }

    /// As [`Cluster::new`], with another order of nodes.
    #[must_use]
    pub fn with_node_order(features: Features, order: NodeOrder) -> Self {
        Self {
            features,
            order,
            classes: BTreeMap::new(),
            taint_rules: BTreeMap::new(),
            pools: Vec::new(),
            unused_pools: Vec::new(),
            pool_by_id: FxHashMap::default(),
            pool_of_slice: FxHashMap::default(),
            wide_pools: FxHashSet::default(),
            bad_selectors: BTreeMap::new(),
            nodes: Vec::new(),
            unused_nodes: Vec::new(),
            node_by_name: FxHashMap::default(),
            holdings: FxHashMap::default(),
            n_free: Vec::new(),
            preferred: None,
            packer: Packer::default(),
            learned: Mutex::default(),
        }
    }

    /// The feature gates in force.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Adds or replaces a class. Units compiled before keep the old one.
    pub fn put_class(&mut self, class: Arc<DeviceClass>) {
        self.classes.insert(class.metadata.name.clone(), class);
    }

    /// Forgets a class.
    pub fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// The class of this name.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.classes.get(name)
    }

    /// Adds or replaces a rule that puts a taint on devices. O(pools) if it names none.
    pub fn put_taint_rule(&mut self, rule: Arc<DeviceTaintRule>) {
        let name = rule.metadata.name.clone();
        self.remove_taint_rule(&name);
        self.taint_rules.insert(name.clone(), rule);
        self.on_taint_rule_changed(&name);
    }

    /// Forgets a rule; the devices lose its taint.
    pub fn remove_taint_rule(&mut self, name: &str) {
        self.on_taint_rule_changed(name);
        self.taint_rules.remove(name);
    }

    /// The rules that put taints on devices of a pool, by name.
    pub(crate) fn taint_rules_of(&self, pool: &PoolId) -> impl Iterator<Item = &Arc<DeviceTaintRule>> {
        let in_force = self.features.device_taints && self.features.device_taint_rules;
        self.taint_rules
            .values()
            .filter(move |rule| in_force && taints::concerns_pool(rule, pool))
    }

    /// Adds or replaces a slice, by its object name.
    pub fn put_slice(&mut self, slice: Arc<ResourceSlice>) {
        let name = slice.metadata.name.clone();
        let id = slice.pool_id();
        if self.pool_of_slice.get(&name).is_some_and(|pool| self.pool(*pool).id != id) {
            self.remove_slice(&name);
        }
        let pool = self.pool_index_or_new(&id);
        let entry = SliceEntry {
            audience: Audience::of(&slice, self.features),
            slice: self.packer.pack(&slice),
        };
        match entry.bad_selector() {
            Some(problem) => self.bad_selectors.insert(name.clone(), problem),
            None => self.bad_selectors.remove(&name),
        };
        self.pool_of_slice.insert(name, pool);
        self.add_audience(pool, &entry.audience.clone());
        let replaced = self.pools[pool].as_mut().and_then(|pool| pool.put(entry));
        self.on_slices_changed(pool);
        if let Some(replaced) = replaced {
            self.remove_audience(pool, &replaced.audience);
        }
    }

    /// Forgets a slice. What is taken of its devices stays taken.
    pub fn remove_slice(&mut self, name: &str) {
        let Some(pool) = self.pool_of_slice.remove(name) else { return };
        self.bad_selectors.remove(name);
        if let Some(removed) = self.pools[pool].as_mut().and_then(|pool| pool.remove(name)) {
            self.on_slices_changed(pool);
            self.remove_audience(pool, &removed.audience);
            self.drop_pool_if_unknown(pool);
        }
    }

    /// Adds or replaces what is known of a node.
    pub fn put_node(&mut self, facts: NodeFacts) {
        let node = self.node_or_new(&facts.name);
        if let Some(entry) = self.nodes[node].as_mut() {
            entry.facts = Some(facts);
        }
        self.on_node_changed(node);
    }

    /// Forgets what is known of a node. It stays as long as a slice names it.
    pub fn remove_node(&mut self, name: &str) {
        let Some(node) = self.node_by_name.get(name).copied() else {
            return;
        };
        if let Some(entry) = self.nodes[node].as_mut() {
            entry.facts = None;
        }
        self.on_node_changed(node);
        self.drop_node_if_unknown(node);
    }

    /// Records what a claim holds, committed or planned; replaces what it held before.
    pub fn take(&mut self, claim: Uid, results: &[DeviceRequestAllocationResult]) {
        let takes = || results.iter().filter(|result| result.admin_access != Some(true));
        if self.holdings.get(&claim).is_some_and(|held| self.is_same(held, takes())) {
            return;
        }
        self.release(claim);
        let features = self.features;
        let mut holdings = Vec::new();
        for result in takes() {
            let pool = self.pool_index_or_new(&result.pool_id());
            let Some(entry) = self.pools[pool].as_mut() else { continue };
            let held = Held::of(claim, result, pool);
            let has_share = |entry: &Pool| {
                entry
                    .uses
                    .get(&held.device)
                    .is_some_and(|device_use| device_use.has_share(features))
            };
            let is_first_share = held.share.is_some() && !has_share(entry);
            entry.change_use(&held.device, features, |device_use| device_use.add(claim, &held));
            self.refresh_use(pool, &held.device);
            if is_first_share && self.has_counters(pool) {
                // The counters of a shared device are charged once: the next share may fit where the first did not.
                self.wake(pool);
            }
            holdings.push(held);
        }
        if !holdings.is_empty() {
            holdings.shrink_to_fit();
            self.holdings.insert(claim, holdings);
        }
    }

    fn is_same<'a>(&self, held: &[Held], mut results: impl Iterator<Item = &'a DeviceRequestAllocationResult>) -> bool {
        let pool_of = |result: &DeviceRequestAllocationResult| self.pool_by_id.get(&result.pool_id());
        held.iter().all(|held| {
            let result = results.next();
            result.is_some_and(|result| pool_of(result) == Some(&held.pool) && held.is_as(result))
        }) && results.next().is_none()
    }

    /// Gives back what a claim holds. Returns the devices concerned, in the order of the claim's results.
    pub fn release(&mut self, claim: Uid) -> Vec<DeviceId> {
        let holdings = self.holdings.remove(&claim).unwrap_or_default();
        let features = self.features;
        let mut freed = Vec::with_capacity(holdings.len());
        for Held { pool, device, .. } in holdings {
            let Some(entry) = self.pools[pool].as_mut() else { continue };
            let PoolId { driver, pool: name } = entry.id.clone();
            // A claim may hold several shares of a device; the first pass lets all of them go.
            if entry.uses.contains_key(&device) {
                entry.change_use(&device, features, |device_use| device_use.remove(claim));
            }
            self.refresh_use(pool, &device);
            self.wake(pool);
            freed.push(DeviceId {
                driver,
                pool: name,
                device,
            });
            self.drop_pool_if_unknown(pool);
        }
        freed.dedup();
        freed
    }

    /// A claim that holds the device whole, or else one with a share of it.
    #[must_use]
    pub fn holder(&self, device: &DeviceId) -> Option<Uid> {
        let pool = self.pool_by_id.get(&device.pool_id())?;
        self.pool(*pool).uses.get(&device.device)?.holder()
    }

    /// The pool's newest generation, and the slices there should be and are; `None`: there is no slice of it.
    #[must_use]
    pub fn pool_generation(&self, id: &PoolId) -> Option<(i64, i64, usize)> {
        let slices = self.pool(*self.pool_by_id.get(id)?).slices();
        let generation = |entry: &SliceEntry| entry.slice.spec.pool.generation;
        let newest = slices.iter().map(generation).max()?;
        let newest_slices = slices.iter().filter(|entry| generation(entry) == newest);
        let declared = newest_slices.clone().next()?.slice.spec.pool.resource_slice_count;
        Some((newest, declared, newest_slices.count()))
    }

    /// The ids of all pools with slices, sorted.
    #[must_use]
    pub fn pool_ids(&self) -> Vec<PoolId> {
        let with_slices = self.pools.iter().flatten().filter(|pool| !pool.slices().is_empty());
        let mut ids: Vec<_> = with_slices.map(|pool| pool.id.clone()).collect();
        ids.sort();
        ids
    }

    /// Devices of a pool's newest generation, and how many of them are free. O(devices of the pool).
    #[must_use]
    pub fn pool_stats(&self, id: &PoolId) -> Stats {
        let Some(pool) = self.pool_by_id.get(id).map(|pool| self.pool(*pool)) else {
            return Stats { devices: 0, free: 0 };
        };
        let newest = pool.slices().iter().map(|entry| entry.slice.spec.pool.generation).max();
        let slices = pool
            .slices()
            .iter()
            .filter(|entry| Some(entry.slice.spec.pool.generation) == newest);
        let mut stats = Stats { devices: 0, free: 0 };
        for device in slices.flat_map(|entry| entry.slice.sources()) {
            stats.devices += 1;
            let is_held = pool
                .uses
                .get(device.name)
                .is_some_and(|device_use| device_use.is_held(self.features));
            stats.free += usize::from(!is_held);
        }
        stats
    }

    /// The sum of [`Cluster::pool_stats`] over all pools. O(devices).
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut sum = Stats { devices: 0, free: 0 };
        for id in self.pool_ids() {
            let stats = self.pool_stats(&id);
            sum.devices += stats.devices;
            sum.free += stats.free;
        }
        sum
    }

    /// The number of nodes known, by object or by a slice that names them.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.node_by_name.len()
    }

    /// A node selector somewhere that cannot be read: upstream ends every call on it.
    pub(crate) fn bad_selector(&self) -> Option<&str> {
        self.bad_selectors.values().next().map(String::as_str)
    }

    pub(crate) fn filter(&self, class: Option<&DeviceClass>, selectors: &[DeviceSelector]) -> Arc<Filter> {
        self.learned()
            .filters
            .filter(class.map_or(&[], |class| &class.spec.selectors), selectors)
    }

    /// A decision that panicked left nothing half-done here that a later one could not work out again.
    pub(crate) fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learned_mut(&mut self) -> &mut Learned {
        self.learned.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node_number(&self, name: &str) -> Option<NodeNumber> {
        self.node_by_name.get(name).copied()
    }

    pub(crate) fn node(&self, node: NodeNumber) -> Option<&NodeEntry> {
        self.nodes.get(node)?.as_ref()
    }

    /// All nodes in the order of first fit.
    pub(crate) fn nodes_in_order(&self) -> Vec<NodeNumber> {
        let mut nodes: Vec<_> = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_some()).collect();
        nodes.sort_by_cached_key(|node| rank_key(&self.nodes, self.order, self.preferred.as_ref(), *node));
        nodes
    }

    /// First fit takes the nodes for which `preferred` holds first, then the others, each group in its order. An allocator that decides for
    /// some nodes only prefers those.
    pub fn prefer_nodes(&mut self, preferred: Arc<dyn Fn(&str) -> bool + Send + Sync>) {
        self.preferred = Some(Preferred(preferred));
        self.learned_mut().index.forget_order();
    }

    /// No more devices than these are free on the node, whatever is asked; [`UNCOUNTED`]: hard to say.
    /// `uses_wide`: devices count that nodes see by other means than being named.
    pub(crate) fn n_free_at_most(&self, node: NodeNumber, uses_wide: bool) -> u32 {
        if uses_wide {
            UNCOUNTED
        } else {
            self.n_free.get(node).copied().unwrap_or(UNCOUNTED)
        }
    }

    /// Works out the node's number of free devices again.
    fn recount(&mut self, node: NodeNumber) {
        let Some(entry) = self.nodes.get(node).and_then(Option::as_ref) else {
            return;
        };
        let mut sum = 0;
        for pool in entry.pools.iter().map(|pool| self.pool(*pool)) {
            // A pool that spans nodes is not worth counting per node.
            sum += if pool.nodes.len() == 1 {
                pool.n_free()
            } else {
                UNCOUNTED as usize
            };
        }
        if self.n_free.len() <= node {
            self.n_free.resize(node + 1, UNCOUNTED);
        }
        self.n_free[node] = u32::try_from(sum).unwrap_or(UNCOUNTED);
    }

    /// As [`Cluster::recount`], for the nodes that a pool's slices name.
    fn recount_nodes_of(&mut self, pool: PoolIndex) {
        let Some(entry) = self.pools[pool].as_ref() else { return };
        // Of a pool that spans more nodes than two, only the latest can have been counted before.
        let from = if entry.nodes.len() > 2 { entry.nodes.len() - 1 } else { 0 };
        let nodes: SmallVec<[NodeNumber; 2]> = entry.nodes[from..].iter().map(|(node, _)| *node).collect();
        nodes.into_iter().for_each(|node| self.recount(node));
    }

    /// What an object says about a node; `None`: no such object.
    pub(crate) fn node_facts(&self, name: &str) -> Option<&NodeFacts> {
        self.node(self.node_number(name)?)?.facts.as_ref()
    }

    /// Pools that nodes see by other means than being named.
    pub(crate) fn wide_pools(&self) -> impl Iterator<Item = PoolIndex> + '_ {
        self.wide_pools.iter().copied()
    }

    pub(crate) fn pool_by_id(&self, id: &PoolId) -> Option<&Pool> {
        self.pool_by_id.get(id).map(|pool| self.pool(*pool))
    }

    pub(crate) fn pool(&self, pool: PoolIndex) -> &Pool {
        self.pools[pool]
            .as_ref()
            .expect("pool indices are dropped together with their pool")
    }

    fn pool_index_or_new(&mut self, id: &PoolId) -> PoolIndex {
        if let Some(pool) = self.pool_by_id.get(id) {
            return *pool;
        }
        let pool = self.unused_pools.pop().unwrap_or_else(|| {
            self.pools.push(None);
            self.pools.len() - 1
        });
        self.pools[pool] = Some(Pool::new(id.clone()));
        self.pool_by_id.insert(id.clone(), pool);
        pool
    }

    fn drop_pool_if_unknown(&mut self, pool: PoolIndex) {
        if !self.pool(pool).is_unknown() {
            return;
        }
        self.learned_mut().forget_views(pool);
        if let Some(gone) = self.pools[pool].take() {
            self.pool_by_id.remove(&gone.id);
        }
        self.unused_pools.push(pool);
    }

    /// Whether devices of the pool draw on counters, as far as decisions have looked at it.
    fn has_counters(&self, pool: PoolIndex) -> bool {
        self.learned().views_of(pool).any(|view| view.board.is_some())
    }

    /// A slice of the pool can be seen by these nodes.
    fn add_audience(&mut self, pool: PoolIndex, audience: &Audience) {
        if audience.is_wide() {
            self.wide_pools.insert(pool);
            if let Some(entry) = self.pools[pool].as_mut() {
                entry.n_wide_slices += 1;
            }
        }
        let Audience::Node(name) = audience else { return };
        let node = self.node_or_new(name);
        let Some(entry) = self.pools[pool].as_mut() else { return };
        match entry.nodes.iter_mut().find(|(named, _)| *named == node) {
            Some((_, n_slices)) => *n_slices += 1,
            None => {
                entry.nodes.push((node, 1));
                if let Some(node) = self.nodes[node].as_mut() {
                    node.pools.push(pool);
                }
            }
        }
    }

    /// A slice of the pool that these nodes could see is gone.
    fn remove_audience(&mut self, pool: PoolIndex, audience: &Audience) {
        let Some(entry) = self.pools[pool].as_mut() else { return };
        if audience.is_wide() {
            entry.n_wide_slices -= 1;
            if entry.n_wide_slices == 0 {
                self.wide_pools.remove(&pool);
            }
        }
        let Audience::Node(name) = audience else { return };
        let Some(node) = self.node_by_name.get(name).copied() else {
            return;
        };
        let Some(at) = entry.nodes.iter().position(|(named, _)| *named == node) else {
            return;
        };
        entry.nodes[at].1 -= 1;
        if entry.nodes[at].1 > 0 {
            return;
        }
        entry.nodes.swap_remove(at);
        if let Some(node) = self.nodes[node].as_mut() {
            node.pools.retain(|other| *other != pool);
        }
        self.recount(node);
        self.recount_nodes_of(pool);
        self.on_node_changed(node);
        self.drop_node_if_unknown(node);
    }

    /// The pools that the rule concerns have to be looked at again.
    fn on_taint_rule_changed(&mut self, name: &str) {
        let Some(rule) = self.taint_rules.get(name).cloned() else {
            return;
        };
        for pool in 0..self.pools.len() {
            let concerned = self.pools[pool]
                .as_ref()
                .is_some_and(|entry| taints::concerns_pool(&rule, &entry.id));
            if concerned {
                self.on_slices_changed(pool);
            }
        }
    }

    /// What nodes see of the pool has to be worked out again, and may help.
    fn on_slices_changed(&mut self, pool: PoolIndex) {
        let features = self.features;
        let Some(entry) = self.pools[pool].as_mut() else { return };
        entry.recount(features);
        let learned = self.learned.get_mut().unwrap_or_else(PoisonError::into_inner);
        learned.forget_views(pool);
        entry.nodes.iter().for_each(|(node, _)| learned.forget_node(*node));
        if self.wide_pools.contains(&pool) {
            learned.forget_all_nodes();
            learned.wide_matches.forget();
            learned.index.wake_all();
        }
        self.recount_nodes_of(pool);
        self.wake(pool);
    }

    fn node_or_new(&mut self, name: &str) -> NodeNumber {
        if let Some(node) = self.node_by_name.get(name) {
            return *node;
        }
        let reusable = if self.order == NodeOrder::ByName {
            self.unused_nodes.pop()
        } else {
            None
        };
        let node = reusable.unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        let name: Arc<str> = name.into();
        self.nodes[node] = Some(NodeEntry {
            name: Arc::clone(&name),
            facts: None,
            pools: SmallVec::new(),
        });
        self.node_by_name.insert(name, node);
        let learned = self.learned.get_mut().unwrap_or_else(PoisonError::into_inner);
        let key = |node| rank_key(&self.nodes, self.order, self.preferred.as_ref(), node);
        let own = key(node);
        learned.index.insert(node, |other| key(other) < own);
        node
    }

    fn drop_node_if_unknown(&mut self, node: NodeNumber) {
        let is_unknown = self
            .node(node)
            .is_some_and(|entry| entry.facts.is_none() && entry.pools.is_empty());
        if !is_unknown {
            return;
        }
        if let Some(gone) = self.nodes[node].take() {
            self.node_by_name.remove(&gone.name);
        }
        self.unused_nodes.push(node);
        let learned = self.learned_mut();
        learned.forget_node(node);
        learned.index.remove(node);
    }

    fn on_node_changed(&mut self, node: NodeNumber) {
        let learned = self.learned_mut();
        learned.forget_node(node);
        learned.index.wake(node);
    }

    fn refresh_use(&mut self, pool: PoolIndex, device: &DeviceName) {
        let features = self.features;
        let Some(entry) = self.pools[pool].as_ref() else { return };
        let learned = self.learned.get_mut().unwrap_or_else(PoisonError::into_inner);
        learned.each_view_of(pool, |view| view.use_one(device, &entry.uses, features));
        if let [(node, _)] = entry.nodes.as_slice() {
            self.recount(*node);
        }
    }

    /// Something of the pool is free: nodes that see it are worth another look.
    fn wake(&mut self, pool: PoolIndex) {
        let is_wide = self.wide_pools.contains(&pool);
        let Some(entry) = self.pools[pool].as_ref() else { return };
        let learned = self.learned.get_mut().unwrap_or_else(PoisonError::into_inner);
        if is_wide {
            learned.index.wake_users_of_wide();
        }
        entry.nodes.iter().for_each(|(node, _)| learned.index.wake(*node));
    }
}

/// By what first fit orders nodes: preferred ones first, then by name or number.
fn rank_key<'a>(
    nodes: &'a [Option<NodeEntry>],
    order: NodeOrder,
    preferred: Option<&Preferred>,
    node: NodeNumber,
) -> (bool, Option<&'a str>, NodeNumber) {
    let name = nodes[node].as_ref().map(|entry| &*entry.name);
    let is_late = preferred.is_some_and(|preferred| !name.is_some_and(|name| preferred.0(name)));
    match order {
        NodeOrder::ByName => (is_late, name, 0),
        NodeOrder::AsPut => (is_late, None, node),
    }
}
