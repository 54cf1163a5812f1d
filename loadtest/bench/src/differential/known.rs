//! Differences that are choices. Each has its entry, with the reason, in docs/differences.md under the same name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::verdict::{Judged, Judgement};

/// A choice and the inputs on which it shows.
struct Choice {
    /// Heading in docs/differences.md.
    name: &'static str,
    shows: fn(&Judged, &str) -> bool,
}

const CHOICES: &[Choice] = &[
    Choice {
        name: "A fault of the claim is told before a node selector that cannot be read",
        shows: claim_fault_before_bad_node_selector,
    },
    Choice {
        name: "A cancelled call says that it was cancelled",
        shows: cancelled_before_fault,
    },
    Choice {
        name: "A device that stops being shareable while shares are out is not free",
        shows: no_longer_shareable,
    },
    Choice {
        name: "Nothing is compatible with devices in use that are not compatible with each other",
        shows: groups_in_use_disagree,
    },
];

/// The choice that explains a difference, if one does.
pub(super) fn choice(judged: &Judged) -> Option<&'static str> {
    let Judgement::Different { difference } = &judged.judgement else {
        return None;
    };
    CHOICES
        .iter()
        .find(|choice| (choice.shows)(judged, difference))
        .map(|choice| choice.name)
}

/// Faults that compiling a claim finds, before any node is looked at.
const FOUND_BY_COMPILING: &[&str] = &[
    "feature-disabled",
    "unsupported-selector",
    "unsupported-mode",
    "unsupported-constraint",
    "missing-class-name",
    "unknown-class",
    "too-many-devices",
];

fn claim_fault_before_bad_node_selector(judged: &Judged, difference: &str) -> bool {
    let ours_is = |kind: &&&str| difference.contains(&format!("got {kind} (claim)"));
    judged.expect()["error"]["kind"] == "bad-node-selector" && FOUND_BY_COMPILING.iter().any(|kind| ours_is(&kind))
}

fn cancelled_before_fault(judged: &Judged, difference: &str) -> bool {
    !judged.case["interrupt"].is_null() && judged.outcome() == "error" && difference.contains("got cancelled (call)")
}

fn no_longer_shareable(judged: &Judged, _: &str) -> bool {
    let shared = ["shares", "capacity"].map(|part| judged.case["allocated"][part].as_array());
    judged.has_gate("DRAConsumableCapacity")
        && shared.into_iter().flatten().flatten().any(|held| {
            published(&judged.case, held).any(|device| {
                device["allowMultipleAllocations"] != true && device["capacity"].as_object().is_none_or(|all| all.is_empty())
            })
        })
}

fn groups_in_use_disagree(judged: &Judged, _: &str) -> bool {
    let in_use: BTreeSet<String> = ["devices", "shares", "capacity"]
        .into_iter()
        .flat_map(|part| judged.case["allocated"][part].as_array().into_iter().flatten())
        .map(id_of)
        .collect();
    let all_slices = judged.case["resourceSlices"].as_array();
    let mut groups_of_set: BTreeMap<String, Vec<BTreeSet<&str>>> = BTreeMap::new();
    for slice in all_slices.into_iter().flatten() {
        for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
            if !in_use.contains(&id_of_device(slice, device)) {
                continue;
            }
            for draw in device["consumesCounters"].as_array().into_iter().flatten() {
                let set = format!(
                    "{} {} {}",
                    slice["spec"]["driver"], slice["spec"]["pool"]["name"], draw["counterSet"]
                );
                let groups = draw["compatibilityGroups"].as_array().into_iter().flatten();
                groups_of_set
                    .entry(set)
                    .or_default()
                    .push(groups.filter_map(Value::as_str).collect());
            }
        }
    }
    judged.has_gate("DRADeviceCompatibilityGroups") && groups_of_set.values().any(|all| disagree(all))
}

fn disagree(all: &[BTreeSet<&str>]) -> bool {
    let without = all.iter().filter(|groups| groups.is_empty()).count();
    let common = all.iter().cloned().reduce(|a, b| &a & &b).unwrap_or_default();
    without != all.len() && (without > 0 || common.is_empty())
}

/// Every device of that id in some slice.
fn published<'a>(case: &'a Value, held: &'a Value) -> impl Iterator<Item = &'a Value> {
    let slices = case["resourceSlices"].as_array().into_iter().flatten();
    slices.flat_map(move |slice| {
        let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
        devices.filter(move |device| id_of_device(slice, device) == id_of(held))
    })
}

fn id_of(held: &Value) -> String {
    format!("{} {} {}", held["driver"], held["pool"], held["device"])
}

fn id_of_device(slice: &Value, device: &Value) -> String {
    format!(
        "{} {} {}",
        slice["spec"]["driver"], slice["spec"]["pool"]["name"], device["name"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_documented() {
        let documented = include_str!("../../../../docs/differences.md");
        for choice in CHOICES {
            assert!(documented.contains(&format!("\n## {}\n", choice.name)), "{}", choice.name);
        }
    }

    #[test]
    fn groups_agree_if_all_have_one_in_common_or_none_has_any() {
        let sets = |all: &[&[&'static str]]| -> Vec<BTreeSet<&str>> {
            all.iter().map(|groups| groups.iter().copied().collect()).collect()
        };
        assert!(!disagree(&sets(&[&["x", "y"], &["y"]])));
        assert!(!disagree(&sets(&[&[], &[]])));
        assert!(!disagree(&[]));
        assert!(disagree(&sets(&[&["x"], &["y"]])));
        assert!(disagree(&sets(&[&["x"], &[]])));
    }
}
