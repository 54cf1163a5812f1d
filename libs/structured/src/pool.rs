//! Pools as published: slices in, and for each node (or group of nodes that see the same slices) the devices out.
//!
//! A pool is what its newest generation of slices says. While slices are missing it is incomplete, and while it contradicts
//! itself it is invalid; neither hands out devices, but requests in mode All must see it to refuse (KEP-4381).

use std::sync::Arc;

use resource_api::device::Device;
use resource_api::ids::{DeviceName, PoolId};
use resource_api::node::{self, NodeView as NodeFactsView};
use resource_api::slice::ResourceSlice;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bits::Bits;
use crate::counters::CounterBoard;
use crate::features::Features;
use crate::holdings::DeviceUse;
use crate::layout::LayoutTable;
use crate::packed::{PackedSlice, SliceLayout};
use crate::pool_view::{Health, PoolView};

/// Which nodes see a slice; the first field that is set decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Needs a feature that is off. `counts`: it still counts for completeness.
    Hidden {
        counts: bool,
    },
    Node(Arc<str>),
    AllNodes,
    Selected,
    PerDevice,
    /// A way of naming nodes that this version does not know; counts for completeness.
    Nobody,
}

impl Audience {
    /// Whether nodes that the slice does not name can see it.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self, Self::AllNodes | Self::Selected | Self::PerDevice)
    }

    pub(crate) fn of(slice: &ResourceSlice, features: Features) -> Self {
        let spec = &slice.spec;
        let partitions = spec.per_device_node_selection.is_some() || !spec.shared_counters().is_empty();
        if partitions && !features.partitionable_devices {
            return Self::Hidden { counts: true };
        }
        if !features.compatibility_groups && spec.devices().iter().any(names_groups) {
            return Self::Hidden { counts: false };
        }
        match &spec.node_name {
            Some(node) if !node.is_empty() => Self::Node(node.as_str().into()),
            _ if spec.all_nodes == Some(true) => Self::AllNodes,
            _ if spec.node_selector.is_some() => Self::Selected,
            _ if spec.per_device_node_selection == Some(true) => Self::PerDevice,
            _ => Self::Nobody,
        }
    }
}

fn names_groups(device: &Device) -> bool {
    device
        .consumes_counters
        .iter()
        .any(|consumption| !consumption.compatibility_groups.is_empty())
}

/// A slice with what its fields mean.
#[derive(Clone, Debug)]
pub(crate) struct SliceEntry {
    pub(crate) slice: Arc<PackedSlice>,
    pub(crate) audience: Audience,
}

impl SliceEntry {
    fn name(&self) -> &str {
        &self.slice.name
    }

    fn generation(&self) -> i64 {
        self.slice.spec.pool.generation
    }

    /// Why a node selector of the slice cannot be read on any node.
    pub(crate) fn bad_selector(&self) -> Option<String> {
        let nowhere = NodeFactsView {
            name: "",
            labels: &Default::default(),
        };
        let spec = &self.slice.spec;
        match self.audience {
            Audience::Selected => {
                let error = node::matches(spec.node_selector.as_ref()?, nowhere).err()?;
                Some(format!("node selector of resource slice {}: {error}", self.name()))
            }
            Audience::PerDevice => self.slice.kinds().find_map(|(name, kind)| {
                let error = device_matches(&kind.device, nowhere).err()?;
                Some(format!(
                    "node selector of device {name} in resource slice {}: {error}",
                    self.name()
                ))
            }),
            Audience::Hidden { .. } | Audience::Node(_) | Audience::AllNodes | Audience::Nobody => None,
        }
    }

    /// Whether the node sees the slice, and with per-device selection, which of its devices.
    fn seen_by(&self, node: NodeFactsView<'_>) -> Option<Option<Bits>> {
        match &self.audience {
            Audience::Node(name) => (**name == *node.name).then_some(None),
            Audience::AllNodes => Some(None),
            Audience::Selected => {
                let selector = self.slice.spec.node_selector.as_ref()?;
                node::matches(selector, node).unwrap_or(false).then_some(None)
            }
            Audience::PerDevice => {
                let devices = self.slice.kinds();
                let mut matching = Bits::new(devices.len());
                for (at, (_, kind)) in devices.enumerate() {
                    matching.assign(at, device_matches(&kind.device, node).unwrap_or(false));
                }
                matching.any().then_some(Some(matching))
            }
            Audience::Hidden { .. } | Audience::Nobody => None,
        }
    }
}

fn device_matches(device: &Device, node: NodeFactsView<'_>) -> Result<bool, node::NodeSelectorError> {
    match (&device.node_name, device.all_nodes, &device.node_selector) {
        (Some(name), ..) if !name.is_empty() => Ok(name == node.name),
        (_, Some(true), _) => Ok(true),
        (_, _, Some(selector)) => node::matches(selector, node),
        _ => Ok(false),
    }
}

/// What a node sees of a pool; nodes that see the same share one view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Positions in the pool's list of slices, with the devices that per-device selection gives to the node.
    slices: Vec<(usize, Option<Bits>)>,
}

/// A pool: its slices by name, and what is taken of it.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    slices: Vec<SliceEntry>,
    pub(crate) uses: FxHashMap<DeviceName, DeviceUse>,
    /// The nodes that its slices name, and how many slices name each; kept by the cluster.
    pub(crate) nodes: SmallVec<[(usize, u32); 1]>,
    /// Slices that nodes see by other means than being named; kept by the cluster.
    pub(crate) n_wide_slices: usize,
    n_free: usize,
}

impl Pool {
    pub(crate) fn new(id: PoolId) -> Self {
        Self {
            id,
            slices: Vec::new(),
            uses: FxHashMap::default(),
            nodes: SmallVec::new(),
            n_wide_slices: 0,
            n_free: 0,
        }
    }

    /// Returns the slice that it replaces.
    pub(crate) fn put(&mut self, entry: SliceEntry) -> Option<SliceEntry> {
        match self.slices.binary_search_by(|other| other.name().cmp(entry.name())) {
            Ok(at) => Some(std::mem::replace(&mut self.slices[at], entry)),
            Err(at) => {
                self.slices.insert(at, entry);
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, slice: &str) -> Option<SliceEntry> {
        let at = self.slices.binary_search_by(|other| other.name().cmp(slice)).ok()?;
        Some(self.slices.remove(at))
    }

    pub(crate) fn slices(&self) -> &[SliceEntry] {
        &self.slices
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.slices.is_empty() && self.uses.is_empty()
    }

    /// How many devices nobody holds whole, over slices of all generations: no node finds more than that free here.
    ///
    /// Kept for pools whose slices name one node; only there it says something about a node.
    pub(crate) fn n_free(&self) -> usize {
        self.n_free
    }

    /// Works [`Pool::n_free`] out again, after slices changed.
    pub(crate) fn recount(&mut self, features: Features) {
        let names = self.slices.iter().flat_map(|entry| entry.slice.layout().sources());
        let is_held = |name: &DeviceName| self.uses.get(name).is_some_and(|used| used.is_held(features));
        self.n_free = match self.uses.is_empty() {
            true => names.count(),
            false => names.filter(|(name, _)| !is_held(name)).count(),
        };
    }

    /// Changes what is taken of a device and keeps [`Pool::n_free`] up to date.
    pub(crate) fn change_use(&mut self, device: &DeviceName, features: Features, change: impl FnOnce(&mut DeviceUse)) {
        let device_use = self.uses.entry(device.clone()).or_default();
        let was_held = device_use.is_held(features);
        change(device_use);
        let is_held = device_use.is_held(features);
        if device_use.is_empty() {
            self.uses.remove(device);
        }
        if was_held != is_held && self.nodes.len() == 1 {
            let layouts = self.slices.iter().map(|entry| entry.slice.layout());
            let n_published: usize = layouts.map(|layout| layout.named(device).len()).sum();
            self.n_free = if is_held {
                self.n_free - n_published
            } else {
                self.n_free + n_published
            };
        }
    }

    /// `None`: the pool does not exist for the node.
    pub(crate) fn seen_by(&self, node: NodeFactsView<'_>) -> Option<Seen> {
        let seen = self.slices.iter().enumerate();
        let slices: Vec<_> = seen.filter_map(|(at, entry)| Some((at, entry.seen_by(node)?))).collect();
        (!slices.is_empty()).then_some(Seen { slices })
    }

    /// Puts the view together. `None`: what is seen is obsolete, the pool has vanished for these nodes.
    ///
    /// O(devices).
    pub(crate) fn view(&self, seen: &Seen, features: Features, layouts: &mut LayoutTable) -> Option<PoolView> {
        let newest = seen.slices.iter().map(|(at, _)| self.slices[*at].generation()).max()?;
        let kept: Vec<_> = seen
            .slices
            .iter()
            .filter(|(at, _)| self.slices[*at].generation() == newest)
            .collect();
        let declared = self.slices[kept.first()?.0].slice.spec.pool.resource_slice_count;
        let agree = kept
            .iter()
            .all(|(at, _)| self.slices[*at].slice.spec.pool.resource_slice_count == declared);
        let mut complete = agree && counts_to(kept.len(), declared);
        let mut elsewhere: Vec<&PackedSlice> = Vec::new();
        if !complete {
            if self.slices.iter().any(|entry| entry.generation() > newest) {
                return None;
            }
            let same = self
                .slices
                .iter()
                .enumerate()
                .filter(|(_, entry)| entry.generation() == newest && entry.audience != Audience::Hidden { counts: false });
            let same: Vec<_> = same.collect();
            complete = agree && counts_to(same.len(), declared);
            let others = same.into_iter().filter(|(at, _)| !kept.iter().any(|(kept, _)| kept == at));
            elsewhere = others.map(|(_, entry)| &*entry.slice).collect();
        }
        let here: Vec<_> = kept
            .iter()
            .map(|(at, matching)| (&self.slices[*at].slice, matching))
            .collect();
        let of_slices: SmallVec<[&Arc<SliceLayout>; 2]> = here.iter().map(|(slice, _)| slice.layout()).collect();
        let layout = layouts.of(&of_slices, &elsewhere, features.partitionable_devices);
        let mut view = PoolView::new(self.id.clone(), &here, Arc::clone(&layout));
        if !complete {
            view.health = Health::Incomplete;
        } else {
            match layout.has_unique_names.as_ref().and(layout.counters.as_ref()) {
                Ok(plan) => view.board = plan.clone().map(CounterBoard::new),
                Err(problem) => view.health = Health::Invalid(problem.clone()),
            }
        }
        view.use_all(&self.uses, features);
        Some(view)
    }
}

fn counts_to(n_slices: usize, declared: i64) -> bool {
    i64::try_from(n_slices).is_ok_and(|n| n == declared)
}
