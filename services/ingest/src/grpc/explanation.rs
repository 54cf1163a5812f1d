//! A waiting unit's explanation as a message.

use resource_api::unit::{NearestMiss, RequestExplanation, UnitExplanation};
use rpc::dray::v1 as pb;

/// The stored explanation, part by part.
pub(super) fn message(explanation: &UnitExplanation) -> pb::Explanation {
    pb::Explanation {
        requests: explanation.requests.iter().map(request).collect(),
        nearest_miss: explanation.nearest_miss.as_ref().map(nearest_miss),
    }
}

fn request(request: &RequestExplanation) -> pb::RequestExplanation {
    let removed = request.removed.iter().map(|removed| pb::RemovedDevices {
        rule: removed.rule.clone(),
        text: removed.text.clone(),
        devices: removed.devices,
    });
    pb::RequestExplanation {
        claim: u32::try_from(request.claim).unwrap_or(u32::MAX),
        request: request.request.clone(),
        needed: request.needed,
        nodes: request.nodes,
        devices: request.devices,
        fit: request.fit,
        fit_on_one_node: request.fit_on_one_node,
        removed: removed.collect(),
    }
}

fn nearest_miss(miss: &NearestMiss) -> pb::NearestMiss {
    let changes = miss.changes.iter().map(|change| pb::NearestChange {
        kind: change.kind.clone(),
        text: change.text.clone(),
        device: change.device.clone(),
        holders: change.holders.iter().map(ToString::to_string).collect(),
    });
    pb::NearestMiss {
        node: miss.node.clone(),
        text: miss.text.clone(),
        changes: changes.collect(),
    }
}

#[cfg(test)]
mod tests {
    use resource_api::ids::Uid;
    use resource_api::unit::{NearestChange, RemovedDevices};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn every_part_is_passed_on() {
        let explanation = UnitExplanation {
            requests: vec![RequestExplanation {
                claim: 1,
                request: "gpu/small".to_owned(),
                needed: Some(4),
                nodes: 2,
                devices: 16,
                fit: 5,
                fit_on_one_node: 3,
                removed: vec![RemovedDevices {
                    rule: "allocated".to_owned(),
                    text: "allocated".to_owned(),
                    devices: 11,
                }],
            }],
            nearest_miss: Some(NearestMiss {
                node: "b".to_owned(),
                text: "would fit on b if device d/p/x were freed".to_owned(),
                changes: vec![NearestChange {
                    kind: "free-device".to_owned(),
                    text: "device d/p/x were freed".to_owned(),
                    device: "d/p/x".to_owned(),
                    holders: vec![Uid(Uuid::from_u128(7))],
                }],
            }),
        };
        let message = message(&explanation);
        let request = &message.requests[0];
        assert_eq!(
            (request.claim, request.request.as_str(), request.needed),
            (1, "gpu/small", Some(4))
        );
        assert_eq!(
            (request.nodes, request.devices, request.fit, request.fit_on_one_node),
            (2, 16, 5, 3)
        );
        assert_eq!(
            (request.removed[0].rule.as_str(), request.removed[0].devices),
            ("allocated", 11)
        );
        let miss = message.nearest_miss.expect("there is one");
        assert_eq!((miss.node.as_str(), miss.changes[0].device.as_str()), ("b", "d/p/x"));
        assert_eq!(miss.changes[0].holders, ["00000000-0000-0000-0000-000000000007"]);
    }
}
