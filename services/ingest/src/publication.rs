//! A pool as it is to be: from the request and what is stored to the one mutation that replaces the pool's slices. Pure.

use std::collections::{BTreeMap, BTreeSet};

use resource_api::device::Device;
use resource_api::ids::PoolId;
use resource_api::meta::ObjectMeta;
use resource_api::object::AnyObject;
use resource_api::slice::{ResourcePool, ResourceSlice, ResourceSliceSpec};
use resource_api::validation::slice::{ADVANCED_DEVICES_MAX, DEVICES_MAX};
use resource_api::wire::Time;
use rpc::convert;
use rpc::dray::v1::PublishPoolRequest;
use rpc::dray::v1::publish_pool_request::Reach;
use sha2::{Digest, Sha256};
use store::{Mutation, Op, PoolRow, PublishedPool, Stored, Write};
use uuid::Uuid;

use crate::admission::Admission;
use crate::slices::{self, PoolAfter};
use crate::violation::{Violation, add};

/// Characters of an object name that tell people which pool it is of.
const READABLE_MAX: usize = 60;

/// A pool as its driver wants it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Publication {
    pub(crate) pool: PoolId,
    /// What all its slices have in common: driver, pool name, reach.
    base: ResourceSliceSpec,
    devices: Vec<Device>,
}

/// A pool as it is stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundPool {
    pub(crate) row: Option<PoolRow>,
    /// By object name.
    pub(crate) slices: BTreeMap<String, (Stored, ResourceSlice)>,
}

/// What publishing comes to.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) generation: i64,
    pub(crate) n_slices: usize,
    /// `None`: it is like that already.
    pub(crate) mutation: Option<Mutation>,
}

impl Publication {
    /// Reads a request. Error: what cannot be read, and devices that have one name.
    pub(crate) fn read(request: &PublishPoolRequest) -> Result<Self, Vec<Violation>> {
        let mut violations = Vec::new();
        let mut base = ResourceSliceSpec {
            driver: request.driver.as_str().into(),
            pool: ResourcePool {
                name: request.pool.as_str().into(),
                ..ResourcePool::default()
            },
            ..ResourceSliceSpec::default()
        };
        match &request.reach {
            Some(Reach::NodeName(node)) => base.node_name = Some(node.clone()),
            Some(Reach::AllNodes(all)) => base.all_nodes = Some(*all),
            Some(Reach::NodeSelector(selector)) => match convert::node_selector(selector) {
                Ok(selector) => base.node_selector = Some(selector),
                Err(e) => violations.push(Violation::invalid("node_selector", e.to_string())),
            },
            None => violations.push(Violation::required("reach")),
        }
        let mut devices = Vec::with_capacity(request.devices.len());
        for (index, device) in request.devices.iter().enumerate() {
            match convert::device(device) {
                Ok(device) => devices.push(device),
                Err(e) => add(
                    &mut violations,
                    Violation::invalid(format!("devices[{index}]"), e.to_string()),
                ),
            }
        }
        // Within a slice validation would see it; the pool's slices are made here.
        let mut names = BTreeSet::new();
        for (index, device) in request.devices.iter().enumerate() {
            let name = device.name.as_deref().unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                add(&mut violations, Violation::duplicate(format!("devices[{index}].name"), name));
            }
        }
        let pool = PoolId {
            driver: base.driver.clone(),
            pool: base.pool.name.clone(),
        };
        if violations.is_empty() {
            Ok(Self { pool, base, devices })
        } else {
            Err(violations)
        }
    }

    /// Slices as they should be, by object name, without generation.
    fn specs(&self) -> (usize, Vec<(String, ResourceSliceSpec)>) {
        // Slices with such devices may only be half as large. One rule for the whole pool keeps a device's slice foreseeable.
        let is_advanced = |device: &Device| {
            let has_list = |a: &resource_api::device::DeviceAttribute| {
                a.ints.is_some() || a.bools.is_some() || a.strings.is_some() || a.versions.is_some()
            };
            !device.taints.is_empty() || !device.consumes_counters.is_empty() || device.attributes.values().any(has_list)
        };
        let per_slice = if self.devices.iter().any(is_advanced) {
            ADVANCED_DEVICES_MAX
        } else {
            DEVICES_MAX
        };
        let prefix = name_prefix(&self.pool, self.base.node_name.as_deref());
        if self.devices.is_empty() {
            // A pool without devices is still there: its driver runs.
            return (per_slice, vec![(format!("{prefix}-0"), self.base.clone())]);
        }
        let chunks = self.devices.chunks(per_slice).enumerate();
        let specs = chunks.map(|(index, chunk)| {
            let spec = ResourceSliceSpec {
                devices: Some(chunk.to_vec()),
                ..self.base.clone()
            };
            (format!("{prefix}-{index}"), spec)
        });
        (per_slice, specs.collect())
    }
}

/// Compares with what is stored and makes the mutation. `fresh`: gives a new uid at each call.
///
/// Error: every violation, with its place in the request.
pub(crate) fn decide(
    admission: &Admission,
    wanted: &Publication,
    mut found: FoundPool,
    fresh: impl Fn() -> Uuid,
    now: Time,
) -> Result<Decision, Vec<Violation>> {
    let old_generation = found.slices.values().map(|(_, slice)| slice.spec.pool.generation).max();
    let generation = old_generation.unwrap_or(0) + 1;
    let (per_slice, specs) = wanted.specs();
    let n_slices = specs.len();
    let mut is_same = n_slices == found.slices.len();
    let mut violations = Vec::new();
    let mut puts = Vec::with_capacity(n_slices);
    let mut published = Vec::with_capacity(n_slices);
    for (index, (name, mut spec)) in specs.into_iter().enumerate() {
        spec.pool.generation = generation;
        spec.pool.resource_slice_count = i64::try_from(n_slices).unwrap_or(i64::MAX);
        let before = found.slices.remove(&name);
        if let Some((_, before)) = &before {
            keep_taint_times(&mut spec, &before.spec);
        }
        let slice: AnyObject = ResourceSlice {
            metadata: ObjectMeta::named("", &name),
            spec,
            ..ResourceSlice::default()
        }
        .into();
        let (uid, op, admitted) = match &before {
            Some((stored, before)) => {
                let op = Op::Update {
                    expected: Some(stored.sequence),
                };
                (stored.uid, op, admission.update(slice, &AnyObject::from(before.clone()), now))
            }
            None => {
                let uid = fresh();
                (uid, Op::Create, admission.create(slice, uid, now))
            }
        };
        match admitted {
            Ok(admitted) => {
                is_same &= before.is_some_and(|(_, before)| is_same_content(admitted.object(), &before.spec));
                puts.push(slices::write(&wanted.pool, &name, uid, op, admitted.body(), "published"));
                if let AnyObject::ResourceSlice(slice) = admitted.into_object() {
                    published.push(slice);
                }
            }
            Err(errors) => {
                errors
                    .iter()
                    .for_each(|e| add(&mut violations, Violation::new(field(&e.path, index * per_slice), e)));
            }
        }
    }
    if !violations.is_empty() {
        return Err(violations);
    }
    if let (true, Some(generation)) = (is_same, old_generation) {
        return Ok(Decision {
            generation,
            n_slices,
            mutation: None,
        });
    }
    // Deletions first: the last write, which the pool's row refers to, is one of a slice that is there afterwards.
    let mut writes = deletions(&wanted.pool, found.slices.values().map(|(stored, _)| stored), "republished");
    writes.extend(puts);
    let after = PoolAfter {
        n_slices,
        node: wanted.base.node_name.as_deref(),
        draws: slices::draws(
            &wanted.pool,
            found.row.as_ref(),
            &PublishedPool::of(published.iter().map(AsRef::as_ref)),
        ),
    };
    let mut mutation = slices::mutation(&wanted.pool, writes, found.row.as_ref(), after);
    mutation.gates = Some(admission.position());
    Ok(Decision {
        generation,
        n_slices,
        mutation: Some(mutation),
    })
}

/// The removal of these slices.
pub(crate) fn deletions<'s>(pool: &PoolId, gone: impl IntoIterator<Item = &'s Stored>, cause: &str) -> Vec<Write> {
    let delete = |stored: &Stored| {
        let op = Op::Delete {
            expected: Some(stored.sequence),
        };
        slices::write(pool, &stored.name, stored.uid, op, stored.body.clone(), cause)
    };
    gone.into_iter().map(delete).collect()
}

/// Object names begin with this: what people recognise, and a digest of what must never share a name. The node is part of it because a
/// slice's node cannot be changed: a pool that moves gets other slices.
fn name_prefix(pool: &PoolId, node: Option<&str>) -> String {
    let digest = Sha256::digest(format!("{}\0{}\0{}", pool.driver, pool.pool, node.unwrap_or_default()));
    let digest: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let readable: String = format!("{}-{}", pool.driver, pool.pool)
        .chars()
        .map(safe)
        .take(READABLE_MAX)
        .collect();
    let readable = readable.trim_matches('-');
    if readable.is_empty() {
        format!("pool-{digest}")
    } else {
        format!("{readable}-{digest}")
    }
}

/// A taint that stays keeps its time: publishing it again must not restart tolerations.
fn keep_taint_times(spec: &mut ResourceSliceSpec, before: &ResourceSliceSpec) {
    let before: BTreeMap<&str, &Device> = before.devices().iter().map(|device| (device.name.as_str(), device)).collect();
    for device in spec.devices.iter_mut().flatten() {
        let Some(before) = before.get(device.name.as_str()) else {
            continue;
        };
        for taint in device.taints.iter_mut().filter(|taint| taint.time_added.is_none()) {
            let same = |old: &&resource_api::taint::DeviceTaint| {
                (&old.key, &old.value, &old.effect) == (&taint.key, &taint.value, &taint.effect)
            };
            taint.time_added = before.taints.iter().find(same).and_then(|old| old.time_added);
        }
    }
}

/// Equal but for generation and count.
fn is_same_content(slice: &AnyObject, before: &ResourceSliceSpec) -> bool {
    let AnyObject::ResourceSlice(slice) = slice else {
        return false;
    };
    let pool = before.pool.clone();
    ResourceSliceSpec {
        pool,
        ..slice.spec.clone()
    } == *before
}

/// Where a slice's field is in the request. `first`: the place of the slice's first device.
fn field(path: &str, first: usize) -> String {
    let Some(path) = path.strip_prefix("spec.") else {
        return path.to_owned();
    };
    if let Some((index, rest)) = path.strip_prefix("devices[").and_then(|rest| rest.split_once(']'))
        && let Ok(index) = index.parse::<usize>()
    {
        return format!("devices[{}]{rest}", first + index);
    }
    for (in_slice, in_request) in [("pool.name", "pool"), ("nodeName", "node_name"), ("allNodes", "all_nodes")] {
        if path == in_slice {
            return in_request.to_owned();
        }
    }
    match path.strip_prefix("nodeSelector") {
        Some(rest) => format!("node_selector{rest}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests;
