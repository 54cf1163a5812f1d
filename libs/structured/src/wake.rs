//! Which waiting units a device could help: asked for every device that becomes free or appears.

use resource_api::ids::DeviceId;

use crate::cluster::Cluster;
use crate::packed::PackedDevice;
use crate::request::{Choice, CompiledUnit};
use crate::selectors::Verdict;
use crate::taints;

/// Whether the device could serve any request of the unit, judged by the device alone.
///
/// Errs on the side of waking: a selector that fails counts as a match, counters, capacity and constraints are not looked
/// at. A device that is not published helps nobody. Cheap: answers of selectors are shared by equal devices.
#[must_use]
pub fn wake_matches(cluster: &Cluster, unit: &CompiledUnit, device: &DeviceId) -> bool {
    let Some(pool) = cluster.pool_by_id(&device.pool_id()) else {
        return false;
    };
    let slices = pool.slices().iter().flat_map(|entry| entry.slice.sources());
    let mut published = slices.filter(|published| *published.name == device.device);
    published.any(|published| unit.choices.iter().any(|choice| serves(cluster, choice, device, published)))
}

fn serves(cluster: &Cluster, choice: &Choice, id: &DeviceId, device: PackedDevice<'_>) -> bool {
    let rules = cluster.taint_rules_of(&id.pool_id()).collect::<Vec<_>>();
    let by_rules = rules.iter().filter(|rule| taints::concerns_device(rule, device.name));
    let on_device = device.kind().device.taints.iter().chain(by_rules.map(|rule| &rule.spec.taint));
    let tolerated = !cluster.features().device_taints || taints::first_untolerated(on_device, &choice.tolerations).is_none();
    tolerated && !matches!(choice.filter.judge(&id.driver, device), Verdict::Refused { .. })
}
