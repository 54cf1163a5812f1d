//! Rules for the spec of claims: C1–C41 on create, CU1 on update. Templates share them under another path.

use std::collections::{BTreeMap, BTreeSet};

use super::common::{
    EXPRESSION_LENGTH_MAX, IMMUTABLE, check_count, check_fully_qualified_name, check_opaque, check_selectors, check_tolerations,
    check_unique, report_expression,
};
use super::meta::{self, Scope};
use super::{AdminAccess, ExpressionMode, ExpressionProblemKind, ValidationContext};
use crate::claim::{
    AllocationMode, DeviceClaim, DeviceConstraint, DeviceDerivedAttribute, DeviceRequest, DeviceSelector, DeviceSubRequest,
    ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::gates::Gate;
use crate::names;
use crate::taint::DeviceToleration;

/// API limit: `DeviceRequestsMaxSize`; also of names in constraints and configuration.
pub const REQUESTS_MAX: usize = 32;
/// API limit: `FirstAvailableDeviceRequestMaxSize`.
pub const FIRST_AVAILABLE_MAX: usize = 8;
/// API limit: `DeviceConstraintsMaxSize`.
pub const CONSTRAINTS_MAX: usize = 32;
/// API limit: `DeviceConfigMaxSize`.
pub const CONFIG_MAX: usize = 32;
/// API limit on derived attributes of a request or subrequest.
pub const DERIVED_ATTRIBUTES_MAX: usize = 32;
/// API limit: `DeviceClaimDerivedAttributeCELMaxCost`, over all derived attributes of a claim.
pub const DERIVED_ATTRIBUTES_COST_MAX: u64 = 1_000_000;

/// Every rule that a new claim breaks, except about admin access.
pub fn check_create(claim: &ResourceClaim, ctx: &ValidationContext<'_>) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&claim.metadata, Scope::Namespace, &mut errors);
    check_spec(&claim.spec, &FieldPath::root("spec"), ctx, &mut errors);
    errors.into_vec()
}

/// Every rule that a changed claim breaks. The spec must be the stored one and is not looked at again (CU1, CU2).
pub fn check_update(new: &ResourceClaim, old: &ResourceClaim) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    if new.spec != old.spec {
        errors.invalid(&FieldPath::root("spec"), (), IMMUTABLE);
    }
    errors.into_vec()
}

/// C40, C41: requests for admin access in a namespace that does not allow it. Only the first is named, at the path
/// that all API versions use, for templates too.
pub fn check_admin_access(spec: &ResourceClaimSpec, namespace: AdminAccess) -> Vec<FieldError> {
    let wants_admin = |request: &DeviceRequest| {
        request
            .exactly
            .as_ref()
            .is_some_and(|exactly| exactly.admin_access == Some(true))
    };
    let mut errors = FieldErrors::new();
    if let Some(at) = spec.devices.requests.iter().position(wants_admin) {
        let spec = FieldPath::root("spec");
        let devices = spec.child("devices");
        let requests = devices.child("requests");
        report_admin_access(namespace, &requests.index(at).child("adminAccess"), &mut errors);
    }
    errors.into_vec()
}

pub(super) fn report_admin_access(namespace: AdminAccess, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    match namespace {
        AdminAccess::Allowed => {}
        AdminAccess::Denied => {
            let detail = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the \
                          containing namespace";
            errors.forbidden(path, detail);
        }
        AdminAccess::Unknown => errors.internal(path, "could not retrieve namespace to verify admin access"),
    }
}

pub(super) fn check_spec(spec: &ResourceClaimSpec, path: &FieldPath<'_>, ctx: &ValidationContext<'_>, errors: &mut FieldErrors) {
    let claim = &spec.devices;
    let path = path.child("devices");
    let names = RequestNames::of(claim);
    check_requests(claim, &path, ctx, errors);
    let constraints = path.child("constraints");
    if check_count(claim.constraints.len(), CONSTRAINTS_MAX, &constraints, errors) {
        for (at, constraint) in claim.constraints.iter().enumerate() {
            check_constraint(constraint, &names, &constraints.index(at), ctx, errors);
        }
    }
    let config = path.child("config");
    if check_count(claim.config.len(), CONFIG_MAX, &config, errors) {
        for (at, entry) in claim.config.iter().enumerate() {
            names.check_references(&entry.requests, &config.index(at).child("requests"), errors);
            check_opaque(entry.opaque.as_ref(), true, &config.index(at), errors);
        }
    }
}

/// C1–C28.
fn check_requests(claim: &DeviceClaim, path: &FieldPath<'_>, ctx: &ValidationContext<'_>, errors: &mut FieldErrors) {
    let requests = path.child("requests");
    if !check_count(claim.requests.len(), REQUESTS_MAX, &requests, errors) {
        return;
    }
    check_unique(&claim.requests, |request| &request.name, |request| request, &requests, errors);
    let used = UsedAttributes::of(&claim.constraints);
    let mut derived_cost = 0_u64;
    for (at, request) in claim.requests.iter().enumerate() {
        derived_cost = derived_cost.saturating_add(check_request(request, &used, &requests.index(at), ctx, errors));
    }
    if derived_cost > DERIVED_ATTRIBUTES_COST_MAX {
        let detail = "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit";
        errors.forbidden(path, detail);
    }
}

/// Returns the cost of the request's derived attributes.
fn check_request(
    request: &DeviceRequest,
    used: &UsedAttributes<'_>,
    path: &FieldPath<'_>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) -> u64 {
    errors.invalid_each(&path.child("name"), &request.name, names::dns_label(&request.name));
    match (&request.exactly, request.first_available.as_slice()) {
        (None, []) => {
            errors.required(path, "exactly one of `exactly` or `firstAvailable` is required");
            0
        }
        (Some(_), [_, ..]) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(path, (), detail);
            0
        }
        (Some(exactly), []) => check_wish(
            &Wish::exactly(exactly, &request.name),
            used,
            &path.child("exactly"),
            ctx,
            errors,
        ),
        (None, alternatives) => check_alternatives(alternatives, &request.name, used, &path.child("firstAvailable"), ctx, errors),
    }
}

/// C6–C8.
fn check_alternatives(
    alternatives: &[DeviceSubRequest],
    request: &str,
    used: &UsedAttributes<'_>,
    path: &FieldPath<'_>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) -> u64 {
    if !check_count(alternatives.len(), FIRST_AVAILABLE_MAX, path, errors) {
        return 0;
    }
    check_unique(
        alternatives,
        |subrequest| &subrequest.name,
        |subrequest| subrequest,
        path,
        errors,
    );
    let mut derived_cost = 0_u64;
    for (at, subrequest) in alternatives.iter().enumerate() {
        let path = path.index(at);
        errors.invalid_each(&path.child("name"), &subrequest.name, names::dns_label(&subrequest.name));
        let cost = check_wish(&Wish::alternative(subrequest, request), used, &path, ctx, errors);
        derived_cost = derived_cost.saturating_add(cost);
    }
    derived_cost
}

/// What an exact request and an alternative have in common.
struct Wish<'a> {
    /// `request` or `request/subrequest`.
    reference: String,
    device_class_name: &'a str,
    selectors: &'a [DeviceSelector],
    allocation_mode: &'a AllocationMode,
    count: i64,
    tolerations: &'a [DeviceToleration],
    derived_attributes: &'a [DeviceDerivedAttribute],
}

impl<'a> Wish<'a> {
    fn exactly(exactly: &'a ExactDeviceRequest, request: &str) -> Self {
        Self {
            reference: request.to_owned(),
            device_class_name: &exactly.device_class_name,
            selectors: &exactly.selectors,
            allocation_mode: &exactly.allocation_mode,
            count: exactly.count,
            tolerations: &exactly.tolerations,
            derived_attributes: &exactly.derived_attributes,
        }
    }

    fn alternative(subrequest: &'a DeviceSubRequest, request: &str) -> Self {
        Self {
            reference: format!("{request}/{}", subrequest.name),
            device_class_name: &subrequest.device_class_name,
            selectors: &subrequest.selectors,
            allocation_mode: &subrequest.allocation_mode,
            count: subrequest.count,
            tolerations: &subrequest.tolerations,
            derived_attributes: &subrequest.derived_attributes,
        }
    }
}

/// C9–C27. Returns the cost of the derived attributes.
fn check_wish(
    wish: &Wish<'_>,
    used: &UsedAttributes<'_>,
    path: &FieldPath<'_>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) -> u64 {
    let class = path.child("deviceClassName");
    if wish.device_class_name.is_empty() {
        errors.required(&class, "");
    } else {
        errors.invalid_each(&class, wish.device_class_name, names::dns_subdomain(wish.device_class_name));
    }
    check_selectors(wish.selectors, ExpressionMode::New, &path.child("selectors"), ctx, errors);
    check_amount(wish, path, errors);
    check_tolerations(wish.tolerations, &path.child("tolerations"), errors);
    check_derived_attributes(wish, used, &path.child("derivedAttributes"), ctx, errors)
}

/// C11–C13.
fn check_amount(wish: &Wish<'_>, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let count = path.child("count");
    match wish.allocation_mode {
        AllocationMode::All if wish.count != 0 => {
            errors.invalid(&count, wish.count, "must not be specified when allocationMode is 'All'");
        }
        AllocationMode::ExactCount if wish.count <= 0 => errors.invalid(&count, wish.count, "must be greater than zero"),
        AllocationMode::All | AllocationMode::ExactCount => {}
        AllocationMode::Other(mode) => {
            errors.not_supported(&path.child("allocationMode"), mode, &AllocationMode::supported());
        }
    }
}

/// C23–C27. Unlike other lists, items are looked at even if there are too many.
fn check_derived_attributes(
    wish: &Wish<'_>,
    used: &UsedAttributes<'_>,
    path: &FieldPath<'_>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) -> u64 {
    check_count(wish.derived_attributes.len(), DERIVED_ATTRIBUTES_MAX, path, errors);
    check_unique(
        wish.derived_attributes,
        |attribute| &attribute.name,
        |attribute| &attribute.name,
        path,
        errors,
    );
    let mut cost = 0_u64;
    for (at, attribute) in wish.derived_attributes.iter().enumerate() {
        let path = path.index(at);
        let name = path.child("name");
        if attribute.name.is_empty() {
            errors.required(&name, "");
        } else {
            check_fully_qualified_name(&attribute.name, &name, errors);
            if !used.covers(&attribute.name, &wish.reference) {
                let detail = "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting \
                              this request";
                errors.invalid(&name, &attribute.name, detail);
            }
        }
        cost = cost.saturating_add(check_derived(&attribute.expression, &path.child("expression"), ctx, errors));
    }
    cost
}

/// C27. Returns the cost of the expression, so far as it is known.
fn check_derived(expression: &str, path: &FieldPath<'_>, ctx: &ValidationContext<'_>, errors: &mut FieldErrors) -> u64 {
    if expression.is_empty() {
        errors.required(path, "");
        return 0;
    }
    if expression.len() > EXPRESSION_LENGTH_MAX {
        errors.too_long(path, EXPRESSION_LENGTH_MAX);
        return 0;
    }
    match ctx.expressions.check_derived(expression, ExpressionMode::New) {
        Ok(cost) => cost,
        Err(problem) => {
            // An expression over the limit alone is over the limit of the claim, too.
            let too_expensive = problem.kind == ExpressionProblemKind::TooExpensive;
            report_expression(expression, problem, path, errors);
            if too_expensive { DERIVED_ATTRIBUTES_COST_MAX + 1 } else { 0 }
        }
    }
}

/// C30–C34.
fn check_constraint(
    constraint: &DeviceConstraint,
    names: &RequestNames<'_>,
    path: &FieldPath<'_>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) {
    names.check_references(&constraint.requests, &path.child("requests"), errors);
    let (matching, distinct) = (&constraint.match_attribute, &constraint.distinct_attribute);
    if let Some(name) = matching {
        check_fully_qualified_name(name, &path.child("matchAttribute"), errors);
    }
    if let Some(name) = distinct {
        check_fully_qualified_name(name, &path.child("distinctAttribute"), errors);
    }
    if matching.is_none() && distinct.is_none() {
        if ctx.gates.is_on(Gate::DRAConsumableCapacity) {
            errors.required(path, "one of `matchAttribute` or `distinctAttribute` is required");
        } else {
            errors.required(&path.child("matchAttribute"), "");
        }
    }
}

/// The names by which constraints, configuration and results may refer to requests.
pub(super) struct RequestNames<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(super) fn of(claim: &'a DeviceClaim) -> Self {
        let subrequests = |request: &'a DeviceRequest| request.first_available.iter().map(|sub| sub.name.as_str()).collect();
        Self(
            claim
                .requests
                .iter()
                .map(|request| (request.name.as_str(), subrequests(request)))
                .collect(),
        )
    }

    /// C33, C34 and C36: a list of references within its limit, each known and not repeated.
    pub(super) fn check_references(&self, references: &[String], path: &FieldPath<'_>, errors: &mut FieldErrors) {
        if !check_count(references.len(), REQUESTS_MAX, path, errors) {
            return;
        }
        for (at, reference) in references.iter().enumerate() {
            self.check_reference(reference, &path.index(at), errors);
        }
        check_unique(references, |reference| reference, |reference| reference, path, errors);
    }

    /// C34 and S21: `request` or `request/subrequest` of this claim.
    pub(super) fn check_reference(&self, reference: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let (request, subrequest) = match reference.split_once('/') {
            None => (reference, None),
            Some((request, subrequest)) => (request, Some(subrequest)),
        };
        if subrequest.is_some_and(|subrequest| subrequest.contains('/')) {
            return errors.invalid(path, reference, detail);
        }
        for part in std::iter::once(request).chain(subrequest) {
            errors.invalid_each(path, part, names::dns_label(part));
        }
        let known = self
            .0
            .get(request)
            .is_some_and(|subs| subrequest.is_none_or(|sub| subs.contains(sub)));
        if !known {
            errors.invalid(path, reference, detail);
        }
    }
}

/// Which attributes constraints use, by the reference they name; all requests have the reference `""`.
struct UsedAttributes<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> UsedAttributes<'a> {
    fn of(constraints: &'a [DeviceConstraint]) -> Self {
        let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for constraint in constraints {
            let Some(attribute) = constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref()) else {
                continue;
            };
            if constraint.requests.is_empty() {
                used.entry("").or_default().insert(attribute);
            }
            for reference in &constraint.requests {
                used.entry(reference).or_default().insert(attribute);
            }
        }
        Self(used)
    }

    /// C26: true if some constraint over the request, over its parent or over all requests uses the attribute.
    fn covers(&self, attribute: &str, reference: &str) -> bool {
        let parent = reference.split_once('/').map(|(request, _)| request);
        let uses = |reference: &str| self.0.get(reference).is_some_and(|used| used.contains(attribute));
        uses("") || uses(reference) || parent.is_some_and(uses)
    }
}
