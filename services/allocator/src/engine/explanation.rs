//! Explanations of the core as they are stored in a unit's status.

use resource_api::unit::{NearestChange, NearestMiss, RemovedDevices, RequestExplanation, UnitExplanation};
use structured::{Change, Explanation, RequestReasons};

/// What a waiting unit says: a line, and the same in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) reason: String,
    pub(super) explanation: Option<UnitExplanation>,
}

impl Told {
    /// A reason without parts.
    pub(super) fn plain(reason: String) -> Self {
        Self {
            reason,
            explanation: None,
        }
    }
}

impl From<&Explanation> for Told {
    fn from(explanation: &Explanation) -> Self {
        let parts = UnitExplanation {
            requests: explanation.requests.iter().map(request).collect(),
            nearest_miss: explanation.nearest_miss.as_ref().map(nearest_miss),
        };
        Self {
            reason: explanation.to_string(),
            explanation: (!explanation.requests.is_empty()).then_some(parts),
        }
    }
}

fn request(reasons: &RequestReasons) -> RequestExplanation {
    let removed = reasons.removed.iter().map(|(reason, devices)| RemovedDevices {
        rule: reason.as_str().to_owned(),
        text: reason.to_string(),
        devices: *devices,
    });
    RequestExplanation {
        claim: reasons.claim,
        request: reasons.request.clone(),
        needed: reasons.needed,
        nodes: reasons.nodes,
        devices: reasons.devices,
        fit: reasons.fit,
        fit_on_one_node: reasons.fit_on_one_node,
        removed: removed.collect(),
    }
}

fn nearest_miss(miss: &structured::NearestMiss) -> NearestMiss {
    let (node, changes) = match miss {
        structured::NearestMiss::WouldFit { node, changes, .. } => (node, changes.iter().map(change).collect()),
        structured::NearestMiss::Short { node, .. } => (node, Vec::new()),
    };
    NearestMiss {
        node: node.to_string(),
        text: miss.to_string(),
        changes,
    }
}

fn change(change: &Change) -> NearestChange {
    let (device, holders) = match change {
        Change::FreeDevice { device, holders } => (device.to_string(), holders.clone()),
        Change::FreeCapacity { device, .. } | Change::EnlargeDevice { device, .. } => (device.to_string(), Vec::new()),
        Change::CompletePool { .. }
        | Change::RepairPool { .. }
        | Change::Tolerate { .. }
        | Change::MakeSchedulable
        | Change::DropConstraint { .. }
        | Change::DropSelector { .. }
        | Change::RaiseCounter { .. }
        | Change::SkipNodeOperations => (String::new(), Vec::new()),
    };
    NearestChange {
        kind: change.as_str().to_owned(),
        text: change.to_string(),
        device,
        holders,
    }
}

#[cfg(test)]
mod tests {
    use resource_api::ids::{DeviceId, Uid};
    use structured::{Reason, Unallocatable, UnallocatableKind};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn counts_and_the_nearest_miss_are_told_in_parts_beside_the_line() {
        let explanation = Explanation {
            refusal: Unallocatable {
                kind: UnallocatableKind::DoesNotFit,
                fault: None,
            },
            requests: vec![RequestReasons {
                claim: 0,
                request: "gpu".to_owned(),
                needed: Some(2),
                nodes: 1,
                devices: 2,
                fit: 1,
                fit_on_one_node: 1,
                removed: vec![(Reason::Allocated, 1)],
            }],
            nearest_miss: Some(structured::NearestMiss::WouldFit {
                node: "a".into(),
                changes: vec![Change::FreeDevice {
                    device: DeviceId::new("d", "p", "x"),
                    holders: vec![Uid(Uuid::from_u128(7))],
                }],
                alternatives: Vec::new(),
            }),
        };
        let told = Told::from(&explanation);
        assert_eq!(told.reason, explanation.to_string());
        let parts = told.explanation.expect("something was counted");
        assert_eq!(
            (parts.requests[0].fit, parts.requests[0].removed[0].rule.as_str()),
            (1, "allocated")
        );
        let miss = parts.nearest_miss.expect("a change helps");
        assert_eq!((miss.node.as_str(), miss.changes[0].kind.as_str()), ("a", "free-device"));
        assert_eq!(miss.changes[0].device, "d/p/x");
        assert_eq!(miss.changes[0].holders, [Uid(Uuid::from_u128(7))]);
    }

    #[test]
    fn a_fault_has_no_parts() {
        let refusal = Unallocatable {
            kind: UnallocatableKind::Cancelled,
            fault: None,
        };
        let explanation = Explanation {
            refusal,
            requests: Vec::new(),
            nearest_miss: None,
        };
        assert_eq!(Told::from(&explanation), Told::plain("cancelled by the caller".to_owned()));
    }
}
