//! What pools of equal make share: device names, the sets that rules look at, and who draws on which counters.
//!
//! Worked out once per distinct list of slice layouts. A node of a known make then costs a reference and its own state.

use std::sync::Arc;

use resource_api::ids::DeviceName;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::bits::Bits;
use crate::counters::CounterPlan;
use crate::packed::{PackedSlice, SliceLayout};
use crate::taints;

/// Above this many devices a pool keeps a map from names to positions.
const NAMES_SCANNED_MAX: usize = 16;

/// Layouts below which looking for unused ones does not pay.
const SWEEP_FROM: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct PoolLayout {
    slices: SmallVec<[Arc<SliceLayout>; 2]>,
    /// The position of each slice's first device.
    starts: SmallVec<[u32; 2]>,
    pub(crate) len: usize,
    positions: FxHashMap<DeviceName, u32>,
    pub(crate) shareable: Bits,
    pub(crate) consumes: Bits,
    pub(crate) skips_operations: Bits,
    /// Has a blocking taint of its own.
    pub(crate) tainted: Bits,
    pub(crate) with_binding_conditions: Bits,
    /// `None`: nothing draws on counters, or the feature is off. Error, here or in the next: how the pool contradicts itself.
    pub(crate) counters: Result<Option<Arc<CounterPlan>>, String>,
    pub(crate) has_unique_names: Result<(), String>,
}

impl PoolLayout {
    /// `elsewhere`: slices of the same state of the pool that the nodes do not see. `counts`: partitionable devices are on.
    pub(crate) fn new(here: &[&Arc<SliceLayout>], elsewhere: &[&PackedSlice], counts: bool) -> Self {
        let len = here.iter().map(|slice| slice.n_sources()).sum();
        let empty = || Bits::new(len);
        let mut layout = Self {
            slices: here.iter().map(|slice| Arc::clone(slice)).collect(),
            starts: SmallVec::new(),
            len,
            positions: FxHashMap::default(),
            shareable: empty(),
            consumes: empty(),
            skips_operations: empty(),
            tainted: empty(),
            with_binding_conditions: empty(),
            counters: Ok(None),
            has_unique_names: Ok(()),
        };
        let mut names = FxHashSet::default();
        let mut at = 0;
        for slice in here {
            layout.starts.push(small(at));
            let skips_operations = !slice.skip_node_operations().is_empty();
            for (name, kind) in slice.sources() {
                let kind = &kind.device;
                layout.shareable.assign(at, kind.is_shareable());
                layout.consumes.assign(at, !kind.consumes_counters.is_empty());
                layout.skips_operations.assign(at, skips_operations);
                layout.tainted.assign(at, kind.taints.iter().any(taints::is_blocking));
                layout.with_binding_conditions.assign(at, !kind.binding_conditions.is_empty());
                if !names.insert(name) && layout.has_unique_names.is_ok() {
                    layout.has_unique_names = Err(format!("device {name} is published twice"));
                }
                if len > NAMES_SCANNED_MAX {
                    layout.positions.insert(name.clone(), small(at));
                }
                at += 1;
            }
        }
        if counts {
            let all = here
                .iter()
                .map(|slice| &***slice)
                .chain(elsewhere.iter().map(|slice| &**slice.layout()));
            let plan = CounterPlan::build(
                all.flat_map(SliceLayout::shared_counters),
                here.iter().flat_map(|slice| slice.sources()),
                elsewhere.iter().flat_map(|slice| slice.layout().sources()),
            );
            layout.counters = plan.map(|plan| (!plan.is_idle()).then(|| Arc::new(plan)));
        }
        layout
    }

    /// Where a device is: the number of its slice, and the device's number in it.
    pub(crate) fn place(&self, at: usize) -> (usize, usize) {
        let slice = match self.starts.len() {
            1 => 0,
            // Slices without devices start where the next one does; the last of equal starts has the device.
            _ => self.starts.partition_point(|start| *start as usize <= at) - 1,
        };
        (slice, at - self.starts[slice] as usize)
    }

    /// The layout of a slice.
    pub(crate) fn slice(&self, slice: usize) -> &SliceLayout {
        &self.slices[slice]
    }

    /// The position of a device by its name.
    pub(crate) fn position(&self, device: &str) -> Option<usize> {
        if self.positions.is_empty() {
            let mut names = self.slices.iter().flat_map(|slice| slice.sources());
            return names.position(|(name, _)| **name == *device);
        }
        self.positions.get(device).map(|at| *at as usize)
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Layouts by the slice layouts that they are made of.
#[derive(Debug, Default)]
pub(crate) struct LayoutTable {
    /// By addresses, which mean the same slice layouts as long as the pool layout keeps them.
    layouts: FxHashMap<SmallVec<[usize; 2]>, Arc<PoolLayout>>,
    sweep_at: usize,
}

impl LayoutTable {
    pub(crate) fn of(&mut self, here: &[&Arc<SliceLayout>], elsewhere: &[&PackedSlice], counts: bool) -> Arc<PoolLayout> {
        if !elsewhere.is_empty() {
            return Arc::new(PoolLayout::new(here, elsewhere, counts));
        }
        let key: SmallVec<[usize; 2]> = here.iter().map(|slice| Arc::as_ptr(slice).addr()).collect();
        if let Some(known) = self.layouts.get(&key) {
            return Arc::clone(known);
        }
        if self.layouts.len() >= self.sweep_at.max(SWEEP_FROM) {
            self.layouts.retain(|_, layout| Arc::strong_count(layout) > 1);
            self.sweep_at = 2 * self.layouts.len();
        }
        let layout = Arc::new(PoolLayout::new(here, elsewhere, counts));
        self.layouts.insert(key, Arc::clone(&layout));
        layout
    }
}
