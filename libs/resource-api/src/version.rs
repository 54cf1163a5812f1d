//! The versions of `resource.k8s.io` in which clients may read and write. Everything inside of Dray is v1 (what v1 does not
//! have is in the version that has it); bodies are converted where they enter and leave.
//!
//! v1beta2, and v1alpha3 as of Kubernetes 1.36, differ from v1 by their name only. v1beta1 has shapes of its own, see
//! [`v1beta1`]. Valid objects survive the way to any version and back.

pub mod v1beta1;

use serde::{Deserialize, Serialize};

use crate::field_path::FieldError;
use crate::object::{AnyObject, DecodeError, Kind, shape};

/// A version of the API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiVersion {
    V1,
    V1Beta2,
    V1Beta1,
    /// Only of device taint rules and pool status requests.
    V1Alpha3,
}

impl ApiVersion {
    /// Every version, the preferred one first.
    pub const ALL: [Self; 4] = [Self::V1, Self::V1Beta2, Self::V1Beta1, Self::V1Alpha3];

    /// The version in paths, such as `v1beta1`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta2 => "v1beta2",
            Self::V1Beta1 => "v1beta1",
            Self::V1Alpha3 => "v1alpha3",
        }
    }

    /// The text of the `apiVersion` field.
    pub const fn text(self) -> &'static str {
        match self {
            Self::V1 => "resource.k8s.io/v1",
            Self::V1Beta2 => "resource.k8s.io/v1beta2",
            Self::V1Beta1 => "resource.k8s.io/v1beta1",
            Self::V1Alpha3 => "resource.k8s.io/v1alpha3",
        }
    }

    /// The version with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// True if objects of the kind can be read and written in this version.
    pub const fn serves(self, kind: Kind) -> bool {
        match kind {
            Kind::DeviceClass | Kind::ResourceClaim | Kind::ResourceClaimTemplate | Kind::ResourceSlice => {
                !matches!(self, Self::V1Alpha3)
            }
            Kind::DeviceTaintRule => !matches!(self, Self::V1Beta1),
            Kind::ResourcePoolStatusRequest => matches!(self, Self::V1Alpha3),
            Kind::Node | Kind::Unit => false,
        }
    }

    /// True if an update in this version must say which resource version it changes. Otherwise it may leave that out and
    /// changes whatever is stored. Source: `AllowUnconditionalUpdate` of the strategies.
    pub const fn needs_resource_version(self, kind: Kind) -> bool {
        matches!(
            (kind, self),
            (Kind::DeviceTaintRule, Self::V1) | (Kind::ResourcePoolStatusRequest, _)
        )
    }
}

/// Turns errors about an object in its v1 shape into errors about what was written in a version: the paths are those of
/// that version, consistently.
///
/// Upstream mixes: on v1beta1 some of its rules report paths of v1beta1 and others those of v1.
pub fn located(version: ApiVersion, kind: Kind, mut errors: Vec<FieldError>) -> Vec<FieldError> {
    if version == ApiVersion::V1Beta1 {
        for error in &mut errors {
            error.path = v1beta1::path(kind, &error.path).into_owned();
        }
    }
    errors
}

/// An object that cannot be written out in a version.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("{kind} is not served in {}", version.text())]
    NotServed { kind: Kind, version: ApiVersion },
    #[error("{kind} cannot be written as JSON")]
    Json {
        kind: Kind,
        #[source]
        source: serde_json::Error,
    },
}

/// Decodes a body of a known kind and version. A body that names no type is taken for what is wanted.
pub fn decode(version: ApiVersion, kind: Kind, body: &[u8]) -> Result<AnyObject, DecodeError> {
    check_type(version, kind, body)?;
    match (version, kind) {
        (ApiVersion::V1Beta1, Kind::ResourceClaim) => {
            let claim: v1beta1::ResourceClaim = shape(kind, body)?;
            Ok(crate::claim::ResourceClaim::from(claim).into())
        }
        (ApiVersion::V1Beta1, Kind::ResourceClaimTemplate) => {
            let template: v1beta1::ResourceClaimTemplate = shape(kind, body)?;
            Ok(crate::template::ResourceClaimTemplate::from(template).into())
        }
        (ApiVersion::V1Beta1, Kind::ResourceSlice) => {
            let slice: v1beta1::ResourceSlice = shape(kind, body)?;
            Ok(crate::slice::ResourceSlice::from(slice).into())
        }
        _ => AnyObject::decode_as(kind, body),
    }
}

/// Writes an object out in a version.
pub fn encode(version: ApiVersion, object: &AnyObject) -> Result<String, EncodeError> {
    let kind = object.kind();
    if !version.serves(kind) {
        return Err(EncodeError::NotServed { kind, version });
    }
    let json = match (version, object) {
        (ApiVersion::V1Beta1, AnyObject::ResourceClaim(claim)) => serde_json::to_string(&v1beta1::ResourceClaim::from(&**claim)),
        (ApiVersion::V1Beta1, AnyObject::ResourceClaimTemplate(template)) => {
            serde_json::to_string(&v1beta1::ResourceClaimTemplate::from(&**template))
        }
        (ApiVersion::V1Beta1, AnyObject::ResourceSlice(slice)) => serde_json::to_string(&v1beta1::ResourceSlice::from(&**slice)),
        _ => return renamed(version, object),
    };
    json.map_err(|source| EncodeError::Json { kind, source })
}

/// Writes an object out that differs from the one that is kept by the name of the version only: that is always the second
/// field.
fn renamed(version: ApiVersion, object: &AnyObject) -> Result<String, EncodeError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        kind: &'static str,
        api_version: &'static str,
    }
    let kind = object.kind();
    let json = |value: Result<String, serde_json::Error>| value.map_err(|source| EncodeError::Json { kind, source });
    let head = |api_version: &'static str| Head {
        kind: kind.name(),
        api_version,
    };
    let text = json(serde_json::to_string(object))?;
    let stored = json(serde_json::to_string(&head(kind.api_version())))?;
    let wanted = json(serde_json::to_string(&head(version.text())))?;
    Ok(text.replacen(stored.trim_end_matches('}'), wanted.trim_end_matches('}'), 1))
}

fn check_type(version: ApiVersion, kind: Kind, body: &[u8]) -> Result<(), DecodeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        api_version: Option<String>,
        kind: Option<String>,
    }
    let head: Head = serde_json::from_slice(body).map_err(DecodeError::NotJson)?;
    let api_version = head
        .api_version
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| version.text().to_owned());
    let name = head
        .kind
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| kind.name().to_owned());
    if version.serves(kind) && api_version == version.text() && name == kind.name() {
        Ok(())
    } else {
        Err(DecodeError::UnknownType { api_version, kind: name })
    }
}
