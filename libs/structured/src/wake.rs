//! Which waiting units a device could help: asked for every device that becomes free or appears.

use std::sync::Arc;

use resource_api::ids::{DeviceId, PoolId};
use resource_api::taint::DeviceTaintRule;

use crate::cluster::Cluster;
use crate::packed::PackedDevice;
use crate::request::{Choice, CompiledUnit};
use crate::selectors::Verdict;
use crate::taints;

/// Whether the device, now free, could serve any request of the unit, or another device that draws on the same counters could.
///
/// Errs on the side of waking: a selector that fails counts as a match, what is left of counters and capacity and constraints are not
/// looked at. A device that is not published helps nobody. Cheap: answers of selectors are shared by equal devices; O(devices of the
/// pool) for a device with counters.
#[must_use]
pub fn wake_matches(cluster: &Cluster, unit: &CompiledUnit, device: &DeviceId) -> bool {
    let id = device.pool_id();
    let Some(pool) = cluster.pool_by_id(&id) else { return false };
    let rules: Vec<_> = cluster.taint_rules_of(&id).collect();
    let serves = |device| unit.choices.iter().any(|choice| serves(cluster, choice, &id, &rules, device));
    let slices = || pool.slices().iter().map(|entry| &entry.slice);
    let mut freed = slices().flat_map(|slice| slice.layout().named(&device.device).into_iter().map(|at| slice.device(at)));
    freed.any(|freed| {
        let draws = &freed.kind().device.consumes_counters;
        let shares_counters = |other: &PackedDevice<'_>| {
            let sets = other.kind().device.consumes_counters.iter().map(|draw| &draw.counter_set);
            sets.into_iter().any(|set| draws.iter().any(|draw| draw.counter_set == *set))
        };
        let others = || slices().flat_map(|slice| slice.sources()).filter(shares_counters);
        serves(freed) || (!draws.is_empty() && others().any(serves))
    })
}

fn serves(cluster: &Cluster, choice: &Choice, pool: &PoolId, rules: &[&Arc<DeviceTaintRule>], device: PackedDevice<'_>) -> bool {
    let by_rules = rules.iter().filter(|rule| taints::concerns_device(rule, device.name));
    let on_device = device
        .kind()
        .device
        .taints
        .iter()
        .chain(by_rules.map(|rule| &rule.spec.taint));
    let tolerated = !cluster.features().device_taints || taints::first_untolerated(on_device, &choice.tolerations).is_none();
    tolerated && !matches!(choice.filter.judge(&pool.driver, device), Verdict::Refused { .. })
}
