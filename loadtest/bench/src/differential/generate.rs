//! One random input: gates, a node, classes, what is published (`inventory`), what is asked for (`wishes`) and what is in use.
//!
//! Small on purpose: a dozen devices and a few requests meet in every corner, and the reference's exhaustive search still ends. Every object
//! is what the API can hold, except for a few that test how both refuse what it would not let in.

use serde_json::{Value, json};

use super::{inventory, wishes};
use crate::dice::Dice;

/// The node that is asked about, and one that is not.
pub(super) const NODE: &str = "host-1";
pub(super) const OTHER_NODE: &str = "host-2";

pub(super) const DRIVERS: [&str; 3] = ["gpu.dray.test", "nic.dray.test", "fpga.dray.test"];

/// Gates by name; those of binding conditions always come together.
const GATES: [&[&str]; 11] = [
    &["DRAAdminAccess"],
    &["DRAPrioritizedList"],
    &["DRAPartitionableDevices"],
    &["DRADeviceTaints"],
    &["DRAConsumableCapacity"],
    &["DRAFractionalCapacityRange"],
    &["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"],
    &["DRAListTypeAttributes"],
    &["DRADerivedAttributes"],
    &["DRADeviceCompatibilityGroups"],
    &["DRAOptionalNodeOperations"],
];

/// Of [`GATES`], those that Kubernetes 1.37 switches on.
const ON_BY_DEFAULT: [usize; 6] = [0, 1, 2, 3, 4, 6];

/// What the objects of one input may use. An input that used everything would mostly fail on the first thing that is off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) admin: bool,
    pub(super) alternatives: bool,
    pub(super) counters: bool,
    pub(super) groups: bool,
    pub(super) taints: bool,
    pub(super) shares: bool,
    pub(super) fractions: bool,
    pub(super) binding: bool,
    pub(super) lists: bool,
    pub(super) derived: bool,
    pub(super) node_operations: bool,
    /// Selection of nodes per device.
    pub(super) per_device: bool,
    /// Pools that are incomplete, invalid or outdated.
    pub(super) troubled_pools: bool,
    /// Objects that the API would not let in, and selectors that fail.
    pub(super) faults: bool,
}

/// Input `number` of the sequence that `seed` names.
pub(super) fn case(seed: u64, number: u64) -> Value {
    // Neighbours in the sequence, and sequences of neighbouring seeds, have nothing in common.
    let mut dice = Dice::new(seed);
    let start = dice.below(u64::MAX);
    let mut dice = Dice::new(start ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let (gates, theme) = gates_and_theme(&mut dice);
    let slices = inventory::slices(&mut dice, theme);
    let allocated = allocated(&mut dice, &slices, theme);
    let claims: Vec<Value> = (0..dice.pick(&[1, 1, 1, 1, 2, 2, 3]))
        .map(|at| wishes::claim(&mut dice, at, theme))
        .collect();
    let mut case = json!({
        "id": format!("differential-{seed}-{number}"),
        "features": gates,
        "node": node(&mut dice),
        "claims": claims,
        "deviceClasses": wishes::classes(&mut dice, theme),
        "resourceSlices": slices,
        "allocated": allocated,
    });
    if dice.one_in(300) {
        case["interrupt"] = json!("cancel");
    }
    case
}

fn gates_and_theme(dice: &mut Dice) -> (Vec<&'static str>, Theme) {
    let style = dice.below(8);
    let on: Vec<bool> = (0..GATES.len())
        .map(|gate| match style {
            0 | 1 => true,
            2 | 3 => ON_BY_DEFAULT.contains(&gate),
            _ => !dice.one_in(4),
        })
        .collect();
    // Mostly only what is on is used; sometimes also what is off.
    let regardless = dice.one_in(8);
    let mut uses = |gate: usize, one_in: u64| (on[gate] || regardless) && dice.one_in(one_in);
    let theme = Theme {
        admin: uses(0, 4),
        alternatives: uses(1, 2),
        counters: uses(2, 2),
        taints: uses(3, 3),
        shares: uses(4, 2),
        fractions: uses(5, 3),
        binding: uses(6, 4),
        lists: uses(7, 3),
        derived: uses(8, 5),
        groups: uses(9, 3),
        node_operations: uses(10, 6),
        per_device: uses(2, 3),
        troubled_pools: dice.one_in(5),
        faults: dice.one_in(6),
    };
    let names = GATES.iter().zip(&on).filter(|(_, on)| **on);
    (names.flat_map(|(names, _)| names.iter().copied()).collect(), theme)
}

fn node(dice: &mut Dice) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": NODE, "labels": {"zone": "zone-1", "site": "north", "tier": "3"}}});
    if dice.one_in(2) {
        node["status"] = json!({"declaredFeatures": ["DRAOptionalNodeOperations"]});
    }
    node
}

/// What others hold: devices whole, shares, capacity of shares; now and then of a device that is not published.
fn allocated(dice: &mut Dice, slices: &[Value], theme: Theme) -> Value {
    let (mut devices, mut shares, mut capacity) = (Vec::new(), Vec::new(), Vec::new());
    let chance = dice.pick(&[3, 6, 12, 100]);
    for slice in slices {
        for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
            if !dice.one_in(chance) {
                continue;
            }
            let id = json!({"driver": slice["spec"]["driver"], "pool": slice["spec"]["pool"]["name"], "device": device["name"]});
            let is_shareable = device["allowMultipleAllocations"] == true && theme.shares;
            if !is_shareable || dice.one_in(6) {
                devices.push(id.clone());
            }
            if is_shareable {
                for share in 0..dice.pick(&[1, 1, 2]) {
                    let mut held = id.clone();
                    held["shareID"] = json!(format!("share-{}-{share}", shares.len()));
                    shares.push(held);
                }
                capacity.extend(consumed(dice, device).map(|consumed| {
                    let mut held = id;
                    held["consumed"] = consumed;
                    held
                }));
            }
        }
    }
    if dice.one_in(10) {
        devices.push(json!({"driver": DRIVERS[0], "pool": "rack-1", "device": "gone"}));
    }
    json!({"devices": devices, "shares": shares, "capacity": capacity})
}

fn consumed(dice: &mut Dice, device: &Value) -> Option<Value> {
    let names: Vec<&String> = device["capacity"].as_object()?.keys().collect();
    let mut consumed = json!({});
    for name in names {
        if dice.one_in(5) {
            continue;
        }
        let amounts: &[&str] = match name.as_str() {
            "memory" => &["1Gi", "512Mi", "2Gi"],
            _ => &["1", "2", "500m"],
        };
        consumed[name.as_str()] = json!(dice.pick(amounts));
    }
    consumed
        .as_object()
        .is_some_and(|consumed| !consumed.is_empty())
        .then_some(consumed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_names_a_case() {
        assert_eq!(case(7, 3), case(7, 3));
        assert_ne!(case(7, 3)["claims"], case(7, 4)["claims"]);
        assert_ne!(case(7, 3)["claims"], case(8, 3)["claims"]);
    }

    #[test]
    fn every_feature_occurs_and_counts_are_right() {
        let text: Vec<String> = (0..500).map(|number| case(1, number).to_string()).collect();
        for feature in [
            "\"All\"",
            "firstAvailable",
            "matchAttribute",
            "distinctAttribute",
            "\"ints\"",
            "adminAccess",
            "sharedCounters",
            "compatibilityGroups",
            "taints",
            "tolerations",
            "validRange",
            "validValues",
            "shareID",
            "bindingConditions",
            "perDeviceNodeSelection",
            "derivedAttributes",
            "skipNodeOperations",
            "nodeSelector",
            "\"consumed\"",
            "\"interrupt\"",
            "\"opaque\"",
        ] {
            let n = text.iter().filter(|text| text.contains(feature)).count();
            assert!(n > 0, "{feature} never occurs");
        }
        let gates: BTreeSet<String> = (0..500).map(|number| case(1, number)["features"].to_string()).collect();
        assert!(gates.len() > 100, "only {} sets of gates", gates.len());
    }
}
