//! What came of an import: how much was asked and given, who waits and why, and what can be checked from the answers.

use std::collections::BTreeMap;

use rpc::dray::v1::{AllocatedDevice, Unit, UnitPhase};

use super::objects;
use super::settle::Seen;
use super::submit::Submitted;
use super::trace::{Node, Pod, Pods, WHOLE};
use crate::client::table::{self, counted, thousands};

/// Reasons shown in full; the others are counted.
const REASONS_SHOWN: usize = 8;
/// Claims shown with their devices: the largest, and some from all over the trace.
const LARGEST_SHOWN: usize = 2;
const SPREAD_SHOWN: usize = 6;

/// Everything the report is made of.
pub(crate) struct Facts<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) changed_pools: usize,
    pub(crate) pods: &'a Pods,
    pub(crate) submitted: &'a Submitted,
    pub(crate) seen: &'a Seen,
}

/// The pods by what became of them.
#[derive(Debug, Default)]
pub(crate) struct Outcome<'a> {
    pub(crate) allocated: Vec<(&'a Pod, &'a Unit)>,
    pub(crate) waiting: Vec<(&'a Pod, &'a Unit)>,
    /// Accepted, but neither allocated nor refused with a reason.
    pub(crate) undecided: Vec<&'a Pod>,
    /// Faults that can be seen from the answers alone.
    pub(crate) faults: Vec<String>,
}

impl<'a> Outcome<'a> {
    pub(crate) fn of(facts: &Facts<'a>) -> Self {
        let mut outcome = Self::default();
        for pod in &facts.pods.asking {
            let Some(uid) = facts.submitted.accepted.get(&pod.name) else {
                continue;
            };
            match facts.seen.units.get(uid) {
                Some(unit) if unit.phase() == UnitPhase::Allocated => outcome.allocated.push((pod, unit)),
                Some(unit) if !unit.reason.is_empty() => outcome.waiting.push((pod, unit)),
                _ => outcome.undecided.push(pod),
            }
        }
        outcome.faults = faults(facts.nodes, &outcome.allocated);
        outcome
    }
}

/// Checks what every client can check: each pod got as many devices as it asked for, of a model it named, and of no device
/// more was given than there is.
fn faults(nodes: &[Node], allocated: &[(&Pod, &Unit)]) -> Vec<String> {
    let models: BTreeMap<&str, &str> = nodes.iter().map(|node| (node.name.as_str(), node.model.as_str())).collect();
    let mut given: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut faults = Vec::new();
    for (pod, unit) in allocated {
        if devices(unit).count() != pod.gpus as usize {
            faults.push(format!(
                "{} asked for {} devices and has {}",
                pod.name,
                pod.gpus,
                devices(unit).count()
            ));
        }
        for device in devices(unit) {
            let sum = given.entry((&device.pool, &device.device)).or_default();
            *sum += pod.milli;
            if *sum > WHOLE {
                faults.push(format!(
                    "of {}/{}, {sum} thousandths were given, the last to {}",
                    device.pool, device.device, pod.name
                ));
            }
            let model = models.get(device.pool.as_str()).copied().unwrap_or("unknown");
            if !pod.models.is_empty() && !pod.models.iter().any(|wanted| wanted == model) {
                faults.push(format!("{} asked for {} and has a {model}", pod.name, objects::asked(pod)));
            }
        }
    }
    faults
}

fn devices(unit: &Unit) -> impl Iterator<Item = &AllocatedDevice> {
    unit.claims.iter().flat_map(|claim| &claim.devices)
}

/// The figures, a line each.
pub(crate) fn figures(facts: &Facts<'_>, outcome: &Outcome<'_>, seconds: f64) -> String {
    // Thousandths, shown as whole GPUs.
    let gpus = |pods: &mut dyn Iterator<Item = &Pod>| {
        pods.map(|pod| u64::from(pod.gpus) * u64::from(pod.milli)).sum::<u64>() / u64::from(WHOLE)
    };
    let capacity: u64 = facts.nodes.iter().map(|node| u64::from(node.gpu)).sum();
    let asked = gpus(&mut facts.pods.asking.iter());
    let given = gpus(&mut outcome.allocated.iter().map(|(pod, _)| *pod));
    let submitted = facts.submitted.accepted.len();
    let rate = if seconds > 0.0 { submitted as f64 / seconds } else { 0.0 };
    let mut rows = table::table(&["openb", "claims", "gpus", ""]);
    let mut row = |what: &str, claims: String, gpus: String, note: String| {
        rows.add_row([what.to_owned(), claims, gpus, note]);
    };
    let pools = format!(
        "{} ({} new or changed)",
        counted(facts.nodes.len(), "pool"),
        facts.changed_pools
    );
    row("nodes", String::new(), thousands(capacity), pools);
    if facts.pods.without > 0 {
        let left_out = "ask for no gpu: left out".to_owned();
        row("without", thousands(facts.pods.without as u64), String::new(), left_out);
    }
    let repeated = match facts.submitted.repeated {
        0 => String::new(),
        repeated => format!("{} had been submitted before", thousands(repeated as u64)),
    };
    row("submitted", thousands(submitted as u64), thousands(asked), repeated);
    row(
        "allocated",
        thousands(outcome.allocated.len() as u64),
        thousands(given),
        format!("in {seconds:.2} s, {rate:.0} claims/s"),
    );
    let waiting = gpus(&mut outcome.waiting.iter().map(|(pod, _)| *pod));
    row(
        "waiting",
        thousands(outcome.waiting.len() as u64),
        thousands(waiting),
        String::new(),
    );
    if !outcome.undecided.is_empty() {
        row(
            "undecided",
            thousands(outcome.undecided.len() as u64),
            String::new(),
            "no answer in time".to_owned(),
        );
    }
    if !facts.submitted.refused.is_empty() {
        row(
            "refused",
            thousands(facts.submitted.refused.len() as u64),
            String::new(),
            facts.submitted.refused[0].1.clone(),
        );
    }
    table::text(&rows)
}

/// Why claims wait: each reason with the number of claims and an example, the most frequent first.
pub(crate) fn reasons(outcome: &Outcome<'_>) -> String {
    let mut groups: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for (pod, unit) in &outcome.waiting {
        groups.entry(&unit.reason).or_default().push(pod);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(reason, pods)| (std::cmp::Reverse(pods.len()), *reason));
    let mut rows = table::table(&["waiting", "asks for", "because"]);
    for (reason, pods) in groups.iter().take(REASONS_SHOWN) {
        rows.add_row([thousands(pods.len() as u64), objects::asked(pods[0]), (*reason).to_owned()]);
    }
    let rest: usize = groups.iter().skip(REASONS_SHOWN).map(|(_, pods)| pods.len()).sum();
    if rest > 0 {
        let more = format!("{} more reasons", groups.len() - REASONS_SHOWN);
        rows.add_row([thousands(rest as u64), String::new(), more]);
    }
    table::text(&rows)
}

/// A few claims with their devices: those with the most, then some spread over the trace.
pub(crate) fn examples(outcome: &Outcome<'_>) -> String {
    let mut largest: Vec<_> = outcome.allocated.iter().collect();
    largest.sort_by_key(|(pod, _)| std::cmp::Reverse(pod.gpus));
    largest.truncate(LARGEST_SHOWN);
    let spread = outcome
        .allocated
        .iter()
        .step_by((outcome.allocated.len() / SPREAD_SHOWN).max(1))
        .take(SPREAD_SHOWN);
    let mut rows = table::table(&["claim", "asked for", "node", "devices"]);
    let others = spread.filter(|(pod, _)| !largest.iter().any(|(shown, _)| shown.name == pod.name));
    for (pod, unit) in largest.iter().copied().chain(others) {
        let names = devices(unit)
            .map(|device| device.device.clone())
            .collect::<Vec<_>>()
            .join(" ");
        rows.add_row([pod.name.clone(), objects::asked(pod), unit.node.clone(), names]);
    }
    table::text(&rows)
}

#[cfg(test)]
mod tests {
    use rpc::dray::v1::UnitClaim;

    use super::*;

    fn pod(name: &str, gpus: u32, models: &[&str]) -> Pod {
        Pod {
            name: name.to_owned(),
            gpus,
            milli: 600,
            models: models.iter().map(|model| (*model).to_owned()).collect(),
        }
    }

    fn unit(uid: &str, reason: &str, found: &[&str]) -> Unit {
        let device = |name: &&str| AllocatedDevice {
            pool: "n".to_owned(),
            device: (*name).to_owned(),
            ..Default::default()
        };
        let claim = UnitClaim {
            devices: found.iter().map(device).collect(),
            ..UnitClaim::default()
        };
        let phase = if found.is_empty() {
            UnitPhase::Pending
        } else {
            UnitPhase::Allocated
        };
        Unit {
            uid: uid.to_owned(),
            reason: reason.to_owned(),
            phase: phase.into(),
            claims: vec![claim],
            ..Unit::default()
        }
    }

    #[test]
    fn faults_are_seen_and_reasons_are_grouped() {
        let nodes = [Node {
            name: "n".to_owned(),
            gpu: 2,
            model: "T4".to_owned(),
        }];
        let asking = vec![
            pod("a", 1, &[]),
            pod("b", 1, &["A10"]),
            pod("c", 1, &[]),
            pod("d", 1, &[]),
            pod("e", 1, &[]),
        ];
        let pods = Pods { asking, without: 3 };
        let units = [
            unit("ua", "", &["gpu-0"]),
            unit("ub", "", &["gpu-0"]),
            unit("uc", "full", &[]),
            unit("ud", "full", &[]),
        ];
        let seen_units = units.into_iter().map(|unit| (unit.uid.clone(), unit)).collect();
        let accepted = ["a", "b", "c", "d", "e"]
            .map(|name| (name.to_owned(), format!("u{name}")))
            .into();
        let submitted = Submitted {
            accepted,
            ..Submitted::default()
        };
        let mut seen = Seen::default();
        seen.units = seen_units;
        let facts = Facts {
            nodes: &nodes,
            changed_pools: 1,
            pods: &pods,
            submitted: &submitted,
            seen: &seen,
        };
        let outcome = Outcome::of(&facts);
        assert_eq!(
            (outcome.allocated.len(), outcome.waiting.len(), outcome.undecided.len()),
            (2, 2, 1)
        );
        assert_eq!(
            outcome.faults,
            [
                "of n/gpu-0, 1200 thousandths were given, the last to b",
                "b asked for 600 thousandths of A10 and has a T4"
            ]
        );
        assert_eq!(
            reasons(&outcome),
            "WAITING  ASKS FOR                      BECAUSE\n2        600 thousandths of any model  full"
        );
    }
}
