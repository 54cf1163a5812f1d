//! What decisions work out and keep: pools as nodes see them, which views a node has, filters, hopeless nodes.
//!
//! Filled in on demand and forgotten piece by piece when facts change; everything here can be worked out again.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::cluster::{Cluster, NodeEntry, NodeNumber, PoolIndex};
use crate::layout::LayoutTable;
use crate::node_index::NodeIndex;
use crate::node_view::{self, NodeView};
use crate::pool::Seen;
use crate::pool_view::PoolView;
use crate::request::CompiledUnit;
use crate::selectors::{FilterTable, Verdict};

/// Filters of which it is known whether they concern pools that many nodes see.
const FILTERS_KNOWN_MAX: usize = 4096;

/// What decisions work out and keep.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    views: Vec<Option<PoolView>>,
    unused_views: Vec<usize>,
    /// Per pool: what is seen of it, and the view of that; `None`: it has vanished.
    views_of_pool: Vec<Vec<(Seen, Option<usize>)>>,
    /// Per node: its views in order.
    views_of_node: Vec<Option<SmallVec<[usize; 2]>>>,
    layouts: LayoutTable,
    pub(crate) wide_matches: WideMatches,
    pub(crate) filters: FilterTable,
    pub(crate) index: NodeIndex,
}

/// Per filter: whether it refuses every device of the pools that nodes see by other means than being named.
#[derive(Debug, Default)]
pub(crate) struct WideMatches {
    of_filter: FxHashMap<u64, bool>,
}

impl WideMatches {
    pub(crate) fn forget(&mut self) {
        self.of_filter.clear();
    }
}

impl Cluster {
    /// Whether some device that nodes see by other means than being named may serve the unit.
    ///
    /// The first time a filter is asked: O(devices of such pools).
    pub(crate) fn uses_wide(&self, known: &mut WideMatches, unit: &CompiledUnit) -> bool {
        let mut pools = self.wide_pools().peekable();
        if pools.peek().is_none() {
            return false;
        }
        if unit.depends_on_all_inventory() {
            return true;
        }
        unit.choices.iter().any(|choice| {
            if known.of_filter.len() >= FILTERS_KNOWN_MAX {
                known.forget();
            }
            *known.of_filter.entry(choice.filter.id()).or_insert_with(|| {
                let slices = self.wide_pools().flat_map(|pool| self.pool(pool).slices());
                let mut devices = slices.flat_map(|entry| entry.slice.sources().map(|device| (&entry.slice.spec.driver, device)));
                devices.any(|(driver, device)| !matches!(choice.filter.judge(driver, device), Verdict::Refused { .. }))
            })
        })
    }

    /// The devices of a node, in order. Builds what is not known yet.
    pub(crate) fn node_view<'a>(&'a self, learned: &'a mut Learned, node: NodeNumber) -> Option<NodeView<'a>> {
        let entry = self.node(node)?;
        if learned.views_of_node.get(node).is_none_or(Option::is_none) {
            let views = self.look_up_views(learned, entry);
            if learned.views_of_node.len() <= node {
                learned.views_of_node.resize(node + 1, None);
            }
            learned.views_of_node[node] = Some(views);
        }
        let views = learned.views_of_node[node].as_ref()?;
        let pools = views.iter().filter_map(|view| learned.views[*view].as_ref());
        Some(NodeView::new(&entry.name, entry.supports_skipped_operations(), pools))
    }

    /// As [`Cluster::node_view`], for a node that nothing is known about but its name.
    pub(crate) fn stranger_view<'a>(&'a self, learned: &'a mut Learned, name: &'a str) -> NodeView<'a> {
        let stranger = NodeEntry::stranger(name);
        let views = self.look_up_views(learned, &stranger);
        let pools: Vec<_> = views.iter().filter_map(|view| learned.views[*view].as_ref()).collect();
        NodeView::new(name, false, pools)
    }

    fn look_up_views(&self, learned: &mut Learned, node: &NodeEntry) -> SmallVec<[usize; 2]> {
        let wide = self.wide_pools().filter(|pool| !node.pools().contains(pool));
        let views: Vec<_> = node
            .pools()
            .iter()
            .copied()
            .chain(wide)
            .filter_map(|pool| self.look_up_view(learned, pool, node))
            .collect();
        let mut pools: Vec<_> = views
            .iter()
            .filter_map(|view| Some((*view, learned.views[*view].as_ref()?)))
            .collect();
        node_view::order(&mut pools);
        pools.into_iter().map(|(view, _)| view).collect()
    }

    fn look_up_view(&self, learned: &mut Learned, pool_at: PoolIndex, node: &NodeEntry) -> Option<usize> {
        let pool = self.pool(pool_at);
        let seen = pool.seen_by(node.view())?;
        if learned.views_of_pool.len() <= pool_at {
            learned.views_of_pool.resize_with(pool_at + 1, Vec::new);
        }
        if let Some((_, view)) = learned.views_of_pool[pool_at].iter().find(|(known, _)| *known == seen) {
            return *view;
        }
        let view = pool.view(&seen, self.features(), &mut learned.layouts).map(|mut view| {
            self.taint_rules_of(&pool.id).for_each(|rule| view.apply(rule));
            learned.add_view(view)
        });
        learned.views_of_pool[pool_at].push((seen, view));
        view
    }
}

impl Learned {
    fn add_view(&mut self, view: PoolView) -> usize {
        let at = self.unused_views.pop().unwrap_or_else(|| {
            self.views.push(None);
            self.views.len() - 1
        });
        self.views[at] = Some(view);
        at
    }

    /// Forgets a pool's views. The lists of nodes that have them must be forgotten as well.
    pub(crate) fn forget_views(&mut self, pool: PoolIndex) {
        for (_, view) in self.views_of_pool.get_mut(pool).map(std::mem::take).unwrap_or_default() {
            if let Some(view) = view {
                self.views[view] = None;
                self.unused_views.push(view);
            }
        }
    }

    pub(crate) fn forget_node(&mut self, node: NodeNumber) {
        if let Some(views) = self.views_of_node.get_mut(node) {
            *views = None;
        }
    }

    pub(crate) fn forget_all_nodes(&mut self) {
        self.views_of_node.clear();
    }

    /// Everything that nodes see of a pool, as far as it was looked at.
    pub(crate) fn views_of(&self, pool: PoolIndex) -> impl Iterator<Item = &PoolView> {
        let views = self.views_of_pool.get(pool).into_iter().flatten();
        views.filter_map(|(_, view)| self.views[(*view)?].as_ref())
    }

    /// As [`Learned::views_of`], to keep up with what is taken.
    pub(crate) fn each_view_of(&mut self, pool: PoolIndex, mut update: impl FnMut(&mut PoolView)) {
        for (_, view) in self.views_of_pool.get(pool).into_iter().flatten() {
            if let Some(view) = view.and_then(|view| self.views[view].as_mut()) {
                update(view);
            }
        }
    }
}
