//! What is asked for: classes, and claims with requests, alternatives, constraints and configuration.

use serde_json::{Value, json};

use super::generate::{DRIVERS, Theme};
use crate::dice::Dice;

/// Attributes of constraints; the last is only ever a derived one.
const ATTRIBUTES: [&str; 6] = [
    "gpu.dray.test/numa",
    "nic.dray.test/numa",
    "gpu.dray.test/model",
    "resource.kubernetes.io/pcieRoot",
    "gpu.dray.test/firmware",
    DERIVED,
];
const DERIVED: &str = "dray.test/key";

/// Selectors that never fail on a device of this generator, whatever it lacks.
const SELECTORS: [&str; 8] = [
    r#"device.driver == "gpu.dray.test""#,
    r#"device.attributes[device.driver].?model.orValue("z") == "a""#,
    r#"device.attributes[device.driver].?model.orValue("z") in ["a", "b"]"#,
    r#""numa" in device.attributes[device.driver]"#,
    r#"device.capacity[device.driver].?memory.orValue(quantity("0")).compareTo(quantity("2Gi")) >= 0"#,
    r#"!("firmware" in device.attributes[device.driver]) || device.driver != "fpga.dray.test""#,
    r#"device.attributes["resource.kubernetes.io"].?pcieRoot.hasValue()"#,
    r#"has(device.attributes["gpu.dray.test"].model)"#,
];

/// Selectors that fail on some devices, and at last two that do not compile.
const FAILING_SELECTORS: [&str; 6] = [
    r#"device.attributes[device.driver].model == "a""#,
    r#"device.attributes["gpu.dray.test"].numa == 1"#,
    r#"device.attributes[device.driver].firmware.isGreaterThan(semver("1.0.0"))"#,
    r#"device.capacity[device.driver].memory.compareTo(quantity("2Gi")) > 0"#,
    r#"device.nonsense"#,
    r#"device.driver =="#,
];

const DERIVATIONS: [&str; 6] = [
    r#"device.attributes[device.driver].?model.orValue("z")"#,
    r#"device.attributes[device.driver].?numa.orValue(7)"#,
    r#"device.driver"#,
    r#""numa" in device.attributes[device.driver]"#,
    r#"1 + 1"#,
    // Fails where there is no model.
    r#"device.attributes[device.driver].model"#,
];

/// All classes that claims name, but the one that is unknown.
pub(super) fn classes(dice: &mut Dice, theme: Theme) -> Value {
    let mut classes = Vec::new();
    let mut add = |name: &str, selectors: &[&str], config: Option<Value>| {
        let mut spec = json!({});
        if !selectors.is_empty() {
            spec["selectors"] = selectors.iter().map(|selector| cel(selector)).collect();
        }
        if let Some(config) = config {
            spec["config"] = json!([config]);
        }
        classes
            .push(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}));
    };
    let config = |dice: &mut Dice| dice.one_in(4).then(|| opaque(dice));
    add("any", &[], config(dice));
    add("gpu", &[SELECTORS[0]], config(dice));
    add("nic", &[r#"device.driver == "nic.dray.test""#], config(dice));
    let second = if theme.faults {
        dice.pick(&FAILING_SELECTORS)
    } else {
        dice.pick(&SELECTORS)
    };
    add("picky", &[SELECTORS[2], second], config(dice));
    json!(classes)
}

fn cel(expression: &str) -> Value {
    json!({"cel": {"expression": expression}})
}

fn opaque(dice: &mut Dice) -> Value {
    json!({"opaque": {"driver": dice.pick(&DRIVERS), "parameters": {"mode": dice.below(100)}}})
}

/// A claim with its requests.
pub(super) fn claim(dice: &mut Dice, at: u64, theme: Theme) -> Value {
    let n_requests = dice.pick(&[1, 1, 1, 2, 2, 3]);
    let requests: Vec<Value> = (0..n_requests).map(|number| request(dice, number, theme)).collect();
    let mut devices = json!({"requests": requests});
    let n_constraints = dice.pick(&[0, 0, 0, 1, 1, 2]);
    if n_constraints > 0 {
        let constraints: Vec<Value> = (0..n_constraints).map(|_| constraint(dice, &requests, theme)).collect();
        devices["constraints"] = json!(constraints);
    }
    if dice.one_in(5) {
        let mut config = opaque(dice);
        if !dice.one_in(3) {
            config["requests"] = json!([named_request(dice, &requests)]);
        }
        devices["config"] = json!([config]);
    }
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": format!("claim-{at}"), "uid": format!("00000000-0000-4000-8000-{:012}", at + 1)},
        "spec": {"devices": devices}})
}

fn request(dice: &mut Dice, number: u64, theme: Theme) -> Value {
    let name = format!("want-{number}");
    if theme.alternatives && dice.one_in(2) {
        let n = dice.pick(&[1, 2, 2, 3]);
        let alternatives: Vec<Value> = (0..n)
            .map(|at| {
                let mut wanted = wanted(dice, theme);
                wanted["name"] = json!(format!("alt-{at}"));
                wanted
            })
            .collect();
        return json!({"name": name, "firstAvailable": alternatives});
    }
    let mut wanted = wanted(dice, theme);
    if theme.admin && dice.one_in(2) {
        wanted["adminAccess"] = json!(!dice.one_in(8));
    }
    json!({"name": name, "exactly": wanted})
}

/// What a request and an alternative have in common.
fn wanted(dice: &mut Dice, theme: Theme) -> Value {
    let mut wanted = json!({"deviceClassName": dice.pick(&["any", "any", "any", "any", "any", "gpu", "gpu", "nic", "picky"]), "allocationMode": "ExactCount"});
    if theme.faults && dice.one_in(30) {
        wanted["deviceClassName"] = json!(dice.pick(&["unknown", ""]));
    }
    match dice.below(14) {
        0 => wanted["allocationMode"] = json!("All"),
        1 if theme.faults && dice.one_in(8) => wanted["allocationMode"] = json!("Most"),
        2 if dice.one_in(4) => wanted["count"] = json!(dice.pick(&[16_i64, 31, 32, 33, i64::MAX])),
        _ => wanted["count"] = json!(dice.pick(&[1, 1, 1, 1, 2, 2, 3])),
    }
    if dice.one_in(5) {
        let n = dice.pick(&[1, 1, 2]);
        wanted["selectors"] = (0..n).map(|_| selector(dice, theme)).collect();
    }
    if dice.one_in(if theme.taints { 2 } else { 12 }) {
        wanted["tolerations"] = tolerations(dice);
    }
    if theme.shares && dice.one_in(3) {
        wanted["capacity"] = json!({"requests": capacity_requests(dice, theme)});
    }
    if theme.derived && !dice.one_in(4) {
        let mut derived = vec![json!({"name": DERIVED, "expression": dice.pick(&DERIVATIONS[..5 + usize::from(theme.faults)])})];
        if dice.one_in(4) {
            // Hides a published one.
            derived.push(json!({"name": ATTRIBUTES[0], "expression": dice.pick(&DERIVATIONS[..5])}));
        }
        wanted["derivedAttributes"] = json!(derived);
    }
    wanted
}

fn selector(dice: &mut Dice, theme: Theme) -> Value {
    match (theme.faults, dice.below(12)) {
        (true, 0..3) => cel(dice.pick(&FAILING_SELECTORS)),
        (true, 3) if dice.one_in(6) => json!({}),
        _ => cel(dice.pick(&SELECTORS)),
    }
}

fn tolerations(dice: &mut Dice) -> Value {
    let all = [
        json!({"operator": "Exists"}),
        json!({"key": "dray.test/broken", "operator": "Exists"}),
        json!({"key": "dray.test/broken", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "dray.test/broken", "operator": "Equal", "value": "yes"}),
        json!({"key": "dray.test/broken", "value": "xid", "effect": "NoExecute", "tolerationSeconds": 5}),
        json!({"key": "dray.test/old", "operator": "Exists"}),
        json!({"key": "dray.test/old", "operator": "Equal"}),
    ];
    let n = dice.pick(&[1, 1, 2]);
    (0..n).map(|_| dice.pick(&all)).collect()
}

fn capacity_requests(dice: &mut Dice, theme: Theme) -> Value {
    let mut requests = json!({});
    if !dice.one_in(4) {
        let amounts: &[&str] = if theme.fractions {
            &["1", "2", "250m", "1100m", "750m", "300u", "3"]
        } else {
            &["1", "2", "3", "5", "0"]
        };
        requests["units"] = json!(dice.pick(amounts));
    }
    if dice.one_in(3) {
        requests["memory"] = json!(dice.pick(&["1Gi", "1G", "1536Mi", "3Gi"]));
    }
    if theme.faults && dice.one_in(12) {
        requests["units"] = json!(dice.pick(&["-1", "9223372036854775808", "1e18", "1n"]));
    }
    if dice.one_in(25) {
        requests["absent"] = json!("1");
    }
    requests
}

fn constraint(dice: &mut Dice, requests: &[Value], theme: Theme) -> Value {
    if theme.faults && dice.one_in(25) {
        return json!({});
    }
    let kind = if theme.shares && dice.one_in(2) {
        "distinctAttribute"
    } else {
        dice.pick(&["matchAttribute", "matchAttribute", "matchAttribute", "distinctAttribute"])
    };
    let attribute = if theme.derived && !dice.one_in(3) {
        DERIVED
    } else {
        dice.pick(&ATTRIBUTES[..5])
    };
    let mut constraint = json!({kind: attribute});
    if dice.one_in(2) {
        let n = dice.pick(&[1, 2]);
        let mut named: Vec<String> = (0..n).map(|_| named_request(dice, requests)).collect();
        named.dedup();
        constraint["requests"] = json!(named);
    }
    constraint
}

/// A request, or one of its alternatives.
fn named_request(dice: &mut Dice, requests: &[Value]) -> String {
    let request = dice.pick(requests);
    let name = request["name"].as_str().unwrap_or_default();
    match request["firstAvailable"].as_array() {
        Some(alternatives) if dice.one_in(2) => {
            let alternative = dice.pick(alternatives);
            format!("{name}/{}", alternative["name"].as_str().unwrap_or_default())
        }
        _ => name.to_owned(),
    }
}
