//! Outcome, estimated and actual cost of small expressions against answers recorded from Kubernetes v1.37.2: written ones
//! for each rule of what an evaluation costs, and random ones. All on one device.

use std::collections::BTreeMap;

use device_selectors::{DeviceView, Mode, Options, Selector};
use resource_api::device::{Device, DeviceAttribute, DeviceCapacity};

fn device() -> Device {
    let attribute = |name: &str, json: &str| {
        let attribute: DeviceAttribute = serde_json::from_str(json).expect("an attribute");
        (name.to_owned(), attribute)
    };
    let memory = DeviceCapacity {
        value: "1Gi".parse().expect("a quantity"),
        ..DeviceCapacity::default()
    };
    Device {
        attributes: BTreeMap::from([
            attribute("a", r#"{"string": "bbb"}"#),
            attribute("b", r#"{"int": 3}"#),
            attribute("dra.example.com/v", r#"{"version": "1.2.3"}"#),
            attribute("other.example.com/c", r#"{"ints": [3, 1, 2]}"#),
            attribute("other.example.com/s", r#"{"strings": ["x", "yy"]}"#),
        ]),
        capacity: BTreeMap::from([("memory".to_owned(), memory)]),
        allow_multiple_allocations: Some(true),
        ..Device::default()
    }
}

/// `outcome`, actual cost and estimate as the file has them.
fn found(expression: &str, device: &Device) -> [String; 3] {
    const UNBOUNDED: u64 = 1_000_000_000_000_000;
    let Ok(selector) = Selector::compile(expression, Mode::Stored, Options::default()) else {
        return ["refused".to_owned(), String::new(), String::new()];
    };
    let (answer, cost) = selector.matches_with_cost(&DeviceView::new("dra.example.com", device));
    let outcome = answer.map_or("error".to_owned(), |fits| fits.to_string());
    let estimate = match selector.estimated_cost() {
        cost if cost > UNBOUNDED => "unbounded".to_owned(),
        cost => cost.to_string(),
    };
    [outcome, cost.to_string(), estimate]
}

#[test]
fn costs_are_those_of_kubernetes() {
    let device = device();
    let mut rows = 0;
    let mut differing = Vec::new();
    for line in include_str!("../testdata/costs.tsv").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [expression, wanted @ ..] = fields.as_slice() else {
            panic!("{line:?} has no fields")
        };
        let found = found(expression, &device);
        if *wanted != found {
            differing.push(format!("{expression}: wanted {wanted:?}, found {found:?}"));
        }
        rows += 1;
    }
    assert!(rows >= 550, "only {rows} rows");
    assert!(
        differing.is_empty(),
        "{} of {rows}:\n{}",
        differing.len(),
        differing.join("\n")
    );
}
