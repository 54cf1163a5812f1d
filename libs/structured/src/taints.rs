//! Which taints of a device keep a request away (KEP-5055): its own, and those that rules put on it.
//!
//! Only `NoSchedule` and `NoExecute` block; every blocking taint needs a toleration of its own. How long a toleration
//! lasts matters for eviction, not here.

use resource_api::ids::PoolId;
use resource_api::taint::{DeviceTaint, DeviceTaintEffect, DeviceTaintRule, DeviceToleration, DeviceTolerationOperator};

/// Whether the taint keeps requests away that do not tolerate it.
pub(crate) fn is_blocking(taint: &DeviceTaint) -> bool {
    matches!(taint.effect, DeviceTaintEffect::NoSchedule | DeviceTaintEffect::NoExecute)
}

/// The first blocking taint that none of the tolerations tolerates.
pub(crate) fn first_untolerated<'a>(
    taints: impl IntoIterator<Item = &'a DeviceTaint>,
    tolerations: &[DeviceToleration],
) -> Option<&'a DeviceTaint> {
    taints
        .into_iter()
        .filter(|taint| is_blocking(taint))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether the rule puts its taint on devices of the pool; without a selector it selects no device.
pub(crate) fn concerns_pool(rule: &DeviceTaintRule, pool: &PoolId) -> bool {
    rule.spec.device_selector.as_ref().is_some_and(|selector| {
        selector.driver.as_ref().is_none_or(|driver| *driver == pool.driver)
            && selector.pool.as_ref().is_none_or(|name| *name == pool.pool)
    })
}

/// Whether the rule puts its taint on the device, given that it concerns the pool.
pub(crate) fn concerns_device(rule: &DeviceTaintRule, device: &str) -> bool {
    let selector = rule.spec.device_selector.as_ref();
    let name = selector.and_then(|selector| selector.device.as_ref());
    name.is_none_or(|name| **name == *device)
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let same_effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let same_key = toleration.key.is_empty() || toleration.key == taint.key;
    let same_value = match &toleration.operator {
        DeviceTolerationOperator::Exists => true,
        DeviceTolerationOperator::Equal => toleration.value == taint.value,
        DeviceTolerationOperator::Other(word) => word.is_empty() && toleration.value == taint.value,
    };
    same_effect && same_key && same_value
}
