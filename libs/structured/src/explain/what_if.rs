//! One node with changes applied to the input, and the real decision made on it: what makes a nearest miss a fact.
//!
//! Nothing of the cluster is changed; pools that a change concerns are put together anew for the attempt.

use std::collections::BTreeSet;
use std::sync::Arc;

use resource_api::device::Device;
use resource_api::ids::{DeviceId, DeviceName, PoolId};
use resource_api::quantity::Quantity;
use resource_api::slice::ResourceSlice;
use resource_api::taint::{DeviceTaint, DeviceToleration, DeviceTolerationOperator};

use crate::cluster::{Cluster, NodeEntry};
use crate::layout::LayoutTable;
use crate::limits::Limits;
use crate::node_view::{self, NodeView};
use crate::packed::{Kind, Packer};
use crate::place;
use crate::plan::Plan;
use crate::pool::{Audience, Pool, SliceEntry};
use crate::pool_view::{Health, PoolView};
use crate::request::{ChoiceId, CompiledUnit};
use crate::selectors::Filter;

/// Search steps of one attempt.
const STEPS_PER_ATTEMPT_MAX: u64 = 5_000;

/// What an attempt costs beyond its steps and the devices of pools put together.
const ATTEMPT_COST: u64 = 16;

/// A change as an attempt applies it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Atom {
    FreeCapacity {
        device: DeviceId,
        capacity: String,
        missing: Quantity,
    },
    FreeDevice(DeviceId),
    CompletePool(PoolId),
    RepairPool(PoolId),
    Tolerate {
        choice: ChoiceId,
        taint: DeviceTaint,
    },
    /// By its number in the unit.
    DropConstraint(usize),
    /// By its number in [`WhatIf::dropped`].
    DropSelector(usize),
    RaiseCounter {
        pool: PoolId,
        set: String,
        counter: String,
        by: Quantity,
    },
    EnlargeDevice {
        device: DeviceId,
        capacity: String,
        missing: Quantity,
    },
    SkipNodeOperations,
}

impl Atom {
    fn concerns(&self, pool: &PoolId) -> bool {
        match self {
            Self::FreeCapacity { device, .. } | Self::FreeDevice(device) | Self::EnlargeDevice { device, .. } => {
                device.driver == pool.driver && device.pool == pool.pool
            }
            Self::CompletePool(id) | Self::RepairPool(id) | Self::RaiseCounter { pool: id, .. } => id == pool,
            Self::Tolerate { .. } | Self::DropConstraint(_) | Self::DropSelector(_) | Self::SkipNodeOperations => false,
        }
    }
}

/// A choice's filter without one of its selectors.
#[derive(Clone, Debug)]
pub(super) struct Dropped {
    pub(super) choice: ChoiceId,
    /// Its place in the filter.
    pub(super) selector: usize,
    pub(super) filter: Arc<Filter>,
}

/// See the module.
pub(super) struct WhatIf<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) unit: &'a CompiledUnit,
    pub(super) node: &'a NodeEntry,
    pub(super) view: &'a NodeView<'a>,
    pub(super) dropped: &'a [Dropped],
}

impl WhatIf<'_> {
    /// The decision with these changes; `None`: still no, or not within the work that is left.
    pub(super) fn attempt(&self, atoms: &[Atom], work_left: &mut u64) -> Option<Plan> {
        if *work_left == 0 {
            return None;
        }
        let unit = self.changed_unit(atoms);
        let mut changed = Vec::new();
        let mut work = ATTEMPT_COST;
        for pool in self.view.pools() {
            if atoms.iter().any(|atom| atom.concerns(&pool.id)) {
                work += pool.len() as u64;
                changed.push((pool.id.clone(), self.changed_pool(&pool.id, atoms)?));
            }
        }
        let mut pools: Vec<(usize, &PoolView)> = self
            .view
            .pools()
            .iter()
            .map(|pool| {
                (
                    0,
                    changed
                        .iter()
                        .find(|(id, _)| *id == pool.id)
                        .map_or(*pool, |(_, changed)| changed),
                )
            })
            .collect();
        node_view::order(&mut pools);
        let skips = self.view.supports_skipped_operations || atoms.contains(&Atom::SkipNodeOperations);
        let view = NodeView::new(self.view.name, skips, pools.into_iter().map(|(_, pool)| pool));
        let limits = Limits {
            steps_per_node_max: STEPS_PER_ATTEMPT_MAX.min(*work_left),
            ..Limits::default()
        };
        let mut steps = 0;
        let plan = place::decide_on(self.cluster, &unit, &view, &limits, &mut steps).ok();
        *work_left = work_left.saturating_sub(work + steps);
        plan
    }

    fn changed_unit(&self, atoms: &[Atom]) -> CompiledUnit {
        let mut unit = self.unit.clone();
        for atom in atoms {
            match atom {
                Atom::Tolerate { choice, taint } => unit.choices[*choice].tolerations.push(DeviceToleration {
                    key: taint.key.clone(),
                    operator: DeviceTolerationOperator::Equal,
                    value: taint.value.clone(),
                    effect: taint.effect.clone(),
                    toleration_seconds: None,
                }),
                // One that covers nothing.
                Atom::DropConstraint(constraint) => unit.constraints[*constraint].choices.clear(),
                Atom::DropSelector(at) => {
                    let dropped = &self.dropped[*at];
                    unit.choices[dropped.choice].filter = Arc::clone(&dropped.filter);
                }
                Atom::FreeCapacity { .. }
                | Atom::FreeDevice(_)
                | Atom::CompletePool(_)
                | Atom::RepairPool(_)
                | Atom::RaiseCounter { .. }
                | Atom::EnlargeDevice { .. }
                | Atom::SkipNodeOperations => {}
            }
        }
        unit
    }

    fn changed_pool(&self, id: &PoolId, atoms: &[Atom]) -> Option<PoolView> {
        let pool = self.cluster.pool_by_id(id)?;
        let mut changed = Pool::new(id.clone());
        changed.uses = pool.uses.clone();
        let mut is_repaired = false;
        for atom in atoms.iter().filter(|atom| atom.concerns(id)) {
            match atom {
                Atom::FreeDevice(device) => {
                    changed.uses.remove(&device.device);
                }
                Atom::FreeCapacity {
                    device,
                    capacity,
                    missing,
                } => {
                    if let Some(used) = changed.uses.get_mut(&device.device) {
                        used.give_back(capacity, missing);
                    }
                }
                Atom::RepairPool(_) => is_repaired = true,
                _ => {}
            }
        }
        let newest = newest_generation(pool)?;
        let n_slices = slices_of(pool, newest).filter(|entry| counts(entry)).count();
        for entry in pool.slices() {
            let of_newest = entry.slice.spec.pool.generation == newest;
            changed.put(if of_newest {
                changed_slice(entry, n_slices, atoms)
            } else {
                entry.clone()
            });
        }
        let mut view = changed.view(
            &changed.seen_by(self.node.view())?,
            self.cluster.features(),
            &mut LayoutTable::default(),
        )?;
        self.cluster.taint_rules_of(id).for_each(|rule| view.apply(rule));
        if is_repaired {
            view.health = Health::Usable;
        }
        Some(view)
    }

    /// The devices that draw on a counter and are in use or in the plan: how much they need beyond what there is.
    pub(super) fn counter_shortfall(&self, atoms: &[Atom], plan: &Plan, raised: (&PoolId, &str, &str)) -> Option<Quantity> {
        let (id, set, counter) = raised;
        let pool = self.cluster.pool_by_id(id)?;
        let newest = newest_generation(pool)?;
        let published = slices_of(pool, newest)
            .flat_map(|entry| entry.slice.layout().shared_counters())
            .find(|published| published.name == *set)?
            .counters
            .get(counter)?
            .value
            .clone();
        let freed = |name: &DeviceName| {
            atoms
                .iter()
                .any(|atom| matches!(atom, Atom::FreeDevice(device) if atom.concerns(id) && device.device == *name))
        };
        let planned: BTreeSet<_> = plan
            .claims
            .iter()
            .flat_map(|(_, allocation)| &allocation.devices.results)
            .filter(|result| result.driver == id.driver && result.pool == id.pool)
            .map(|result| &result.device)
            .collect();
        let mut needed = Quantity::ZERO;
        for (name, kind) in slices_of(pool, newest).flat_map(sources_of) {
            if planned.contains(name) || (pool.uses.contains_key(name) && !freed(name)) {
                needed = needed.plus(&draw(&kind.device, set, counter));
            }
        }
        let missing = needed.minus(&published);
        (missing.signum() > 0).then(|| Quantity::from_nanos(missing.nanos().unwrap_or(i128::MAX), published.format()))
    }
}

/// What a device draws on a counter.
pub(super) fn draw(device: &Device, set: &str, counter: &str) -> Quantity {
    let draws = device.consumes_counters.iter().filter(|draws| draws.counter_set == *set);
    let draws = draws.filter_map(|draws| draws.counters.get(counter));
    draws.fold(Quantity::ZERO, |sum, counter| sum.plus(&counter.value))
}

pub(super) fn newest_generation(pool: &Pool) -> Option<i64> {
    pool.slices().iter().map(|entry| entry.slice.spec.pool.generation).max()
}

pub(super) fn slices_of(pool: &Pool, generation: i64) -> impl Iterator<Item = &SliceEntry> {
    let slices = pool.slices().iter();
    slices.filter(move |entry| entry.slice.spec.pool.generation == generation)
}

/// The devices of a slice that can be handed out.
pub(super) fn sources_of(entry: &SliceEntry) -> impl Iterator<Item = (&DeviceName, &Kind)> {
    entry.slice.layout().sources()
}

/// Whether the slice counts for completeness.
fn counts(entry: &SliceEntry) -> bool {
    entry.audience != Audience::Hidden { counts: false }
}

fn changed_slice(entry: &SliceEntry, n_slices: usize, atoms: &[Atom]) -> SliceEntry {
    let mut slice = None;
    let id = PoolId {
        driver: entry.slice.spec.driver.clone(),
        pool: entry.slice.spec.pool.name.clone(),
    };
    for atom in atoms.iter().filter(|atom| atom.concerns(&id)) {
        match atom {
            Atom::CompletePool(_) => {
                let slice: &mut ResourceSlice = slice.get_or_insert_with(|| entry.slice.restore());
                slice.spec.pool.resource_slice_count = i64::try_from(n_slices).unwrap_or(i64::MAX);
            }
            Atom::RaiseCounter { set, counter, by, .. } => {
                let sets = entry.slice.layout().shared_counters();
                let Some(at) = sets.iter().position(|published| published.name == *set) else {
                    continue;
                };
                let slice = slice.get_or_insert_with(|| entry.slice.restore());
                let sets = slice.spec.shared_counters.iter_mut().flatten();
                let counters = sets.skip(at).take(1).filter_map(|set| set.counters.get_mut(counter));
                counters.for_each(|counter| counter.value = counter.value.plus(by));
            }
            Atom::EnlargeDevice {
                device,
                capacity,
                missing,
            } => {
                let Some(at) = entry.slice.kinds().position(|(name, _)| *name == device.device) else {
                    continue;
                };
                let slice = slice.get_or_insert_with(|| entry.slice.restore());
                let devices = slice.spec.devices.iter_mut().flatten();
                let capacities = devices
                    .skip(at)
                    .take(1)
                    .filter_map(|device| device.capacity.get_mut(capacity));
                capacities.for_each(|capacity| capacity.value = capacity.value.plus(missing));
            }
            _ => {}
        }
    }
    match slice {
        None => entry.clone(),
        Some(slice) => SliceEntry {
            slice: Packer::default().pack(&slice),
            audience: entry.audience.clone(),
        },
    }
}
