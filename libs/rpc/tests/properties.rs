//! Objects survive the way over the wire: object → message → bytes → message → object.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use prost::Message;
use resource_api::claim::{
    AllocationMode, CapacityRequirements, CelDeviceSelector, DeviceClaim, DeviceClaimConfiguration, DeviceConstraint,
    DeviceRequest, DeviceSelector, DeviceSubRequest, ExactDeviceRequest, OpaqueDeviceConfiguration, ResourceClaimSpec,
};
use resource_api::device::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, Device, DeviceAttribute, DeviceCapacity, DeviceCounterConsumption,
};
use resource_api::node::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use resource_api::taint::{DeviceTaint, DeviceToleration};
use resource_api::{Quantity, RawJson};
use rpc::convert;

/// Names, odd texts and nothing.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z][a-z0-9.-]{0,12}", "\\PC{0,8}", Just(String::new())]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..3)
}

fn quantity() -> impl Strategy<Value = Quantity> {
    let suffix = prop_oneof![Just(""), Just("m"), Just("k"), Just("Gi"), Just("Ti"), Just("e3")];
    (any::<u32>(), suffix).prop_map(|(number, suffix)| format!("{number}{suffix}").parse().expect("a quantity"))
}

/// Lists with a value: an empty one and none are the same on the wire.
fn some_list<S: Strategy>(item: S) -> impl Strategy<Value = Option<Vec<S::Value>>>
where
    S::Value: Clone,
{
    of(vec(item, 1..3))
}

fn attribute() -> impl Strategy<Value = DeviceAttribute> {
    let single = (of(any::<i64>()), of(any::<bool>()), of(text()), of(text()));
    let lists = (
        some_list(any::<i64>()),
        some_list(any::<bool>()),
        some_list(text()),
        some_list(text()),
    );
    (single, lists).prop_map(
        |((int, bool, string, version), (ints, bools, strings, versions))| DeviceAttribute {
            int,
            bool,
            string,
            version,
            ints,
            bools,
            strings,
            versions,
        },
    )
}

fn capacity() -> impl Strategy<Value = DeviceCapacity> {
    let range = (of(quantity()), of(quantity()), of(quantity()));
    let range = range.prop_map(|(min, max, step)| CapacityRequestPolicyRange { min, max, step });
    let policy = (of(quantity()), vec(quantity(), 0..3), of(range));
    let policy = policy.prop_map(|(default, valid_values, valid_range)| CapacityRequestPolicy {
        default,
        valid_values,
        valid_range,
    });
    (quantity(), of(policy)).prop_map(|(value, request_policy)| DeviceCapacity { value, request_policy })
}

fn consumption() -> impl Strategy<Value = DeviceCounterConsumption> {
    let counter = quantity().prop_map(|value| Counter { value });
    (text(), btree_map(text(), counter, 0..3), texts()).prop_map(|(counter_set, counters, compatibility_groups)| {
        DeviceCounterConsumption {
            counter_set,
            counters,
            compatibility_groups,
        }
    })
}

fn taint() -> impl Strategy<Value = DeviceTaint> {
    let time = of(0_i64..4_000_000_000).prop_map(|seconds| {
        seconds.map(|seconds| resource_api::Time::new(jiff::Timestamp::from_second(seconds).expect("in range")))
    });
    (text(), text(), text(), time).prop_map(|(key, value, effect, time_added)| DeviceTaint {
        key,
        value,
        effect: effect.as_str().into(),
        time_added,
    })
}

fn requirements() -> impl Strategy<Value = Vec<NodeSelectorRequirement>> {
    let operator = prop_oneof![Just("In"), Just("Exists"), Just("Newer")];
    let requirement = (text(), operator, texts()).prop_map(|(key, operator, values)| NodeSelectorRequirement {
        key,
        operator: operator.into(),
        values,
    });
    vec(requirement, 0..3)
}

fn node_selector() -> impl Strategy<Value = NodeSelector> {
    let term = (requirements(), requirements()).prop_map(|(match_expressions, match_fields)| NodeSelectorTerm {
        match_expressions,
        match_fields,
    });
    vec(term, 0..3).prop_map(|node_selector_terms| NodeSelector { node_selector_terms })
}

fn device() -> impl Strategy<Value = Device> {
    let facts = (
        text(),
        btree_map(text(), attribute(), 0..3),
        btree_map(text(), capacity(), 0..3),
        vec(consumption(), 0..3),
    );
    let reach = (
        of(text()),
        of(node_selector()),
        of(any::<bool>()),
        of(any::<bool>()),
        of(any::<bool>()),
    );
    (facts, reach, vec(taint(), 0..3), texts(), texts()).prop_map(|(facts, reach, taints, binding, failure)| Device {
        name: facts.0.as_str().into(),
        attributes: facts.1,
        capacity: facts.2,
        consumes_counters: facts.3,
        node_name: reach.0,
        node_selector: reach.1,
        all_nodes: reach.2,
        binds_to_node: reach.3,
        allow_multiple_allocations: reach.4,
        taints,
        binding_conditions: binding,
        binding_failure_conditions: failure,
        node_allocatable_resources: BTreeMap::new(),
    })
}

fn selectors() -> impl Strategy<Value = Vec<DeviceSelector>> {
    let cel = of(text().prop_map(|expression| CelDeviceSelector { expression }));
    vec(cel.prop_map(|cel| DeviceSelector { cel }), 0..3)
}

fn tolerations() -> impl Strategy<Value = Vec<DeviceToleration>> {
    let toleration = (text(), text(), text(), text(), of(any::<i64>()));
    let toleration = toleration.prop_map(|(key, operator, value, effect, toleration_seconds)| DeviceToleration {
        key,
        operator: operator.as_str().into(),
        value,
        effect: effect.as_str().into(),
        toleration_seconds,
    });
    vec(toleration, 0..2)
}

fn exact() -> impl Strategy<Value = ExactDeviceRequest> {
    let requests = of(btree_map(text(), quantity(), 0..3).prop_map(|requests| CapacityRequirements { requests }));
    (
        text(),
        selectors(),
        text(),
        any::<i64>(),
        of(any::<bool>()),
        tolerations(),
        requests,
    )
        .prop_map(|parts| ExactDeviceRequest {
            device_class_name: parts.0,
            selectors: parts.1,
            allocation_mode: AllocationMode::from(parts.2.as_str()),
            count: parts.3,
            admin_access: parts.4,
            tolerations: parts.5,
            capacity: parts.6,
            derived_attributes: Vec::new(),
        })
}

fn sub_request() -> impl Strategy<Value = DeviceSubRequest> {
    (text(), exact()).prop_map(|(name, exact)| DeviceSubRequest {
        name,
        device_class_name: exact.device_class_name,
        selectors: exact.selectors,
        allocation_mode: exact.allocation_mode,
        count: exact.count,
        tolerations: exact.tolerations,
        capacity: exact.capacity,
        derived_attributes: Vec::new(),
    })
}

/// Parameters keep their key order and the text of their numbers.
fn configuration() -> impl Strategy<Value = DeviceClaimConfiguration> {
    let parameters = prop_oneof![
        Just("{}"),
        Just(r#"{"b":1.50,"a":[null,"x y"],"n":1e3}"#),
        Just(r#"{"ü":18446744073709551616}"#)
    ];
    let parameters = of(parameters.prop_map(|json| RawJson::parse(json.to_owned()).expect("JSON")));
    let opaque = (text(), parameters).prop_map(|(driver, parameters)| OpaqueDeviceConfiguration {
        driver: driver.as_str().into(),
        parameters,
    });
    (texts(), of(opaque)).prop_map(|(requests, opaque)| DeviceClaimConfiguration { requests, opaque })
}

fn claim_spec() -> impl Strategy<Value = ResourceClaimSpec> {
    let request = (text(), of(exact()), vec(sub_request(), 0..3));
    let request = request.prop_map(|(name, exactly, first_available)| DeviceRequest {
        name,
        exactly,
        first_available,
    });
    let constraint = (texts(), of(text()), of(text()));
    let constraint = constraint.prop_map(|(requests, match_attribute, distinct_attribute)| DeviceConstraint {
        requests,
        match_attribute,
        distinct_attribute,
    });
    let devices = (vec(request, 0..3), vec(constraint, 0..3), vec(configuration(), 0..3));
    devices.prop_map(|(requests, constraints, config)| ResourceClaimSpec {
        devices: DeviceClaim {
            requests,
            constraints,
            config,
        },
    })
}

fn over_the_wire<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("what was encoded can be decoded")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_claim_spec_survives(spec in claim_spec()) {
        let message = over_the_wire(&convert::claim_spec_message(&spec).expect("a message"));
        prop_assert_eq!(convert::claim_spec(&message).expect("a spec"), spec);
    }

    #[test]
    fn a_device_survives(device in device()) {
        let message = over_the_wire(&convert::device_message(&device).expect("a message"));
        prop_assert_eq!(convert::device(&message).expect("a device"), device);
    }

    #[test]
    fn a_node_selector_survives(selector in node_selector()) {
        let message = over_the_wire(&convert::node_selector_message(&selector).expect("a message"));
        prop_assert_eq!(convert::node_selector(&message).expect("a selector"), selector);
    }
}
