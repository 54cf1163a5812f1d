//! The trace in Dray's terms: a node is a pool with one device per GPU, to be shared by thousandths; a pod is a unit with one claim.

use std::collections::BTreeMap;

use resource_api::claim::{
    CapacityRequirements, CelDeviceSelector, DeviceClaim, DeviceRequest, DeviceSelector, ExactDeviceRequest, ResourceClaimSpec,
};
use resource_api::device::{CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity};
use resource_api::quantity::{Format, Quantity};
use rpc::convert::{ConvertError, claim_spec_message, device_message};
use rpc::dray::v1::publish_pool_request::Reach;
use rpc::dray::v1::{ClaimTemplate, PublishPoolRequest, SubmitRequest};
use serde_json::{Value, json};

use super::trace::{Node, Pod, WHOLE};

/// The driver of all pools made from the trace.
pub(crate) const DRIVER: &str = "gpu.openb.dray.example";
/// The class of all its devices.
pub(crate) const CLASS: &str = "gpu";
/// The capacity by which a device is shared.
const MILLI: &str = "milli";
/// The name of each claim's only request.
const REQUEST: &str = "gpus";

/// The class `gpu`: every device of the driver.
pub(crate) fn class() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
    })
}

/// A node's pool, named after it and usable on it alone.
pub(crate) fn pool(node: &Node) -> Result<PublishPoolRequest, ConvertError> {
    Ok(PublishPoolRequest {
        driver: DRIVER.to_owned(),
        pool: node.name.clone(),
        reach: Some(Reach::NodeName(node.name.clone())),
        devices: (0..node.gpu)
            .map(|index| device_message(&device(node, index)))
            .collect::<Result<_, _>>()?,
    })
}

fn device(node: &Node, index: u32) -> Device {
    let attributes = BTreeMap::from([
        (
            "index".into(),
            DeviceAttribute {
                int: Some(index.into()),
                ..DeviceAttribute::default()
            },
        ),
        (
            "model".into(),
            DeviceAttribute {
                string: Some(node.model.as_str().into()),
                ..DeviceAttribute::default()
            },
        ),
    ]);
    Device {
        name: format!("gpu-{index}").into(),
        attributes,
        capacity: BTreeMap::from([(MILLI.to_owned(), thousandths())]),
        allow_multiple_allocations: Some(true),
        ..Device::default()
    }
}

/// A GPU's thousandths, of which any whole number can be taken; all of them if a request does not say.
fn thousandths() -> DeviceCapacity {
    let whole = |number: u32| Quantity::from_whole(number.into(), Format::DecimalSi);
    DeviceCapacity {
        value: whole(WHOLE),
        request_policy: Some(CapacityRequestPolicy {
            default: Some(whole(WHOLE)),
            valid_range: Some(CapacityRequestPolicyRange {
                min: Some(whole(1)),
                max: Some(whole(WHOLE)),
                step: Some(whole(1)),
            }),
            ..CapacityRequestPolicy::default()
        }),
    }
}

/// A pod's unit. The pod's name is the client id, so that importing twice submits once.
pub(crate) fn unit(namespace: &str, pod: &Pod) -> Result<SubmitRequest, ConvertError> {
    let spec = Some(claim_spec_message(&claim_spec(pod))?);
    let claim = ClaimTemplate {
        name: pod.name.clone(),
        spec,
        ..ClaimTemplate::default()
    };
    Ok(SubmitRequest {
        namespace: namespace.to_owned(),
        client_id: pod.name.clone(),
        claims: vec![claim],
        priority: 0,
    })
}

fn claim_spec(pod: &Pod) -> ResourceClaimSpec {
    let selectors = model_expression(&pod.models).map(|expression| DeviceSelector {
        cel: Some(CelDeviceSelector { expression }),
    });
    let exactly = ExactDeviceRequest {
        device_class_name: CLASS.to_owned(),
        selectors: selectors.into_iter().collect(),
        count: pod.gpus.into(),
        capacity: Some(CapacityRequirements {
            requests: BTreeMap::from([(MILLI.to_owned(), Quantity::from_whole(pod.milli.into(), Format::DecimalSi))]),
        }),
        ..ExactDeviceRequest::default()
    };
    let request = DeviceRequest {
        name: REQUEST.to_owned(),
        exactly: Some(exactly),
        ..DeviceRequest::default()
    };
    ResourceClaimSpec {
        devices: DeviceClaim {
            requests: vec![request],
            ..DeviceClaim::default()
        },
    }
}

/// The selector for one of `models`; none if any model will do. Model names are letters and digits, so Rust's quotes are
/// CEL's.
fn model_expression(models: &[String]) -> Option<String> {
    (!models.is_empty()).then(|| format!("device.attributes[{DRIVER:?}].model in {models:?}"))
}

/// What a pod asked for, in words: `2 of A10 or T4`, `460 thousandths of any model`.
pub(crate) fn asked(pod: &Pod) -> String {
    let models = if pod.models.is_empty() {
        "any model".to_owned()
    } else {
        pod.models.join(" or ")
    };
    match (pod.gpus, pod.milli) {
        (gpus, WHOLE) => format!("{gpus} of {models}"),
        (1, milli) => format!("{milli} thousandths of {models}"),
        (gpus, milli) => format!("{gpus} times {milli} thousandths of {models}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(models: &[&str]) -> Pod {
        Pod {
            name: "openb-pod-1".to_owned(),
            gpus: 2,
            milli: 1_000,
            models: models.iter().map(|model| (*model).to_owned()).collect(),
        }
    }

    #[test]
    fn a_pod_asks_for_thousandths_of_devices_of_its_models() {
        let spec = serde_json::to_value(claim_spec(&pod(&["A10", "T4"]))).unwrap();
        let exactly = &spec["devices"]["requests"][0]["exactly"];
        assert_eq!(exactly["count"], 2);
        assert_eq!(exactly["capacity"]["requests"]["milli"], "1k");
        let expression = r#"device.attributes["gpu.openb.dray.example"].model in ["A10", "T4"]"#;
        assert_eq!(exactly["selectors"], json!([{"cel": {"expression": expression}}]));
        assert_eq!(model_expression(&[]), None);
        assert_eq!(asked(&pod(&[])), "2 of any model");
        let part = Pod {
            gpus: 1,
            milli: 460,
            ..pod(&[])
        };
        assert_eq!(asked(&part), "460 thousandths of any model");
    }

    #[test]
    fn a_node_is_a_pool_of_its_gpus() {
        let node = Node {
            name: "n-1".to_owned(),
            gpu: 4,
            model: "T4".to_owned(),
        };
        let request = pool(&node).unwrap();
        assert_eq!(request.devices.len(), 4);
        assert_eq!(request.reach, Some(Reach::NodeName("n-1".to_owned())));
        let last = serde_json::to_value(device(&node, 3)).unwrap();
        assert_eq!(
            last,
            json!({"name": "gpu-3", "attributes": {"index": {"int": 3}, "model": {"string": "T4"}}, "allowMultipleAllocations": true,
                "capacity": {"milli": {"value": "1k", "requestPolicy": {"default": "1k", "validRange": {"min": "1", "max": "1k", "step": "1"}}}}})
        );
    }
}
