//! Brings a written object into the shape in which it is validated and stored: what clients may not set comes from the
//! stored object, switched-off features are cleared, generations counted.
//!
//! Runs after defaulting and before validation. Source: the strategies in `k8s.io/kubernetes/pkg/registry/resource`.

use std::collections::BTreeSet;

use crate::claim::{DeviceRequestAllocationResult, ResourceClaim, ResourceClaimStatus};
use crate::class::DeviceClass;
use crate::dropping;
use crate::gates::FeatureGates;
use crate::ids::SharedDeviceId;
use crate::meta::ObjectMeta;
use crate::object::AnyObject;
use crate::slice::{ResourceSlice, ResourceSliceSpec};
use crate::taint::{DeviceTaintRule, DeviceTaintRuleStatus};
use crate::template::ResourceClaimTemplate;
use crate::wire::Time;

/// Two objects that should be of one kind are not, or the kind has no status of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("objects are not of one kind that can be updated so")]
pub struct KindMismatch;

/// Prepares an object for its creation. Name, uid and creation time are set by the caller.
///
/// A namespace on a cluster kind is ignored, as Kubernetes does.
pub fn for_create(object: &mut AnyObject, gates: &FeatureGates) {
    if !object.kind().is_namespaced() {
        object.metadata_mut().namespace.clear();
    }
    match object {
        AnyObject::ResourceClaim(claim) => {
            claim.status = ResourceClaimStatus::default();
            dropping::drop_from_claim_spec(&mut claim.spec, None, gates);
        }
        AnyObject::ResourceClaimTemplate(template) => {
            dropping::drop_from_claim_spec(&mut template.spec.spec, None, gates);
        }
        AnyObject::DeviceClass(class) => {
            class.metadata.generation = 1;
            dropping::drop_from_class_spec(&mut class.spec, None, gates);
        }
        AnyObject::ResourceSlice(slice) => {
            slice.metadata.generation = 1;
            dropping::drop_from_slice_spec(&mut slice.spec, None, gates);
        }
        AnyObject::DeviceTaintRule(rule) => {
            rule.metadata.generation = 1;
            rule.status = DeviceTaintRuleStatus::default();
        }
        AnyObject::ResourcePoolStatusRequest(request) => {
            request.status = None;
            dropping::drop_from_pool_status_spec(&mut request.spec, None, gates);
        }
        AnyObject::Node(_) | AnyObject::Unit(_) => {}
    }
}

/// Prepares an update of everything but the status. `now` is the time of the write.
pub fn for_update(new: &mut AnyObject, old: &AnyObject, gates: &FeatureGates, now: Time) -> Result<(), KindMismatch> {
    keep_system_metadata(new.metadata_mut(), old.metadata());
    match (new, old) {
        (AnyObject::ResourceClaim(new), AnyObject::ResourceClaim(old)) => update_claim(new, old, gates),
        (AnyObject::ResourceClaimTemplate(new), AnyObject::ResourceClaimTemplate(old)) => update_template(new, old, gates),
        (AnyObject::DeviceClass(new), AnyObject::DeviceClass(old)) => update_class(new, old, gates),
        (AnyObject::ResourceSlice(new), AnyObject::ResourceSlice(old)) => update_slice(new, old, gates),
        (AnyObject::DeviceTaintRule(new), AnyObject::DeviceTaintRule(old)) => update_taint_rule(new, old, now),
        (AnyObject::ResourcePoolStatusRequest(new), AnyObject::ResourcePoolStatusRequest(old)) => {
            new.status.clone_from(&old.status);
            dropping::drop_from_pool_status_spec(&mut new.spec, Some(&old.spec), gates);
        }
        (AnyObject::Node(_), AnyObject::Node(_)) => {}
        (AnyObject::Unit(new), AnyObject::Unit(old)) => new.status = old.status.clone(),
        _ => return Err(KindMismatch),
    }
    Ok(())
}

/// Prepares an update of the status: everything else comes from the stored object.
pub fn for_status_update(new: &mut AnyObject, old: &AnyObject, gates: &FeatureGates) -> Result<(), KindMismatch> {
    let written = new.metadata().clone();
    match (&mut *new, old) {
        (AnyObject::ResourceClaim(new), AnyObject::ResourceClaim(old)) => {
            new.spec = old.spec.clone();
            dropping::drop_from_claim_status(new, old, gates);
            forget_deallocated_devices(new, old);
        }
        (AnyObject::DeviceTaintRule(new), AnyObject::DeviceTaintRule(old)) => new.spec = old.spec.clone(),
        (AnyObject::ResourcePoolStatusRequest(new), AnyObject::ResourcePoolStatusRequest(old)) => {
            new.spec = old.spec.clone();
        }
        (AnyObject::Unit(new), AnyObject::Unit(old)) => new.spec = old.spec.clone(),
        _ => return Err(KindMismatch),
    }
    let kept = ObjectMeta {
        resource_version: written.resource_version,
        managed_fields: written.managed_fields,
        name: written.name,
        namespace: written.namespace,
        uid: written.uid.or(old.metadata().uid),
        ..old.metadata().clone()
    };
    *new.metadata_mut() = kept;
    Ok(())
}

/// What clients cannot change stays as stored. A given uid is kept, so that validation refuses a wrong one.
fn keep_system_metadata(new: &mut ObjectMeta, old: &ObjectMeta) {
    new.uid = new.uid.or(old.uid);
    new.generation = old.generation;
    new.creation_timestamp = old.creation_timestamp;
    new.deletion_timestamp = old.deletion_timestamp;
    new.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
}

/// Counts a change of the spec. What is stored comes from elsewhere, so the count may be at its end already.
fn count_generation(metadata: &mut ObjectMeta, changed: bool) {
    metadata.generation = metadata.generation.saturating_add(i64::from(changed));
}

fn update_claim(new: &mut ResourceClaim, old: &ResourceClaim, gates: &FeatureGates) {
    new.status = old.status.clone();
    dropping::drop_from_claim_spec(&mut new.spec, Some(&old.spec), gates);
}

fn update_template(new: &mut ResourceClaimTemplate, old: &ResourceClaimTemplate, gates: &FeatureGates) {
    dropping::drop_from_claim_spec(&mut new.spec.spec, Some(&old.spec.spec), gates);
}

fn update_class(new: &mut DeviceClass, old: &DeviceClass, gates: &FeatureGates) {
    dropping::drop_from_class_spec(&mut new.spec, Some(&old.spec), gates);
    count_generation(&mut new.metadata, new.spec != old.spec);
}

/// The generation counts what the driver sent, before anything is cleared.
fn update_slice(new: &mut ResourceSlice, old: &ResourceSlice, gates: &FeatureGates) {
    count_generation(&mut new.metadata, !same_slice_spec(&new.spec, &old.spec));
    dropping::drop_from_slice_spec(&mut new.spec, Some(&old.spec), gates);
}

/// Lists that are empty and lists that are absent count as equal.
fn same_slice_spec(new: &ResourceSliceSpec, old: &ResourceSliceSpec) -> bool {
    let without_lists = |spec: &ResourceSliceSpec| ResourceSliceSpec {
        devices: None,
        shared_counters: None,
        ..spec.clone()
    };
    new.devices() == old.devices() && new.shared_counters() == old.shared_counters() && without_lists(new) == without_lists(old)
}

/// A changed effect starts a new time, unless the client sets one itself.
fn update_taint_rule(new: &mut DeviceTaintRule, old: &DeviceTaintRule, now: Time) {
    new.status = old.status.clone();
    let (taint, stored) = (&mut new.spec.taint, &old.spec.taint);
    if taint.effect != stored.effect && taint.time_added == stored.time_added {
        taint.time_added = Some(now);
    }
    count_generation(&mut new.metadata, new.spec != old.spec);
}

/// Removes reports about devices that this update gives back, so that whoever deallocates need not know about them.
fn forget_deallocated_devices(new: &mut ResourceClaim, old: &ResourceClaim) {
    let kept = allocated_devices(&new.status);
    let mut given_back = allocated_devices(&old.status);
    given_back.retain(|device| !kept.contains(device));
    new.status
        .devices
        .retain(|device| !given_back.contains(&device.shared_device_id()));
}

fn allocated_devices(status: &ResourceClaimStatus) -> BTreeSet<SharedDeviceId> {
    let results = status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    results.map(DeviceRequestAllocationResult::shared_device_id).collect()
}
