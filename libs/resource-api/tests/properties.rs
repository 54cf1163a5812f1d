//! Properties of text forms: whatever is read prints in one form that reads back the same, and no input is fatal.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use resource_api::claim::{
    AllocationMode, CapacityRequirements, CelDeviceSelector, DeviceClaim, DeviceClaimConfiguration, DeviceConstraint,
    DeviceRequest, DeviceSelector, DeviceSubRequest, ExactDeviceRequest, OpaqueDeviceConfiguration, ResourceClaim,
    ResourceClaimSpec,
};
use resource_api::device::{CounterSet, Device, DeviceAttribute, DeviceCapacity};
use resource_api::gates::FeatureGates;
use resource_api::object::{AnyObject, decode};
use resource_api::quantity::{Format, Quantity};
use resource_api::slice::{ResourcePool, ResourceSlice, ResourceSliceSpec};
use resource_api::taint::{DeviceTaint, DeviceToleration};
use resource_api::validation::{ExpressionChecker, ExpressionMode, ExpressionProblem, ValidationContext, check_create};
use resource_api::version::{self, ApiVersion};
use resource_api::{ObjectMeta, RawJson, Time, defaults, prepare};

fn quantity() -> impl Strategy<Value = Quantity> {
    let format = prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)];
    let nanos = prop_oneof![
        any::<i64>().prop_map(i128::from),
        any::<i128>(),
        any::<i32>().prop_map(|n| i128::from(n) << 60)
    ];
    (nanos, format).prop_map(|(nanos, format)| Quantity::from_nanos(nanos, format))
}

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_./-]{0,12}"
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(word(), 0..3)
}

fn meta() -> impl Strategy<Value = ObjectMeta> {
    let maps = (prop::collection::btree_map(word(), word(), 0..3), words(), any::<u8>());
    (word(), word(), maps).prop_map(|(name, namespace, (labels, finalizers, generation))| ObjectMeta {
        name,
        namespace,
        labels,
        finalizers,
        generation: i64::from(generation),
        creation_timestamp: Some(time(i64::from(generation) * 1_000_003)),
        ..ObjectMeta::default()
    })
}

fn time(seconds: i64) -> Time {
    Time::new(jiff::Timestamp::from_second(seconds).unwrap())
}

fn selectors() -> impl Strategy<Value = Vec<DeviceSelector>> {
    let selector = prop::option::of(".{0,20}").prop_map(|expression| DeviceSelector {
        cel: expression.map(|expression| CelDeviceSelector { expression }),
    });
    prop::collection::vec(selector, 0..3)
}

fn mode() -> impl Strategy<Value = AllocationMode> {
    prop_oneof![
        Just(AllocationMode::All),
        Just(AllocationMode::ExactCount),
        word().prop_map(|word| word.as_str().into())
    ]
}

fn tolerations() -> impl Strategy<Value = Vec<DeviceToleration>> {
    let toleration = (word(), word(), word(), word(), any::<Option<i64>>());
    let toleration = toleration.prop_map(|(key, operator, value, effect, toleration_seconds)| DeviceToleration {
        key,
        operator: operator.as_str().into(),
        value,
        effect: effect.as_str().into(),
        toleration_seconds,
    });
    prop::collection::vec(toleration, 0..3)
}

fn exactly() -> impl Strategy<Value = ExactDeviceRequest> {
    let capacity = prop::option::of(prop::collection::btree_map(word(), quantity(), 0..3));
    (
        word(),
        selectors(),
        mode(),
        any::<i64>(),
        any::<Option<bool>>(),
        tolerations(),
        capacity,
    )
        .prop_map(
            |(device_class_name, selectors, allocation_mode, count, admin_access, tolerations, capacity)| ExactDeviceRequest {
                device_class_name,
                selectors,
                allocation_mode,
                count,
                admin_access,
                tolerations,
                capacity: capacity.map(|requests| CapacityRequirements { requests }),
                derived_attributes: Vec::new(),
            },
        )
}

fn request() -> impl Strategy<Value = DeviceRequest> {
    let alternative = (word(), exactly()).prop_map(|(name, exactly)| DeviceSubRequest {
        name,
        device_class_name: exactly.device_class_name,
        selectors: exactly.selectors,
        allocation_mode: exactly.allocation_mode,
        count: exactly.count,
        tolerations: exactly.tolerations,
        capacity: exactly.capacity,
        derived_attributes: exactly.derived_attributes,
    });
    (word(), prop::option::of(exactly()), prop::collection::vec(alternative, 0..3)).prop_map(
        |(name, exactly, first_available)| DeviceRequest {
            name,
            exactly,
            first_available,
        },
    )
}

fn parameters() -> impl Strategy<Value = RawJson> {
    let json = prop_oneof![
        word().prop_map(|word| format!(" {{ \"a \\\" b\" : [ 1.50 , \"{word}\" ] }}")),
        Just("[]".to_owned()),
        Just("3.0e2".to_owned()),
    ];
    json.prop_map(|json| RawJson::parse(json).unwrap())
}

fn claim() -> impl Strategy<Value = ResourceClaim> {
    let constraint = (words(), prop::option::of(word()), prop::option::of(word())).prop_map(
        |(requests, match_attribute, distinct_attribute)| DeviceConstraint {
            requests,
            match_attribute,
            distinct_attribute,
        },
    );
    let config =
        (words(), word(), prop::option::of(parameters())).prop_map(|(requests, driver, parameters)| DeviceClaimConfiguration {
            requests,
            opaque: Some(OpaqueDeviceConfiguration {
                driver: driver.into(),
                parameters,
            }),
        });
    let requests = prop::collection::vec(request(), 0..4);
    let lists = (
        requests,
        prop::collection::vec(constraint, 0..3),
        prop::collection::vec(config, 0..3),
    );
    (meta(), lists).prop_map(|(metadata, (requests, constraints, config))| ResourceClaim {
        metadata,
        spec: ResourceClaimSpec {
            devices: DeviceClaim {
                requests,
                constraints,
                config,
            },
        },
        ..ResourceClaim::default()
    })
}

fn device() -> impl Strategy<Value = Device> {
    let attribute = prop_oneof![
        any::<i64>().prop_map(|int| DeviceAttribute {
            int: Some(int),
            ..Default::default()
        }),
        ".{0,70}".prop_map(|text| DeviceAttribute {
            string: Some(text),
            ..Default::default()
        }),
        word().prop_map(|text| DeviceAttribute {
            version: Some(text),
            ..Default::default()
        }),
        prop::collection::vec(any::<bool>(), 1..3).prop_map(|list| DeviceAttribute {
            bools: Some(list),
            ..Default::default()
        }),
        Just(DeviceAttribute::default()),
    ];
    let capacity = quantity().prop_map(|value| DeviceCapacity {
        value,
        request_policy: None,
    });
    let taint = (word(), word(), word(), any::<u32>()).prop_map(|(key, value, effect, at)| DeviceTaint {
        key,
        value,
        effect: effect.as_str().into(),
        time_added: Some(time(i64::from(at))),
    });
    let maps = (
        prop::collection::btree_map(word(), attribute, 0..4),
        prop::collection::btree_map(word(), capacity, 0..4),
    );
    (
        word(),
        maps,
        prop::collection::vec(taint, 0..3),
        any::<Option<bool>>(),
        words(),
    )
        .prop_map(
            |(name, (attributes, capacity), taints, all_nodes, binding_conditions)| Device {
                name: name.into(),
                attributes,
                capacity,
                taints,
                all_nodes,
                binding_conditions,
                ..Device::default()
            },
        )
}

fn slice() -> impl Strategy<Value = ResourceSlice> {
    let counters = prop::option::of(Just(vec![CounterSet {
        name: "c".to_owned(),
        counters: BTreeMap::new(),
    }]));
    let devices = prop::option::of(prop::collection::vec(device(), 1..4));
    let pool = (word(), any::<i64>(), any::<i64>()).prop_map(|(name, generation, resource_slice_count)| ResourcePool {
        name: name.into(),
        generation,
        resource_slice_count,
    });
    (meta(), word(), pool, devices, counters, prop::option::of(word())).prop_map(
        |(metadata, driver, pool, devices, shared_counters, node_name)| ResourceSlice {
            metadata,
            spec: ResourceSliceSpec {
                driver: driver.into(),
                pool,
                devices,
                shared_counters,
                node_name,
                ..ResourceSliceSpec::default()
            },
            ..ResourceSlice::default()
        },
    )
}

struct NoExpression;

impl ExpressionChecker for NoExpression {
    fn check(&self, _: &str, _: ExpressionMode) -> Result<(), ExpressionProblem> {
        Ok(())
    }
    fn check_derived(&self, _: &str, _: ExpressionMode) -> Result<u64, ExpressionProblem> {
        Ok(u64::MAX)
    }
}

/// Runs everything that a write runs through; its outcome does not matter.
fn admit(mut object: AnyObject) {
    let gates = FeatureGates::all();
    defaults::apply(&mut object, time(0));
    prepare::for_create(&mut object, &gates);
    for error in check_create(
        &object,
        &ValidationContext {
            expressions: &NoExpression,
            gates: &gates,
        },
    ) {
        assert!(!error.to_string().is_empty());
    }
}

fn fails(error: impl std::fmt::Display) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// Writes and reads an object in every version that serves it.
fn check_versions(object: AnyObject) -> Result<(), TestCaseError> {
    for version in ApiVersion::ALL.into_iter().filter(|version| version.serves(object.kind())) {
        let body = version::encode(version, &object).map_err(fails)?;
        let api_version = format!("\"apiVersion\":\"{}\"", version.text());
        prop_assert!(body.contains(&api_version), "{}", body);
        let again = version::decode(version, object.kind(), body.as_bytes()).map_err(fails)?;
        prop_assert_eq!(&again, &object);
    }
    Ok(())
}

proptest! {
    #[test]
    fn quantities_print_in_a_form_that_reads_back(quantity in quantity()) {
        let text = quantity.to_string();
        let again: Quantity = text.parse().unwrap();
        // Binary quantities are capped when read, sums of them are not.
        let limit = Quantity::from_whole(i64::MAX, Format::DecimalSi);
        if quantity.format() != Format::BinarySi || (quantity <= limit && quantity.negated() <= limit) {
            prop_assert_eq!(&again, &quantity);
        }
        prop_assert_eq!(again.to_string().parse::<Quantity>().unwrap().to_string(), again.to_string());
    }

    #[test]
    fn any_text_is_a_quantity_or_refused(text in "[-+]?[0-9.]{0,30}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,5}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let canonical = quantity.to_string();
            let again: Quantity = canonical.parse().unwrap();
            prop_assert_eq!(&again, &quantity);
            prop_assert_eq!(again.to_string(), canonical);
        }
    }

    #[test]
    fn sums_can_be_taken_apart(a in quantity(), b in quantity()) {
        prop_assert_eq!(a.plus(&b).minus(&b), a.clone());
        prop_assert_eq!(a.plus(&b), b.plus(&a));
        prop_assert_eq!(a.cmp(&b), a.minus(&b).cmp(&Quantity::ZERO));
    }

    #[test]
    fn claims_read_back_as_they_were(claim in claim()) {
        let body = serde_json::to_vec(&claim).unwrap();
        prop_assert_eq!(decode::<ResourceClaim>(&body).unwrap(), claim.clone());
        admit(claim.into());
    }

    #[test]
    fn slices_read_back_as_they_were(slice in slice()) {
        let body = serde_json::to_vec(&slice).unwrap();
        prop_assert_eq!(decode::<ResourceSlice>(&body).unwrap(), slice.clone());
        admit(slice.into());
    }

    #[test]
    fn claims_survive_the_way_through_other_versions(mut claim in claim()) {
        // A request without anything in it is not told apart from no request; neither is valid.
        for request in &mut claim.spec.devices.requests {
            request.exactly = request.exactly.take().filter(|exactly| *exactly != ExactDeviceRequest::default());
        }
        check_versions(claim.into())?;
    }

    #[test]
    fn slices_survive_the_way_through_other_versions(mut slice in slice()) {
        slice.spec.node_name = slice.spec.node_name.filter(|name| !name.is_empty());
        check_versions(slice.into())?;
    }

    #[test]
    fn no_body_is_fatal(bytes in prop::collection::vec(any::<u8>(), 0..64), text in ".{0,64}") {
        // Random bytes are no object; that they are refused and nothing else happens is the point.
        prop_assert!(AnyObject::decode(&bytes).is_err());
        prop_assert!(AnyObject::decode(text.as_bytes()).is_err());
        drop(FeatureGates::parse(&text));
    }
}
