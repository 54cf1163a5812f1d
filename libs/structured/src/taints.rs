//! Which taints of a device keep a request away (KEP-5055).
//!
//! Only `NoSchedule` and `NoExecute` block; every blocking taint needs a toleration of its own. How long a toleration
//! lasts matters for eviction, not here.

use resource_api::taint::{DeviceTaint, DeviceTaintEffect, DeviceToleration, DeviceTolerationOperator};

/// Whether the taint keeps requests away that do not tolerate it.
pub(crate) fn is_blocking(taint: &DeviceTaint) -> bool {
    matches!(taint.effect, DeviceTaintEffect::NoSchedule | DeviceTaintEffect::NoExecute)
}

/// The first blocking taint that none of the tolerations tolerates.
pub(crate) fn first_untolerated<'a>(taints: &'a [DeviceTaint], tolerations: &[DeviceToleration]) -> Option<&'a DeviceTaint> {
    taints
        .iter()
        .filter(|taint| is_blocking(taint))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
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
