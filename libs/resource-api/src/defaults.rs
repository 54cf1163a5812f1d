//! Fills in what the API says an absent field means. Runs after decoding and before validation, also on objects that
//! are read from the store, so old objects gain new defaults.
//!
//! Source: `k8s.io/kubernetes/pkg/apis/resource/v1/defaults.go`.

use crate::claim::{AllocationMode, ResourceClaim, ResourceClaimSpec};
use crate::object::AnyObject;
use crate::pool_status::{LIMIT_DEFAULT, ResourcePoolStatusRequest};
use crate::slice::ResourceSlice;
use crate::taint::{DeviceTaint, DeviceTaintRule, DeviceToleration, DeviceTolerationOperator};
use crate::template::ResourceClaimTemplate;
use crate::version::ApiVersion;
use crate::wire::Time;

/// Applies the defaults of the object's kind. `now` is the time of the write.
pub fn apply(object: &mut AnyObject, now: Time) {
    apply_in(ApiVersion::V1, object, now);
}

/// Applies the defaults of the object's kind to what was written in a version. `now` is the time of the write.
///
/// The versions differ in one point: in v1beta1 a request without class gets no allocation mode and no count, so that it is
/// refused for both. Source: `SetDefaults_DeviceRequest` of v1beta1.
pub fn apply_in(version: ApiVersion, object: &mut AnyObject, now: Time) {
    match object {
        AnyObject::ResourceClaim(claim) => {
            apply_to_requests(&mut claim.spec, version);
            apply_to_results(claim);
        }
        AnyObject::ResourceClaimTemplate(template) => apply_to_requests(&mut template.spec.spec, version),
        AnyObject::ResourceSlice(slice) => apply_to_slice(slice, now),
        AnyObject::DeviceTaintRule(rule) => apply_to_taint_rule(rule, now),
        AnyObject::ResourcePoolStatusRequest(request) => apply_to_pool_status_request(request),
        AnyObject::DeviceClass(_) | AnyObject::Node(_) | AnyObject::Unit(_) => {}
    }
}

/// Defaults of requests and of the tolerations in an allocation.
pub fn apply_to_claim(claim: &mut ResourceClaim) {
    apply_to_claim_spec(&mut claim.spec);
    apply_to_results(claim);
}

fn apply_to_results(claim: &mut ResourceClaim) {
    let allocation = claim.status.allocation.iter_mut();
    for result in allocation.flat_map(|allocation| &mut allocation.devices.results) {
        apply_to_tolerations(&mut result.tolerations);
    }
}

/// Defaults of the claims that the template makes.
pub fn apply_to_template(template: &mut ResourceClaimTemplate) {
    apply_to_claim_spec(&mut template.spec.spec);
}

/// Taints without a time start now.
pub fn apply_to_slice(slice: &mut ResourceSlice, now: Time) {
    for device in slice.spec.devices.iter_mut().flatten() {
        device.taints.iter_mut().for_each(|taint| apply_to_taint(taint, now));
    }
}

/// A taint without a time starts now.
pub fn apply_to_taint_rule(rule: &mut DeviceTaintRule, now: Time) {
    apply_to_taint(&mut rule.spec.taint, now);
}

/// A hundred pools are enough, unless the request says otherwise.
pub fn apply_to_pool_status_request(request: &mut ResourcePoolStatusRequest) {
    request.spec.limit.get_or_insert(LIMIT_DEFAULT);
}

/// One device of the class, unless the request says otherwise.
pub fn apply_to_claim_spec(spec: &mut ResourceClaimSpec) {
    apply_to_requests(spec, ApiVersion::V1);
}

fn apply_to_requests(spec: &mut ResourceClaimSpec, version: ApiVersion) {
    for request in &mut spec.devices.requests {
        if let Some(exactly) = &mut request.exactly {
            if version != ApiVersion::V1Beta1 || !exactly.device_class_name.is_empty() {
                apply_to_count(&mut exactly.allocation_mode, &mut exactly.count);
            }
            apply_to_tolerations(&mut exactly.tolerations);
        }
        for subrequest in &mut request.first_available {
            apply_to_count(&mut subrequest.allocation_mode, &mut subrequest.count);
            apply_to_tolerations(&mut subrequest.tolerations);
        }
    }
}

fn apply_to_count(mode: &mut AllocationMode, count: &mut i64) {
    if mode.is_empty() {
        *mode = AllocationMode::ExactCount;
    }
    if *mode == AllocationMode::ExactCount && *count == 0 {
        *count = 1;
    }
}

fn apply_to_tolerations(tolerations: &mut [DeviceToleration]) {
    for toleration in tolerations.iter_mut().filter(|toleration| toleration.operator.is_empty()) {
        toleration.operator = DeviceTolerationOperator::Equal;
    }
}

fn apply_to_taint(taint: &mut DeviceTaint, now: Time) {
    taint.time_added.get_or_insert(now);
}
