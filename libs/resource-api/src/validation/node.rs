//! Rules for nodes: metadata and taints. Nodes come from another system, which has checked everything else.

use super::common::{check_label_key, check_label_value};
use super::meta::{self, Scope};
use crate::field_path::{FieldError, FieldErrors, FieldPath};
use crate::node::{Node, NodeTaint};

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "PreferNoSchedule"];

/// Every rule that a new node breaks.
pub fn check_create(node: &Node) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_create(&node.metadata, Scope::Cluster, &mut errors);
    check_taints(&node.spec.taints, &mut errors);
    errors.into_vec()
}

/// Every rule that a changed node breaks.
pub fn check_update(new: &Node, old: &Node) -> Vec<FieldError> {
    let mut errors = FieldErrors::new();
    meta::check_update(&new.metadata, &old.metadata, &mut errors);
    check_taints(&new.spec.taints, &mut errors);
    errors.into_vec()
}

fn check_taints(taints: &[NodeTaint], errors: &mut FieldErrors) {
    let spec = FieldPath::root("spec");
    let path = spec.child("taints");
    for (at, taint) in taints.iter().enumerate() {
        let path = path.index(at);
        check_label_key(&taint.key, &path.child("key"), errors);
        check_label_value(&taint.value, &path.child("value"), errors);
        if taint.effect.is_empty() {
            errors.required(&path.child("effect"), "");
        } else if !EFFECTS.contains(&taint.effect.as_str()) {
            errors.not_supported(&path.child("effect"), &taint.effect, &EFFECTS);
        }
    }
}
