//! Rules for node selectors (S34–S38). Source: `ValidateNodeSelector` in `k8s.io/kubernetes/pkg/apis/core/validation`.

use super::common::{check_label_key, check_label_value};
use crate::field_path::{FieldErrors, FieldPath};
use crate::names;
use crate::node::{NodeSelector, NodeSelectorOperator, NodeSelectorRequirement};

pub(super) fn check(selector: &NodeSelector, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let terms = path.child("nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        errors.required(&terms, "must have at least one node selector term");
    }
    for (at, term) in selector.node_selector_terms.iter().enumerate() {
        let path = terms.index(at);
        let expressions = path.child("matchExpressions");
        for (at, requirement) in term.match_expressions.iter().enumerate() {
            check_expression(requirement, &expressions.index(at), errors);
        }
        let fields = path.child("matchFields");
        for (at, requirement) in term.match_fields.iter().enumerate() {
            check_field(requirement, &fields.index(at), errors);
        }
    }
}

fn check_expression(requirement: &NodeSelectorRequirement, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let values = path.child("values");
    let count = requirement.values.len();
    match &requirement.operator {
        NodeSelectorOperator::In | NodeSelectorOperator::NotIn if count == 0 => {
            errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist if count > 0 => {
            errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        NodeSelectorOperator::Gt | NodeSelectorOperator::Lt if count != 1 => {
            errors.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        NodeSelectorOperator::Other(operator) => {
            errors.invalid(&path.child("operator"), operator, "not a valid selector operator");
        }
        _ => {}
    }
    check_label_key(&requirement.key, &path.child("key"), errors);
    for (at, value) in requirement.values.iter().enumerate() {
        check_label_value(value, &values.index(at), errors);
    }
}

fn check_field(requirement: &NodeSelectorRequirement, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    let values = path.child("values");
    match &requirement.operator {
        NodeSelectorOperator::In | NodeSelectorOperator::NotIn if requirement.values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&values, detail);
        }
        NodeSelectorOperator::In | NodeSelectorOperator::NotIn => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    if requirement.key == "metadata.name" {
        for (at, value) in requirement.values.iter().enumerate() {
            errors.invalid_each(&values.index(at), value, names::dns_subdomain(value));
        }
    } else {
        errors.invalid(&path.child("key"), &requirement.key, "not a valid field selector key");
    }
}
