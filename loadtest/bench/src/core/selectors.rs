//! What a selector costs per device over a whole replay: our whole time, search and all, spread over the evaluations that the reference
//! makes for the same answers; beside the time of one of these.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, ensure};
use device_selectors::{DeviceView, Mode, Options, Selector};
use resource_api::claim::DeviceSelector;
use resource_api::ids::DeviceId;
use resource_api::slice::ResourceSlice;
use serde::Serialize;

use super::Set;
use structured::conformance::{Outcome, Workload};

use super::workload;
use crate::peer::Peer;
use crate::report::median;

/// The workloads whose evaluations are counted: one request, one slice per node, no alternatives.
const FAMILY: &str = "a-";

#[derive(Serialize)]
pub(super) struct Figures {
    /// Evaluations of the reference, from the expected outcomes.
    evaluations: u64,
    ours_ns: f64,
    peer_ns: f64,
    /// Theirs over ours.
    pub(super) ratio_to_peer: f64,
}

/// `None` if the set has no such workload.
pub(super) fn measure(set: &Set, peer: &Peer, repeats: usize) -> anyhow::Result<Option<Figures>> {
    let names: Vec<&String> = set.names.iter().filter(|name| name.starts_with(FAMILY)).collect();
    let Some(first) = names.first() else { return Ok(None) };
    let (mut evaluations, mut ours_nanos) = (0, 0.0);
    for name in &names {
        let workload = workload::read(&set.file(name))?;
        let expected = workload::read_expected(&set.expected(name))?;
        evaluations += Count::new(&workload)?.of_replay(&expected)?;
        let times = (0..repeats.max(1)).map(|_| workload::replay(&workload, 0).nanos.iter().sum::<u64>() as f64);
        ours_nanos += median(times.collect());
    }
    let report = peer.selectors(&set.file(first))?;
    let (ours_ns, peer_ns) = (
        ours_nanos / evaluations as f64,
        report.nanos as f64 / report.evaluations as f64,
    );
    Ok(Some(Figures {
        evaluations,
        ours_ns,
        peer_ns,
        ratio_to_peer: peer_ns / ours_ns,
    }))
}

/// Counts the evaluations of first fit: on each node tried, each device that is not in use, until enough match; the selectors of
/// class and request in order until one is false.
struct Count<'a> {
    workload: &'a Workload,
    slices: HashMap<&'a str, &'a ResourceSlice>,
    compiled: BTreeMap<&'a str, Selector>,
    /// Selectors evaluated on a device, and whether all are true.
    known: HashMap<(DeviceId, Vec<&'a str>), (u64, bool)>,
}

impl<'a> Count<'a> {
    fn new(workload: &'a Workload) -> anyhow::Result<Self> {
        let by_node = |slice: &'a std::sync::Arc<ResourceSlice>| Some((slice.spec.node_name.as_deref()?, &**slice));
        Ok(Self {
            workload,
            slices: workload.resource_slices.iter().filter_map(by_node).collect(),
            compiled: BTreeMap::new(),
            known: HashMap::new(),
        })
    }

    fn of_replay(mut self, expected: &[Outcome]) -> anyhow::Result<u64> {
        let mut in_use: HashSet<DeviceId> = self.workload.preallocated.iter().cloned().collect();
        let mut sum = 0;
        for (claim, outcome) in self.workload.claims.iter().zip(expected) {
            let [request] = claim.spec.devices.requests.as_slice() else {
                anyhow::bail!("a claim of several requests");
            };
            let exactly = request.exactly.as_ref().context("a request with alternatives")?;
            let count = u64::try_from(exactly.count)?;
            let class = self.workload.device_classes.iter();
            let class = class
                .clone()
                .find(|class| class.metadata.name == exactly.device_class_name)
                .context("a class that is not there")?;
            let expressions = self.compile(class.spec.selectors.iter().chain(&exactly.selectors))?;
            for node in self.workload.nodes.iter().take(outcome.nodes_tried) {
                let taken = self.on_node(&node.name, &expressions, count, &in_use, &mut sum)?;
                if outcome.node.as_ref() == Some(&node.name) {
                    ensure!(taken.len() as u64 == count, "first fit is not where it was expected");
                    in_use.extend(taken);
                }
            }
        }
        Ok(sum)
    }

    fn compile(&mut self, selectors: impl Iterator<Item = &'a DeviceSelector>) -> anyhow::Result<Vec<&'a str>> {
        let mut expressions = Vec::new();
        for selector in selectors {
            let expression = selector
                .cel
                .as_ref()
                .context("a selector without expression")?
                .expression
                .as_str();
            if !self.compiled.contains_key(expression) {
                let compiled = Selector::compile(expression, Mode::Stored, Options::default())?;
                self.compiled.insert(expression, compiled);
            }
            expressions.push(expression);
        }
        Ok(expressions)
    }

    /// The matching devices until there are enough.
    fn on_node(
        &mut self,
        node: &str,
        expressions: &[&'a str],
        count: u64,
        in_use: &HashSet<DeviceId>,
        sum: &mut u64,
    ) -> anyhow::Result<Vec<DeviceId>> {
        let mut taken = Vec::new();
        let Some(slice) = self.slices.get(node).copied() else {
            return Ok(taken);
        };
        for device in slice.spec.devices() {
            if taken.len() as u64 == count {
                break;
            }
            let id = DeviceId {
                driver: slice.spec.driver.clone(),
                pool: slice.spec.pool.name.clone(),
                device: device.name.clone(),
            };
            if in_use.contains(&id) {
                continue;
            }
            let key = (id, expressions.to_vec());
            let (n_evaluated, matches) = match self.known.get(&key) {
                Some(known) => *known,
                None => {
                    let view = DeviceView::new(slice.spec.driver.as_str(), device);
                    let found = evaluate(&self.compiled, expressions, &view)?;
                    self.known.insert(key.clone(), found);
                    found
                }
            };
            *sum += n_evaluated;
            if matches {
                taken.push(key.0);
            }
        }
        Ok(taken)
    }
}

fn evaluate(compiled: &BTreeMap<&str, Selector>, expressions: &[&str], device: &DeviceView<'_>) -> anyhow::Result<(u64, bool)> {
    let mut n_evaluated = 0;
    for expression in expressions {
        n_evaluated += 1;
        if !compiled[expression].matches(device)? {
            return Ok((n_evaluated, false));
        }
    }
    Ok((n_evaluated, true))
}
