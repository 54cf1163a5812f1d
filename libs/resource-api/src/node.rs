//! Nodes, as far as Dray looks at them, and selecting them.
//!
//! Source of the selector's meaning: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.

use serde::{Deserialize, Serialize};

use crate::meta::{ObjectMeta, TextMap};
use crate::wire::{CoreV1, Time, is_empty, null_if_empty, open_enum, or_default};

/// A node of the cluster. Everything Dray does not look at is dropped when it is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct Node {
    pub api_version: CoreV1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

impl Node {
    /// What selectors see of the node.
    pub fn view(&self) -> NodeView<'_> {
        NodeView {
            name: &self.metadata.name,
            labels: &self.metadata.labels,
        }
    }
}

/// What keeps pods off a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSpec {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub unschedulable: bool,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub taints: Vec<NodeTaint>,
}

/// What the node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    /// Names of node features; some devices need one.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub declared_features: Vec<String>,
}

/// A taint on a node (`v1.Taint`, not a device taint).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeTaint {
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub value: String,
    #[serde(deserialize_with = "or_default")]
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}

/// Terms of which one must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    /// Printed as `null` when empty.
    #[serde(deserialize_with = "or_default", serialize_with = "null_if_empty")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that must all hold. Without any, the term matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// About labels.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// About `metadata.name`, the only field.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

open_enum! {
    /// How a node selector compares.
    NodeSelectorOperator { In, NotIn, Exists, DoesNotExist, Gt, Lt }
}

/// One comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    #[serde(deserialize_with = "or_default")]
    pub operator: NodeSelectorOperator,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub values: Vec<String>,
}

/// What a selector looks at.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    pub name: &'a str,
    pub labels: &'a TextMap,
}

/// A selector that cannot be evaluated on any node, whatever API validation said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeSelectorError {
    #[error("unknown node selector operator {operator:?} for key {key:?}")]
    UnknownOperator { key: String, operator: String },
    #[error("node selector operator {operator} for key {key:?} does not go with values {values:?}")]
    BadValues {
        key: String,
        operator: String,
        values: Vec<String>,
    },
    #[error("node selector field {key:?} is not metadata.name")]
    UnknownField { key: String },
}

impl NodeSelector {
    /// A selector for one node by its name, as allocations carry it.
    pub fn for_node(name: impl Into<String>) -> Self {
        let by_name = NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: NodeSelectorOperator::In,
            values: vec![name.into()],
        };
        Self {
            node_selector_terms: vec![NodeSelectorTerm {
                match_fields: vec![by_name],
                ..Default::default()
            }],
        }
    }
}

/// True if one term of `selector` matches `node`.
///
/// A selector without terms and a term without requirements match nothing. Error: some requirement can be evaluated on
/// no node (for example `Gt` with a word); every term is looked at, so the answer does not depend on the node.
pub fn matches(selector: &NodeSelector, node: NodeView<'_>) -> Result<bool, NodeSelectorError> {
    let mut any = false;
    for term in &selector.node_selector_terms {
        any |= term_matches(term, node)?;
    }
    Ok(any)
}

fn term_matches(term: &NodeSelectorTerm, node: NodeView<'_>) -> Result<bool, NodeSelectorError> {
    let mut all = !(term.match_expressions.is_empty() && term.match_fields.is_empty());
    for requirement in &term.match_expressions {
        all &= label_matches(requirement, node.labels.get(&requirement.key).map(String::as_str))?;
    }
    for requirement in &term.match_fields {
        all &= field_matches(requirement, node)?;
    }
    Ok(all)
}

fn label_matches(requirement: &NodeSelectorRequirement, label: Option<&str>) -> Result<bool, NodeSelectorError> {
    let values = &requirement.values;
    let among = |label: &str| values.iter().any(|value| value == label);
    match &requirement.operator {
        NodeSelectorOperator::In if !values.is_empty() => Ok(label.is_some_and(among)),
        NodeSelectorOperator::NotIn if !values.is_empty() => Ok(!label.is_some_and(among)),
        NodeSelectorOperator::Exists if values.is_empty() => Ok(label.is_some()),
        NodeSelectorOperator::DoesNotExist if values.is_empty() => Ok(label.is_none()),
        NodeSelectorOperator::Gt => compare(requirement, label).map(|order| order == Some(std::cmp::Ordering::Greater)),
        NodeSelectorOperator::Lt => compare(requirement, label).map(|order| order == Some(std::cmp::Ordering::Less)),
        NodeSelectorOperator::Other(operator) => Err(NodeSelectorError::UnknownOperator {
            key: requirement.key.clone(),
            operator: operator.to_string(),
        }),
        NodeSelectorOperator::In
        | NodeSelectorOperator::NotIn
        | NodeSelectorOperator::Exists
        | NodeSelectorOperator::DoesNotExist => Err(bad_values(requirement)),
    }
}

/// The label against the only value, as integers. `None`: the label is absent or not an integer.
fn compare(requirement: &NodeSelectorRequirement, label: Option<&str>) -> Result<Option<std::cmp::Ordering>, NodeSelectorError> {
    let bound = match requirement.values.as_slice() {
        [value] => value.parse::<i64>().map_err(|_| bad_values(requirement))?,
        _ => return Err(bad_values(requirement)),
    };
    Ok(label
        .and_then(|label| label.parse::<i64>().ok())
        .map(|label| label.cmp(&bound)))
}

fn field_matches(requirement: &NodeSelectorRequirement, node: NodeView<'_>) -> Result<bool, NodeSelectorError> {
    if requirement.key != "metadata.name" {
        return Err(NodeSelectorError::UnknownField {
            key: requirement.key.clone(),
        });
    }
    let [name] = requirement.values.as_slice() else {
        return Err(bad_values(requirement));
    };
    match &requirement.operator {
        NodeSelectorOperator::In => Ok(name == node.name),
        NodeSelectorOperator::NotIn => Ok(name != node.name),
        _ => Err(bad_values(requirement)),
    }
}

fn bad_values(requirement: &NodeSelectorRequirement) -> NodeSelectorError {
    NodeSelectorError::BadValues {
        key: requirement.key.clone(),
        operator: requirement.operator.to_string(),
        values: requirement.values.clone(),
    }
}
