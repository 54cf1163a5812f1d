//! Metadata that every object has, references between objects, conditions and label selectors.
//!
//! Source: `k8s.io/apimachinery/pkg/apis/meta/v1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::ids::{Sequence, Uid};
use crate::wire::{RawJson, Time, is_empty, open_enum, or_default};

/// Labels or annotations.
pub type TextMap = BTreeMap<String, String>;

/// Identity, versions and annotations of an object. API: `metadata`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub name: String,
    /// Prefix from which a create without a name gets one.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub generate_name: String,
    /// Empty for cluster kinds.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "none_if_blank", skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Sequence of the object's last event. Not part of stored bodies.
    #[serde(deserialize_with = "none_if_blank", skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Sequence>,
    /// Counts changes of the spec, for the kinds that manage it; 0 otherwise.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub labels: TextMap,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub annotations: TextMap,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// The object stays, deleted, until this is empty.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub finalizers: Vec<String>,
    /// Field ownership of server-side apply; read and written by the facade only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_fields: Option<RawJson>,
}

impl ObjectMeta {
    /// Metadata with a name, and a namespace that is empty for cluster kinds.
    pub fn named(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            ..Self::default()
        }
    }

    /// True once deletion was asked for.
    pub fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// Reads a text field for which the empty text means "not given".
fn none_if_blank<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr + Deserialize<'de>,
{
    use serde::de::IntoDeserializer;
    match Option::<String>::deserialize(from)? {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => T::deserialize(text.into_deserializer()).map(Some),
    }
}

/// An object without which this one is to be removed. The uid may be one of another system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OwnerReference {
    #[serde(deserialize_with = "or_default")]
    pub api_version: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

open_enum! {
    /// Whether a condition holds.
    ConditionStatus { True, False, Unknown }
}

/// One observed aspect of an object. Source: `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub status: ConditionStatus,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub observed_generation: i64,
    /// Required; `None` prints as `null`.
    pub last_transition_time: Option<Time>,
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    #[serde(deserialize_with = "or_default")]
    pub message: String,
}

open_enum! {
    /// How a label selector compares.
    LabelSelectorOperator { In, NotIn, Exists, DoesNotExist }
}

/// Selects objects by their labels; all parts must hold and an empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub match_labels: TextMap,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One comparison of a [`LabelSelector`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelectorRequirement {
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    #[serde(deserialize_with = "or_default")]
    pub operator: LabelSelectorOperator,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// True if `labels` satisfy every part. An unknown operator selects nothing.
    pub fn matches(&self, labels: &TextMap) -> bool {
        let equal = self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        equal && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelSelectorRequirement {
    fn matches(&self, labels: &TextMap) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            LabelSelectorOperator::In => value.is_some_and(|value| self.values.contains(value)),
            LabelSelectorOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            LabelSelectorOperator::Exists => value.is_some(),
            LabelSelectorOperator::DoesNotExist => value.is_none(),
            LabelSelectorOperator::Other(_) => false,
        }
    }
}
