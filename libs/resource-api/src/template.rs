//! ResourceClaimTemplate: what a claim that is made for each user of a workload looks like.

use serde::{Deserialize, Serialize};

use crate::claim::ResourceClaimSpec;
use crate::meta::ObjectMeta;
use crate::wire::{ResourceV1, or_default};

/// A pattern from which claims are made. Its spec is immutable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct ResourceClaimTemplate {
    pub api_version: ResourceV1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceClaimTemplateSpec,
}

/// Labels, annotations and spec of the claims to make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimTemplateSpec {
    /// Labels and annotations only.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: ResourceClaimSpec,
}
