//! The rules of the API for objects that are written. Every rule is checked and every violation reported, except that
//! a list over its limit reports only that. The ids in comments (C1, S2, L3, …) number the rules by kind.
//!
//! Objects come here decoded, defaulted ([`crate::defaults`]) and prepared ([`crate::prepare`]). What needs more than
//! the object, such as labels of its namespace, comes in as an argument.
//!
//! Source: `k8s.io/kubernetes/pkg/apis/resource/validation` of v1.37.

pub mod claim;
pub mod class;
pub mod node;
pub mod pool_status;
pub mod slice;
pub mod status;
pub mod taint_rule;
pub mod template;
pub mod unit;

mod capacity;
mod common;
mod meta;
mod node_selector;

use crate::field_path::FieldError;
use crate::gates::FeatureGates;
use crate::object::AnyObject;
use crate::version::ApiVersion;

/// What validation needs besides the objects.
#[derive(Clone, Copy)]
pub struct ValidationContext<'a> {
    /// Understands CEL expressions.
    pub expressions: &'a dyn ExpressionChecker,
    pub gates: &'a FeatureGates,
}

/// Says whether a CEL expression may be stored.
pub trait ExpressionChecker {
    /// Checks a device selector: must yield a bool within the cost limit.
    fn check(&self, expression: &str, mode: ExpressionMode) -> Result<(), ExpressionProblem>;

    /// Checks the expression of a derived attribute: must yield an attribute value within the cost limit. Returns its
    /// estimated cost, which counts towards the limit of the whole claim.
    fn check_derived(&self, expression: &str, mode: ExpressionMode) -> Result<u64, ExpressionProblem>;
}

/// Which language an expression is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionMode {
    /// An expression that is written now: the language as the feature gates have it.
    New,
    /// An expression that was accepted before: everything this release understands.
    Stored,
}

/// Why an expression may not be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionProblem {
    pub kind: ExpressionProblemKind,
    /// For the author of the expression.
    pub detail: String,
}

/// How bad an expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionProblemKind {
    /// Does not parse, does not type-check or yields the wrong type.
    Invalid,
    /// Its estimated cost is over the limit.
    TooExpensive,
}

/// Whether a namespace allows access to devices in use: its label `resource.kubernetes.io/admin-access: "true"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAccess {
    Allowed,
    Denied,
    /// The namespace could not be read.
    Unknown,
}

/// Every rule that a new object breaks, except those about admin access.
pub fn check_create(object: &AnyObject, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    match object {
        AnyObject::DeviceClass(class) => class::check_create(class, ctx),
        AnyObject::ResourceClaim(claim) => claim::check_create(claim, ctx),
        AnyObject::ResourceClaimTemplate(template) => template::check_create(template, ctx),
        AnyObject::ResourceSlice(slice) => slice::check_create(slice, ctx),
        AnyObject::DeviceTaintRule(rule) => taint_rule::check_create(rule),
        AnyObject::ResourcePoolStatusRequest(request) => pool_status::check_create(request, ctx),
        AnyObject::Node(node) => node::check_create(node),
        AnyObject::Unit(unit) => unit::check_create(unit),
    }
}

/// Every rule that an update in a version breaks. `None`: the two are not of one kind.
///
/// The versions differ in one point: whether an update may leave the resource version out (M4).
pub fn check_update_in(
    version: ApiVersion,
    new: &AnyObject,
    old: &AnyObject,
    ctx: &ValidationContext<'_>,
) -> Option<Vec<FieldError>> {
    match (new, old) {
        (AnyObject::DeviceTaintRule(new), AnyObject::DeviceTaintRule(old)) => {
            Some(taint_rule::check_update_in(version, new, old))
        }
        _ => check_update(new, old, ctx),
    }
}

/// Every rule that an update in v1 breaks. `None`: the two are not of one kind.
pub fn check_update(new: &AnyObject, old: &AnyObject, ctx: &ValidationContext<'_>) -> Option<Vec<FieldError>> {
    Some(match (new, old) {
        (AnyObject::DeviceClass(new), AnyObject::DeviceClass(old)) => class::check_update(new, old, ctx),
        (AnyObject::ResourceClaim(new), AnyObject::ResourceClaim(old)) => claim::check_update(new, old),
        (AnyObject::ResourceClaimTemplate(new), AnyObject::ResourceClaimTemplate(old)) => template::check_update(new, old, ctx),
        (AnyObject::ResourceSlice(new), AnyObject::ResourceSlice(old)) => slice::check_update(new, old, ctx),
        (AnyObject::DeviceTaintRule(new), AnyObject::DeviceTaintRule(old)) => taint_rule::check_update(new, old),
        (AnyObject::ResourcePoolStatusRequest(new), AnyObject::ResourcePoolStatusRequest(old)) => {
            pool_status::check_update(new, old)
        }
        (AnyObject::Node(new), AnyObject::Node(old)) => node::check_update(new, old),
        (AnyObject::Unit(new), AnyObject::Unit(old)) => unit::check_update(new, old),
        _ => return None,
    })
}

/// Every rule that an update of the status in a version breaks; else as [`check_status_update`].
pub fn check_status_update_in(version: ApiVersion, new: &AnyObject, old: &AnyObject) -> Option<Vec<FieldError>> {
    match (new, old) {
        (AnyObject::DeviceTaintRule(new), AnyObject::DeviceTaintRule(old)) => {
            Some(taint_rule::check_status_update_in(version, new, old))
        }
        _ => check_status_update(new, old),
    }
}

/// Every rule that an update of the status in v1 breaks, except those about admin access and authorization. `None`: the two
/// are not of one kind, or the kind has no status of its own.
pub fn check_status_update(new: &AnyObject, old: &AnyObject) -> Option<Vec<FieldError>> {
    match (new, old) {
        (AnyObject::ResourceClaim(new), AnyObject::ResourceClaim(old)) => Some(status::check_update(new, old)),
        (AnyObject::DeviceTaintRule(new), AnyObject::DeviceTaintRule(old)) => Some(taint_rule::check_status_update(new, old)),
        (AnyObject::ResourcePoolStatusRequest(new), AnyObject::ResourcePoolStatusRequest(old)) => {
            Some(pool_status::check_status_update(new, old))
        }
        (AnyObject::Unit(new), AnyObject::Unit(old)) => Some(unit::check_status_update(new, old)),
        _ => None,
    }
}
