//! Examples of the smaller parts: names, node selectors, gates, paths, wire forms, defaults and preparing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::claim::{AllocationResult, ResourceClaim, ResourceClaimStatus};
use crate::field_path::{ErrorKind, FieldErrors, FieldPath};
use crate::gates::{FeatureGates, Gate, GateError};
use crate::ids::{DeviceId, DriverName, PoolName};
use crate::meta::{LabelSelector, LabelSelectorRequirement};
use crate::node::{NodeSelector, NodeSelectorError, NodeSelectorRequirement, NodeSelectorTerm, NodeView, matches};
use crate::object::{AnyObject, DecodeError, Kind, decode};
use crate::taint::DeviceTaintRule;
use crate::unit::{Unit, UnitPhase};
use crate::validation::{status as status_rules, unit as unit_rules};
use crate::version::{self, ApiVersion};
use crate::{RawJson, Sequence, Time, Uid, defaults, names, prepare};

fn time(text: &str) -> Time {
    Time::new(text.parse().unwrap())
}

fn object(json: &Value) -> AnyObject {
    AnyObject::decode(json.to_string().as_bytes()).unwrap()
}

// Names and identities.

#[test]
fn names_are_checked_when_they_are_parsed() {
    assert_eq!("gpu.example.com".parse::<DriverName>().unwrap(), "gpu.example.com");
    assert_eq!("GPU.example.com".parse::<DriverName>().unwrap().as_str(), "GPU.example.com");
    assert!("gpu_example".parse::<DriverName>().is_err());
    assert!("a/b.c/d".parse::<PoolName>().is_ok());
    assert_eq!("a//d".parse::<PoolName>().unwrap_err().sort, "pool name");
    assert_eq!(DeviceId::new("d.com", "pool/a", "gpu-0").to_string(), "d.com/pool/a/gpu-0");
}

#[test]
fn versions_follow_semver() {
    for good in [
        "0.0.0",
        "1.2.3-rc.1+b.01",
        "1.0.0--",
        "1.2.3+a-b",
        "99999999999999999999999.0.0",
    ] {
        assert!(names::version(good).is_empty(), "{good}");
    }
    for bad in [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "1.2.3.4",
        "01.2.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "1.2.3-a..b",
        "1.2.3+a+b",
        " 1.2.3",
    ] {
        assert!(!names::version(bad).is_empty(), "{bad}");
    }
}

#[test]
fn uids_that_are_not_uuids_match_no_object() {
    let uid: Uid = serde_json::from_value(json!("pod-uid")).unwrap();
    assert_eq!(uid, Uid::NONE);
    let text = "01890000-0000-7000-8000-000000000001";
    assert_eq!(serde_json::from_value::<Uid>(json!(text)).unwrap().to_string(), text);
}

// Wire forms.

#[test]
fn absent_null_and_empty_read_alike_and_print_as_kubernetes_does() {
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "a", "labels": null, "uid": "", "resourceVersion": ""},
        "spec": {"devices": {"requests": null, "config": []}},
        "status": null,
        "unknown": {"x": 1},
    }))
    .unwrap();
    assert_eq!(claim.status, ResourceClaimStatus::default());
    let expected = json!({
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": "a"},
        "spec": {"devices": {"requests": null}},
        "status": {},
    });
    assert_eq!(serde_json::to_value(&claim).unwrap(), expected);
}

#[test]
fn raw_json_keeps_order_and_numbers_and_drops_blanks() {
    let raw = RawJson::parse(" {\"b\" : 1.50, \"a b\":\"x \\\" y\\\\\" ,\n\"c\":[ ] }".to_owned()).unwrap();
    assert_eq!(raw.compact(), "{\"b\":1.50,\"a b\":\"x \\\" y\\\\\",\"c\":[]}");
    assert_eq!(serde_json::to_string(&raw).unwrap(), raw.compact());
    assert_eq!(RawJson::parse(raw.compact()).unwrap(), raw);
    assert!(raw.is_object());
    assert!(!format!("{raw:?}").contains('x'));
}

#[test]
fn times_are_whole_seconds() {
    assert_eq!(time("2026-01-01T01:00:00.9+01:00").to_string(), "2026-01-01T00:00:00Z");
    assert!(serde_json::from_value::<Time>(json!("yesterday")).is_err());
}

#[test]
fn resource_versions_are_decimal_strings() {
    assert_eq!(serde_json::to_value(Sequence(7)).unwrap(), json!("7"));
    assert!(serde_json::from_value::<Sequence>(json!("x")).is_err());
    assert!(serde_json::from_value::<Sequence>(json!(7)).is_err());
}

#[test]
fn bodies_are_decoded_by_their_type() {
    let body = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind}).to_string().into_bytes();
    assert_eq!(AnyObject::decode(&body("v1", "Node")).unwrap().kind(), Kind::Node);
    assert_eq!(AnyObject::decode(&body("dray.v1", "Unit")).unwrap().kind(), Kind::Unit);
    assert!(matches!(
        AnyObject::decode(&body("v1", "Pod")),
        Err(DecodeError::UnknownType { .. })
    ));
    assert!(matches!(AnyObject::decode(b"{}"), Err(DecodeError::NoType)));
    assert!(matches!(AnyObject::decode(b"{"), Err(DecodeError::NotJson(_))));
    let other = decode::<ResourceClaim>(&body("v1", "Node"));
    assert!(matches!(
        other,
        Err(DecodeError::OtherType {
            expected: Kind::ResourceClaim,
            found: Kind::Node
        })
    ));
    let bad = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": true}}).to_string();
    assert!(matches!(
        AnyObject::decode(bad.as_bytes()),
        Err(DecodeError::BadShape { kind: Kind::Node, .. })
    ));
}

#[test]
fn an_array_is_no_object_at_any_depth() {
    let claim = |spec: Value| {
        let body = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec}).to_string();
        decode::<ResourceClaim>(body.as_bytes())
    };
    assert!(claim(json!({"devices": {"config": [{"opaque": {"parameters": [1, {"a": []}]}}]}})).is_ok());
    for bad in [
        json!([]),
        json!({"devices": []}),
        json!({"devices": {"requests": [[]]}}),
        json!({"devices": {"requests": [{"exactly": []}]}}),
    ] {
        assert!(claim(bad.clone()).is_err(), "{bad}");
    }
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "spec": {"devices": [{"attributes": {"a": []}}]}});
    assert!(AnyObject::decode(slice.to_string().as_bytes()).is_err());
}

#[test]
fn kinds_are_found_by_their_names() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_plural(kind.plural()), Some(kind));
        assert_eq!(Kind::from_type(kind.api_version(), kind.name()), Some(kind));
        assert_eq!(kind.name().to_lowercase().get(..4), kind.plural().get(..4));
    }
}

// Versions.

#[test]
fn v1beta1_requests_are_flat() {
    let body = json!({
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"devices": {"requests": [
            {"name": "nic", "deviceClassName": "c", "count": 2},
            {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": "c"}]},
            {"name": "bare"},
            {"name": "both", "count": 1, "firstAvailable": [{"name": "x", "deviceClassName": "c"}]},
        ]}},
    });
    let claim = version::decode(ApiVersion::V1Beta1, Kind::ResourceClaim, body.to_string().as_bytes()).unwrap();
    let written = version::encode(ApiVersion::V1Beta1, &claim).unwrap();
    let AnyObject::ResourceClaim(claim) = claim else {
        panic!("changed its kind")
    };
    let requests = &claim.spec.devices.requests;
    assert_eq!(
        requests[0]
            .exactly
            .as_ref()
            .map(|exactly| (exactly.device_class_name.as_str(), exactly.count)),
        Some(("c", 2))
    );
    assert!(requests[1].exactly.is_none() && requests[1].first_available.len() == 1);
    assert!(requests[2].exactly.is_none() && requests[2].first_available.is_empty());
    assert!(requests[3].exactly.is_some() && !requests[3].first_available.is_empty());
    let mut written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["apiVersion"].take(), json!("resource.k8s.io/v1beta1"));
    assert_eq!(written["spec"], body["spec"]);
}

#[test]
fn v1beta1_devices_have_a_basic_part() {
    let body = json!({
        "spec": {"driver": "d.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "", "allNodes": true,
            "devices": [{"name": "bare"}, {"name": "full", "basic": {"attributes": {"a": {"int": 1}}}}]},
    });
    let slice = version::decode(ApiVersion::V1Beta1, Kind::ResourceSlice, body.to_string().as_bytes()).unwrap();
    let v1: Value = serde_json::from_str(&version::encode(ApiVersion::V1, &slice).unwrap()).unwrap();
    assert_eq!(
        v1["spec"]["devices"],
        json!([{"name": "bare"}, {"name": "full", "attributes": {"a": {"int": 1}}}])
    );
    assert_eq!(
        (&v1["spec"]["nodeName"], &v1["spec"]["allNodes"]),
        (&Value::Null, &json!(true))
    );
    let v1beta1: Value = serde_json::from_str(&version::encode(ApiVersion::V1Beta1, &slice).unwrap()).unwrap();
    let devices = json!([{"name": "bare", "basic": {}}, {"name": "full", "basic": {"attributes": {"a": {"int": 1}}}}]);
    assert_eq!(v1beta1["spec"]["devices"], devices);
}

#[test]
fn versions_serve_only_their_kinds() {
    let rule: AnyObject = DeviceTaintRule::default().into();
    let text = version::encode(ApiVersion::V1Alpha3, &rule).unwrap();
    assert!(
        text.starts_with("{\"kind\":\"DeviceTaintRule\",\"apiVersion\":\"resource.k8s.io/v1alpha3\","),
        "{text}"
    );
    assert!(version::encode(ApiVersion::V1Beta1, &rule).is_err());
    let other = version::decode(ApiVersion::V1, Kind::ResourceClaim, text.as_bytes());
    assert!(matches!(other, Err(DecodeError::UnknownType { .. })));
    assert_eq!(ApiVersion::from_name("v1beta2"), Some(ApiVersion::V1Beta2));
}

// Paths and errors.

#[test]
fn paths_use_json_names_and_cut_long_keys() {
    let spec = FieldPath::root("spec");
    let devices = spec.child("devices");
    assert_eq!(devices.index(3).child("name").to_string(), "spec.devices[3].name");
    let long = "é".repeat(100);
    let path = devices.key(&long).to_string();
    assert!(path.len() < 120 && path.contains("..."), "{path}");
}

#[test]
fn messages_read_as_in_kubernetes() {
    let mut errors = FieldErrors::new();
    let path = FieldPath::root("spec");
    errors.required(&path, "");
    errors.invalid(&path, "a\"b", "no quotes");
    errors.invalid(&path, (), "field is immutable");
    errors.invalid(&path, json!({"a": 1}), "");
    errors.not_supported(&path, "x", &["a", "b"]);
    errors.duplicate(&path, 5);
    errors.forbidden(&path, "not now");
    errors.too_long(&path, 63);
    errors.too_many(&path, 33, 32);
    errors.not_found(&path, "x");
    errors.internal(&path, "no answer");
    let errors = errors.into_vec();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "spec: Required value",
            "spec: Invalid value: \"a\\\"b\": no quotes",
            "spec: Invalid value: \"null\": field is immutable",
            "spec: Invalid value: {\"a\":1}",
            "spec: Unsupported value: \"x\": supported values: \"a\", \"b\"",
            "spec: Duplicate value: 5",
            "spec: Forbidden: not now",
            "spec: Too long: may not be more than 63 bytes",
            "spec: Too many: 33: must have at most 32 items",
            "spec: Not found: \"x\"",
            "spec: Internal error: no answer",
        ]
    );
    assert_eq!(errors[0].cause_reason(), "FieldValueRequired");
    assert_eq!(errors[10].kind, ErrorKind::InternalError);
}

// Gates.

#[test]
fn gates_are_parsed_with_their_locks_and_needs() {
    let gates = FeatureGates::parse(" DRAListTypeAttributes = true, DRAConsumableCapacity=False ,").unwrap();
    assert!(gates.is_on(Gate::DRAListTypeAttributes) && !gates.is_on(Gate::DRAConsumableCapacity));
    assert!(gates.is_on(Gate::DRAPrioritizedList));
    let refused = |settings| FeatureGates::parse(settings).unwrap_err();
    assert_eq!(refused("Nope=true"), GateError::Unknown { name: "Nope".to_owned() });
    assert_eq!(
        refused("DRADeviceTaints"),
        GateError::Form {
            text: "DRADeviceTaints".to_owned()
        }
    );
    assert_eq!(
        refused("DRAAdminAccess=false"),
        GateError::Locked {
            gate: Gate::DRAAdminAccess
        }
    );
    let needs = GateError::Needs {
        gate: Gate::DRADeviceTaintRules,
        needed: Gate::DRADeviceTaints,
    };
    assert_eq!(refused("DRADeviceTaints=false"), needs);
    assert_eq!(FeatureGates::all().on().count(), Gate::ALL.len());
    assert_eq!(FeatureGates::none().on().count(), 0);
}

// Node selectors.

fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.into(),
        values,
    }
}

fn labels() -> BTreeMap<String, String> {
    [("zone", "a"), ("size", "16"), ("word", "many")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn selects(terms: Vec<NodeSelectorTerm>) -> Result<bool, NodeSelectorError> {
    matches(
        &NodeSelector {
            node_selector_terms: terms,
        },
        NodeView {
            name: "node-a",
            labels: &labels(),
        },
    )
}

fn by_label(key: &str, operator: &str, values: &[&str]) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: vec![requirement(key, operator, values)],
        ..Default::default()
    }
}

#[test]
fn label_requirements_match_as_in_kubernetes() {
    for (key, operator, values, wanted) in [
        ("zone", "In", &["a", "b"][..], true),
        ("zone", "In", &["b"], false),
        ("none", "In", &["b"], false),
        ("zone", "NotIn", &["a"], false),
        ("none", "NotIn", &["a"], true),
        ("zone", "Exists", &[], true),
        ("none", "Exists", &[], false),
        ("none", "DoesNotExist", &[], true),
        ("size", "Gt", &["15"], true),
        ("size", "Gt", &["16"], false),
        ("size", "Lt", &["17"], true),
        ("word", "Gt", &["1"], false),
        ("none", "Lt", &["1"], false),
    ] {
        assert_eq!(
            selects(vec![by_label(key, operator, values)]),
            Ok(wanted),
            "{key} {operator} {values:?}"
        );
    }
}

#[test]
fn terms_are_alternatives_and_empty_ones_match_nothing() {
    assert_eq!(selects(vec![]), Ok(false));
    assert_eq!(selects(vec![NodeSelectorTerm::default()]), Ok(false));
    assert_eq!(
        selects(vec![by_label("none", "Exists", &[]), by_label("zone", "Exists", &[])]),
        Ok(true)
    );
    assert_eq!(
        matches(
            &NodeSelector::for_node("node-a"),
            NodeView {
                name: "node-a",
                labels: &labels()
            }
        ),
        Ok(true)
    );
    assert_eq!(
        matches(
            &NodeSelector::for_node("node-b"),
            NodeView {
                name: "node-a",
                labels: &labels()
            }
        ),
        Ok(false)
    );
}

#[test]
fn selectors_that_cannot_be_evaluated_are_errors_on_every_node() {
    for bad in [
        by_label("size", "Gt", &["many"]),
        by_label("a", "In", &[]),
        by_label("a", "Exists", &["x"]),
        by_label("a", "Nope", &[]),
    ] {
        assert!(
            selects(vec![by_label("zone", "Exists", &[]), bad.clone()]).is_err(),
            "{bad:?}"
        );
    }
    let field = NodeSelectorTerm {
        match_fields: vec![requirement("spec.x", "In", &["a"])],
        ..Default::default()
    };
    assert!(matches!(selects(vec![field]), Err(NodeSelectorError::UnknownField { .. })));
}

#[test]
fn label_selectors_need_every_part() {
    let mut selector = LabelSelector::default();
    assert!(selector.matches(&labels()));
    selector.match_labels.insert("zone".to_owned(), "a".to_owned());
    let not_small = LabelSelectorRequirement {
        key: "size".to_owned(),
        operator: "NotIn".into(),
        values: vec!["8".to_owned()],
    };
    selector.match_expressions.push(not_small);
    assert!(selector.matches(&labels()));
    selector.match_expressions[0].values.push("16".to_owned());
    assert!(!selector.matches(&labels()));
}

// Defaults and preparing.

fn taint_rule(effect: &str, value: &str, time_added: Option<&str>) -> AnyObject {
    let mut object = object(&json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule", "generation": 3},
        "spec": {"taint": {"key": "a.com/b", "effect": effect, "value": value, "timeAdded": time_added}},
    }));
    defaults::apply(&mut object, time("2026-05-05T00:00:00Z"));
    object
}

#[track_caller]
fn check_taint_update(new: AnyObject, time_added: &str, generation: i64) {
    let old = taint_rule("NoSchedule", "v", Some("2026-01-01T00:00:00Z"));
    let mut new = new;
    prepare::for_update(&mut new, &old, &FeatureGates::default(), time("2026-06-06T00:00:00Z")).unwrap();
    let AnyObject::DeviceTaintRule(rule) = new else {
        panic!("changed its kind")
    };
    assert_eq!(rule.spec.taint.time_added, Some(time(time_added)));
    assert_eq!(rule.metadata.generation, generation);
}

#[test]
fn a_taint_starts_anew_when_only_its_effect_changes() {
    let stored = "2026-01-01T00:00:00Z";
    check_taint_update(taint_rule("NoExecute", "v", Some(stored)), "2026-06-06T00:00:00Z", 4);
    check_taint_update(
        taint_rule("NoExecute", "v", Some("2026-02-02T00:00:00Z")),
        "2026-02-02T00:00:00Z",
        4,
    );
    check_taint_update(taint_rule("NoSchedule", "w", Some(stored)), stored, 4);
    check_taint_update(taint_rule("NoSchedule", "v", Some(stored)), stored, 3);
    check_taint_update(taint_rule("NoSchedule", "v", None), "2026-05-05T00:00:00Z", 4);
}

#[test]
fn clearing_an_allocation_forgets_its_device_reports() {
    let claim = |status: Value| {
        object(&json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
            "status": status,
        }))
    };
    let device = json!({"driver": "d.com", "pool": "p", "device": "x"});
    let mut result = device.clone();
    result["request"] = json!("r");
    let old = claim(json!({"allocation": {"devices": {"results": [result]}}, "devices": [device]}));
    let mut new = claim(json!({"devices": [device]}));
    prepare::for_status_update(&mut new, &old, &FeatureGates::default()).unwrap();
    let AnyObject::ResourceClaim(new) = new else {
        panic!("changed its kind")
    };
    assert_eq!(new.status, ResourceClaimStatus::default());
}

#[test]
fn objects_of_two_kinds_are_no_update() {
    let mut node = object(&json!({"apiVersion": "v1", "kind": "Node"}));
    let unit = object(&json!({"apiVersion": "dray.v1", "kind": "Unit"}));
    let gates = FeatureGates::default();
    assert!(prepare::for_update(&mut node, &unit, &gates, time("2026-01-01T00:00:00Z")).is_err());
    assert!(prepare::for_status_update(&mut node.clone(), &node, &gates).is_err());
    let rule = DeviceTaintRule::default();
    assert!(crate::validation::check_status_update(&rule.into(), &unit).is_none());
}

// Who is asked for permission.

#[test]
fn permissions_are_needed_for_what_changes() {
    let device = |driver: &str, message: &str| json!({"driver": driver, "pool": "p", "device": "x", "conditions": [{"type": "Ready", "message": message}]});
    let status = |devices: Value, allocated: bool| -> ResourceClaimStatus {
        let selector = serde_json::to_value(NodeSelector::for_node("node-a")).unwrap();
        let allocation = allocated.then(|| json!({"nodeSelector": selector}));
        serde_json::from_value(json!({"allocation": allocation, "devices": devices})).unwrap()
    };
    let old = status(
        json!([device("a.com", "1"), device("b.com", "1"), device("c.com", "1")]),
        true,
    );
    let new = status(
        json!([device("a.com", "2"), device("c.com", "1"), device("d.com", "1")]),
        true,
    );
    let drivers: Vec<String> = status_rules::changed_drivers(&new, &old)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(drivers, ["a.com", "b.com", "d.com"]);
    assert!(!status_rules::changes_binding(&new, &old));
    let freed = status(json!([]), false);
    assert!(status_rules::changed_drivers(&freed, &old).is_empty());
    assert!(status_rules::changes_binding(&freed, &old));
    assert_eq!(new.allocation.as_ref().and_then(status_rules::node_of), Some("node-a"));
    assert_eq!(status_rules::node_of(&AllocationResult::default()), None);
}

// Units.

fn unit() -> Unit {
    let uid = "01890000-0000-7000-8000-00000000000a";
    serde_json::from_value(json!({
        "metadata": {"name": uid, "uid": uid, "namespace": "n"},
        "spec": {"clientId": "c", "priority": 5, "homeShard": 7, "claims": [
            {"name": "a", "uid": "01890000-0000-7000-8000-000000000001"},
        ]},
        "status": {"phase": "Pending", "decidedAt": 9},
    }))
    .unwrap()
}

#[track_caller]
fn check_unit(change: impl FnOnce(&mut Unit), errors: &[&str]) {
    let mut unit = unit();
    change(&mut unit);
    let found: Vec<String> = unit_rules::check_create(&unit)
        .iter()
        .map(|error| error.path.clone())
        .collect();
    assert_eq!(found, errors);
}

#[test]
fn units_have_1_to_32_different_claims_and_a_client() {
    check_unit(|_| {}, &[]);
    check_unit(|unit| unit.metadata.name = "other".to_owned(), &["metadata.name"]);
    check_unit(|unit| unit.spec.client_id.clear(), &["spec.clientId"]);
    check_unit(|unit| unit.spec.home_shard = 64, &["spec.homeShard"]);
    check_unit(|unit| unit.spec.claims.clear(), &["spec.claims"]);
    check_unit(|unit| unit.spec.claims.push(unit.spec.claims[0].clone()), &["spec.claims[1]"]);
    check_unit(
        |unit| unit.spec.claims = vec![unit.spec.claims[0].clone(); 33],
        &["spec.claims"],
    );
    check_unit(|unit| unit.spec.claims[0].uid = Uid::NONE, &["spec.claims[0].uid"]);
    check_unit(|unit| unit.status.phase = "Lost".into(), &["status.phase"]);
    check_unit(|unit| unit.status.phase = UnitPhase::Allocated, &["status.node"]);
}

#[test]
fn the_spec_of_a_unit_never_changes() {
    let (old, mut new) = (unit(), unit());
    new.spec.priority = 6;
    let errors = unit_rules::check_update(&new, &old);
    assert_eq!(errors.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["spec"]);
    assert_eq!(serde_json::to_value(&old).unwrap()["status"]["decidedAt"], json!(9));
}
