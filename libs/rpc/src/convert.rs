//! Kubernetes' protobuf messages to the types of `resource-api` and back.
//!
//! Both sides speak Kubernetes' JSON, so one rule converts every type: a field that exists on both sides cannot be forgotten here. It costs
//! some microseconds an object, small beside the commit that follows.

use resource_api::claim::ResourceClaimSpec;
use resource_api::device::Device;
use resource_api::node::NodeSelector;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{core_v1, resource_v1};

/// A message that the type cannot hold: text that is no quantity, parameters that are no JSON.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct ConvertError {
    /// Which object.
    pub what: &'static str,
    /// What is wrong with it.
    pub cause: String,
}

fn through_json<To: DeserializeOwned>(what: &'static str, from: &impl Serialize) -> Result<To, ConvertError> {
    let error = |cause: serde_json::Error| ConvertError {
        what,
        cause: cause.to_string(),
    };
    let json = serde_json::to_vec(from).map_err(error)?;
    serde_json::from_slice(&json).map_err(error)
}

macro_rules! convert {
    ($what:literal, $message:ty, $object:ty, $to_object:ident, $to_message:ident) => {
        /// The message as an object.
        pub fn $to_object(message: &$message) -> Result<$object, ConvertError> {
            through_json($what, message)
        }
        /// The object as a message.
        pub fn $to_message(object: &$object) -> Result<$message, ConvertError> {
            through_json($what, object)
        }
    };
}

convert!(
    "claim spec",
    resource_v1::ResourceClaimSpec,
    ResourceClaimSpec,
    claim_spec,
    claim_spec_message
);
convert!("device", resource_v1::Device, Device, device, device_message);
convert!(
    "node selector",
    core_v1::NodeSelector,
    NodeSelector,
    node_selector,
    node_selector_message
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_spec_survives_both_ways() {
        let json = r#"{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu","selectors":[{"cel":{"expression":"true"}}],
            "allocationMode":"ExactCount","count":2,"capacity":{"requests":{"memory":"10Gi"}}}},
            {"name":"nic","firstAvailable":[{"name":"fast","deviceClassName":"nic","allocationMode":"All"}]}],
            "constraints":[{"requests":["gpu"],"matchAttribute":"dra.example.com/root"}],
            "config":[{"requests":["gpu"],"opaque":{"driver":"gpu.example.com","parameters":{"b":1,"a":[1.50]}}}]}}"#;
        let spec: ResourceClaimSpec = serde_json::from_str(json).expect("valid");
        let message = claim_spec_message(&spec).expect("a message");
        let config = &message.devices.as_ref().expect("devices").config[0];
        let opaque = config
            .device_configuration
            .as_ref()
            .and_then(|c| c.opaque.as_ref())
            .expect("opaque");
        let raw = opaque.parameters.as_ref().and_then(|p| p.raw.clone()).expect("raw");
        assert_eq!(
            std::str::from_utf8(&raw).expect("text"),
            r#"{"b":1,"a":[1.50]}"#,
            "parameters keep order and number text"
        );
        assert_eq!(claim_spec(&message).expect("a spec"), spec);
    }

    #[test]
    fn a_device_survives_both_ways() {
        let json = r#"{"name":"gpu-0","attributes":{"model":{"string":"H100"},"cores":{"int":132},"v":{"version":"1.2.3"}},
            "capacity":{"memory":{"value":"80Gi"}},"taints":[{"key":"k","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"}],
            "consumesCounters":[{"counterSet":"s","counters":{"slots":{"value":"7"}}}]}"#;
        let device: Device = serde_json::from_str(json).expect("valid");
        assert_eq!(
            super::device(&device_message(&device).expect("a message")).expect("a device"),
            device
        );
    }

    #[test]
    fn a_bad_quantity_is_named() {
        let mut message = resource_v1::Device {
            name: Some("d".into()),
            ..Default::default()
        };
        let value = crate::k8s::io::apimachinery::pkg::api::resource::Quantity {
            string: Some("80Zi".into()),
        };
        message.capacity.insert(
            "memory".into(),
            resource_v1::DeviceCapacity {
                value: Some(value),
                request_policy: None,
            },
        );
        let error = super::device(&message).expect_err("no such suffix").to_string();
        assert!(error.starts_with("device: "), "{error}");
    }
}
