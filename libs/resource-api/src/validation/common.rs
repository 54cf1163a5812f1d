//! Rules that several kinds share: lists and maps within limits, names with their own kinds of errors, tolerations,
//! taints, conditions, configuration and raw JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{ExpressionMode, ExpressionProblem, ExpressionProblemKind, ValidationContext};
use crate::claim::{DeviceSelector, OpaqueDeviceConfiguration};
use crate::field_path::{FieldErrors, FieldPath};
use crate::meta::{Condition, ConditionStatus};
use crate::names::{self, DOMAIN_LENGTH_MAX, ID_LENGTH_MAX, POOL_NAME_LENGTH_MAX};
use crate::slice::SkipNodeOperation;
use crate::taint::{DeviceTaint, DeviceTaintEffect, DeviceToleration, DeviceTolerationOperator};
use crate::wire::RawJson;

/// API limit: `CELSelectorExpressionMaxLength`, bytes.
pub(super) const EXPRESSION_LENGTH_MAX: usize = 10 * 1024;
/// API limits: `OpaqueParametersMaxLength`, `AllocatedDeviceStatusDataMaxLength`, bytes.
pub(super) const RAW_JSON_LENGTH_MAX: usize = 10 * 1024;
/// API limit: `DeviceSelectorsMaxSize`.
const SELECTORS_MAX: usize = 32;
/// API limits: `BindingConditionsMaxSize`, `BindingFailureConditionsMaxSize`.
const BINDING_CONDITIONS_MAX: usize = 4;
/// API limits: `AllocatedDeviceStatusMaxConditions`, `DeviceTaintRuleStatusMaxConditions`.
pub(super) const CONDITIONS_MAX: usize = 8;
const CONDITION_REASON_LENGTH_MAX: usize = 1024;
const CONDITION_MESSAGE_LENGTH_MAX: usize = 32 * 1024;

pub(super) const IMMUTABLE: &str = "field is immutable";

/// Refuses a list over its limit. `false`: its items are not to be looked at.
pub(super) fn check_count(count: usize, max: usize, path: &FieldPath<'_>, errors: &mut FieldErrors) -> bool {
    if count > max {
        errors.too_many(path, count, max);
    }
    count <= max
}

/// Refuses a text over its limit.
pub(super) fn check_length(text: &str, max: usize, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if text.len() > max {
        errors.too_long(path, max);
    }
}

/// Refuses items whose key repeats an earlier one; `value` is what the error shows.
pub(super) fn check_unique<'a, T, K: Ord, V: Serialize>(
    items: &'a [T],
    key: impl Fn(&'a T) -> K,
    value: impl Fn(&'a T) -> V,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    let mut seen = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        if !seen.insert(key(item)) {
            errors.duplicate(&path.index(at), value(item));
        }
    }
}

/// A driver name: Required, Invalid or TooLong.
pub(super) fn check_driver_name(name: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    check_length(name, DOMAIN_LENGTH_MAX, path, errors);
    errors.invalid_each(path, name, names::dns_subdomain(&name.to_ascii_lowercase()));
}

/// A pool name: Required, TooLong, and Invalid for each bad segment.
pub(super) fn check_pool_name(name: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    check_pool_segments(name, path, errors);
}

/// A pool name that may not be empty: TooLong, and Invalid for each bad segment.
pub(super) fn check_pool_segments(name: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_length(name, POOL_NAME_LENGTH_MAX, path, errors);
    // A name within its length has no more segments.
    for segment in name.split('/').take(POOL_NAME_LENGTH_MAX) {
        errors.invalid_each(path, segment, names::dns_subdomain(segment));
    }
}

/// A DNS label that must be there: Required or Invalid.
pub(super) fn check_required_label(name: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(path, "");
    } else {
        errors.invalid_each(path, name, names::dns_label(name));
    }
}

/// `id` or `domain/id`. Names with two or more slashes pass unchecked, as upstream has it.
pub(super) fn check_qualified_name(name: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => check_id(id, path, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.invalid(path, "", "the domain must not be empty");
            } else {
                check_driver_name(domain, path, errors);
            }
            if id.is_empty() {
                errors.invalid(path, "", "the name must not be empty");
            } else {
                check_id(id, path, errors);
            }
        }
        _ => {}
    }
}

/// `domain/id` with a lower-case domain.
pub(super) fn check_fully_qualified_name(name: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_qualified_name(name, path, errors);
    match name.split_once('/') {
        None => errors.invalid(
            path,
            name,
            "a fully qualified name must be a domain and a name separated by a slash",
        ),
        // Published names may have upper-case domains, names in claims may not.
        Some((domain, id)) if !id.contains('/') && names::driver_name(domain).is_empty() => {
            errors.invalid_each(path, domain, names::dns_subdomain(domain));
        }
        Some(_) => {}
    }
}

fn check_id(id: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_length(id, ID_LENGTH_MAX, path, errors);
    errors.invalid_each(path, id, names::c_identifier(id));
}

/// A label key; the empty text breaks two rules.
pub(super) fn check_label_key(key: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(path, key, names::label_key(key));
}

pub(super) fn check_label_value(value: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    errors.invalid_each(path, value, names::label_value(value));
}

/// Keys of a map, reported at the map itself.
pub(super) fn check_keys<V>(
    map: &BTreeMap<String, V>,
    path: &FieldPath<'_>,
    check: impl Fn(&str, &FieldPath<'_>, &mut FieldErrors),
    errors: &mut FieldErrors,
) {
    for key in map.keys() {
        check(key, path, errors);
    }
}

/// C14–C18 and D2: selectors within the limit, each a CEL expression that may be stored.
pub(super) fn check_selectors(
    selectors: &[DeviceSelector],
    mode: ExpressionMode,
    path: &FieldPath<'_>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) {
    if !check_count(selectors.len(), SELECTORS_MAX, path, errors) {
        return;
    }
    for (at, selector) in selectors.iter().enumerate() {
        let item = path.index(at);
        let cel = item.child("cel");
        match &selector.cel {
            None => errors.required(&cel, ""),
            // What is stored was valid when it was written; a later, stricter check must not get in the way.
            Some(_) if mode == ExpressionMode::Stored => {}
            Some(selector) => check_selector(&selector.expression, mode, &cel.child("expression"), ctx, errors),
        }
    }
}

fn check_selector(
    expression: &str,
    mode: ExpressionMode,
    path: &FieldPath<'_>,
    ctx: &ValidationContext<'_>,
    errors: &mut FieldErrors,
) {
    if expression.len() > EXPRESSION_LENGTH_MAX {
        errors.too_long(path, EXPRESSION_LENGTH_MAX);
    } else if let Err(problem) = ctx.expressions.check(expression, mode) {
        report_expression(expression, problem, path, errors);
    }
}

/// C17, C18: turns a problem with an expression into the error for its field.
pub(super) fn report_expression(expression: &str, problem: ExpressionProblem, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    match problem.kind {
        ExpressionProblemKind::Invalid => errors.invalid(path, expression, problem.detail),
        ExpressionProblemKind::TooExpensive => errors.forbidden(path, "too complex, exceeds cost limit"),
    }
}

/// C19–C22 and S25.
pub(super) fn check_tolerations(tolerations: &[DeviceToleration], path: &FieldPath<'_>, errors: &mut FieldErrors) {
    for (at, toleration) in tolerations.iter().enumerate() {
        check_toleration(toleration, &path.index(at), errors);
    }
}

fn check_toleration(toleration: &DeviceToleration, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if !toleration.key.is_empty() {
        check_label_key(&toleration.key, &path.child("key"), errors);
    }
    match &toleration.operator {
        DeviceTolerationOperator::Exists if !toleration.value.is_empty() => {
            errors.invalid(&path.child("value"), &toleration.value, "must be empty for operator `Exists`");
        }
        DeviceTolerationOperator::Exists => {}
        DeviceTolerationOperator::Equal => check_label_value(&toleration.value, &path.child("value"), errors),
        DeviceTolerationOperator::Other(operator) if operator.is_empty() => errors.required(&path.child("operator"), ""),
        DeviceTolerationOperator::Other(operator) => {
            errors.not_supported(&path.child("operator"), operator, &DeviceTolerationOperator::supported());
        }
    }
    if !toleration.effect.is_empty() {
        check_effect(&toleration.effect, &path.child("effect"), errors);
    }
}

/// L36–L38 and R1. `stored`: the taint in its place so far, whose effect is not checked again.
pub(super) fn check_taint(taint: &DeviceTaint, stored: Option<&DeviceTaint>, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    check_label_key(&taint.key, &path.child("key"), errors);
    check_label_value(&taint.value, &path.child("value"), errors);
    if stored.is_none_or(|stored| stored.effect != taint.effect) {
        check_effect(&taint.effect, &path.child("effect"), errors);
    }
}

fn check_effect(effect: &DeviceTaintEffect, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if effect.is_empty() {
        errors.required(path, "");
    } else if !effect.is_known() {
        errors.not_supported(path, effect.as_str(), &DeviceTaintEffect::supported());
    }
}

/// C37–C39, D3 and S33. `sized`: whether the size of the parameters counts.
pub(super) fn check_opaque(
    opaque: Option<&OpaqueDeviceConfiguration>,
    sized: bool,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    let path = path.child("opaque");
    let Some(opaque) = opaque else {
        return errors.required(&path, "");
    };
    check_driver_name(&opaque.driver, &path.child("driver"), errors);
    let parameters = path.child("parameters");
    match &opaque.parameters {
        None => errors.required(&parameters, ""),
        Some(json) => check_json_object(json, sized, &parameters, errors),
    }
}

/// A JSON object within its limit; only the size is looked at if that is over.
pub(super) fn check_json_object(json: &RawJson, sized: bool, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if sized && json.as_sent().len() > RAW_JSON_LENGTH_MAX {
        errors.too_long(path, RAW_JSON_LENGTH_MAX);
    } else if json.as_sent().trim_ascii() == "null" {
        errors.required(path, "");
    } else if !json.is_object() {
        errors.invalid(path, "<value omitted>", "must be a valid JSON object");
    }
}

/// S27–S29 and L46: conditions that must, or must not, be true before a pod is bound.
pub(super) fn check_binding_conditions(
    conditions: &[String],
    failures: &[String],
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    let conditions_path = path.child("bindingConditions");
    let failures_path = path.child("bindingFailureConditions");
    for (list, path) in [(conditions, &conditions_path), (failures, &failures_path)] {
        if check_count(list.len(), BINDING_CONDITIONS_MAX, path, errors) {
            for (at, condition) in list.iter().enumerate() {
                check_label_key(condition, &path.index(at), errors);
            }
            check_unique(list, |condition| condition, |condition| condition, path, errors);
        }
    }
    for (at, failure) in failures.iter().enumerate().take(BINDING_CONDITIONS_MAX) {
        if conditions.contains(failure) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(&failures_path.index(at), failure, detail);
        }
    }
    match (conditions.is_empty(), failures.is_empty()) {
        (true, false) => errors.invalid(
            &conditions_path,
            (),
            "bindingConditions are required to use bindingFailureConditions",
        ),
        (false, true) => errors.invalid(
            &failures_path,
            (),
            "bindingFailureConditions are required to use bindingConditions",
        ),
        _ => {}
    }
}

/// S30, S31 and L58. `unchanged`: the words are stored already and only have to fit together.
pub(super) fn check_skip_node_operations(
    operations: &[SkipNodeOperation],
    unchanged: bool,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    const SUPPORTED: [&str; 3] = [
        SkipNodeOperation::ALL,
        SkipNodeOperation::PREPARE,
        SkipNodeOperation::UNPREPARE,
    ];
    if !unchanged {
        for (at, operation) in operations.iter().enumerate() {
            if !SUPPORTED.contains(&operation.0.as_str()) {
                errors.not_supported(&path.index(at), &operation.0, &SUPPORTED);
            }
        }
        check_unique(operations, |operation| operation, |operation| operation, path, errors);
    }
    let skips = |wanted: &str| operations.iter().any(|operation| operation.0 == wanted);
    let undone = skips(SkipNodeOperation::UNPREPARE) || skips(SkipNodeOperation::ALL);
    if skips(SkipNodeOperation::PREPARE) && !undone {
        let detail = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped";
        errors.invalid(path, operations, detail);
    }
}

/// S11–S15, R4 and P8: conditions within their limit.
pub(super) fn check_conditions(conditions: &[Condition], max: usize, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if !check_count(conditions.len(), max, path, errors) {
        return;
    }
    check_unique(
        conditions,
        |condition| &condition.kind,
        |condition| &condition.kind,
        path,
        errors,
    );
    for (at, condition) in conditions.iter().enumerate() {
        check_condition(condition, &path.index(at), errors);
    }
}

fn check_condition(condition: &Condition, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if condition.kind.is_empty() {
        errors.required(&path.child("type"), "is required");
    } else {
        check_label_key(&condition.kind, &path.child("type"), errors);
    }
    if condition.status.is_empty() {
        errors.required(&path.child("status"), "");
    } else if !condition.status.is_known() {
        errors.not_supported(
            &path.child("status"),
            condition.status.as_str(),
            &ConditionStatus::supported(),
        );
    }
    if condition.observed_generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.child("observedGeneration"), condition.observed_generation, detail);
    }
    if condition.last_transition_time.is_none() {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    let reason = path.child("reason");
    if condition.reason.is_empty() {
        errors.required(&reason, "");
    } else {
        errors.invalid_each(&reason, &condition.reason, names::condition_reason(&condition.reason));
        check_length(&condition.reason, CONDITION_REASON_LENGTH_MAX, &reason, errors);
    }
    check_length(
        &condition.message,
        CONDITION_MESSAGE_LENGTH_MAX,
        &path.child("message"),
        errors,
    );
}
