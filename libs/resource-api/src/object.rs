//! Ties each type to the kind it is: plural, apiVersion, kind, scope; and decodes bodies whose kind is known only
//! from the body. Bodies of older API versions are converted before they come here.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::claim::ResourceClaim;
use crate::class::DeviceClass;
use crate::extent::{self, ExtentError};
use crate::meta::ObjectMeta;
use crate::node::Node;
use crate::objects_only::ObjectsOnly;
use crate::pool_status::ResourcePoolStatusRequest;
use crate::slice::ResourceSlice;
use crate::taint::DeviceTaintRule;
use crate::template::ResourceClaimTemplate;
use crate::unit::Unit;
use crate::wire::{CoreV1, DrayV1, ResourceV1, ResourceV1Alpha3};

/// A kind of object that Dray keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    DeviceTaintRule,
    ResourcePoolStatusRequest,
    Node,
    Unit,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::DeviceClass,
        Self::ResourceClaim,
        Self::ResourceClaimTemplate,
        Self::ResourceSlice,
        Self::DeviceTaintRule,
        Self::ResourcePoolStatusRequest,
        Self::Node,
        Self::Unit,
    ];

    /// The word in the `kind` field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeviceClass => "DeviceClass",
            Self::ResourceClaim => "ResourceClaim",
            Self::ResourceClaimTemplate => "ResourceClaimTemplate",
            Self::ResourceSlice => "ResourceSlice",
            Self::DeviceTaintRule => "DeviceTaintRule",
            Self::ResourcePoolStatusRequest => "ResourcePoolStatusRequest",
            Self::Node => "Node",
            Self::Unit => "Unit",
        }
    }

    /// The name in paths, the store and event subjects.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::DeviceClass => "deviceclasses",
            Self::ResourceClaim => "resourceclaims",
            Self::ResourceClaimTemplate => "resourceclaimtemplates",
            Self::ResourceSlice => "resourceslices",
            Self::DeviceTaintRule => "devicetaintrules",
            Self::ResourcePoolStatusRequest => "resourcepoolstatusrequests",
            Self::Node => "nodes",
            Self::Unit => "units",
        }
    }

    /// The text of the `apiVersion` field.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::DeviceClass
            | Self::ResourceClaim
            | Self::ResourceClaimTemplate
            | Self::ResourceSlice
            | Self::DeviceTaintRule => ResourceV1::TEXT,
            Self::ResourcePoolStatusRequest => ResourceV1Alpha3::TEXT,
            Self::Node => CoreV1::TEXT,
            Self::Unit => DrayV1::TEXT,
        }
    }

    /// True if objects of the kind live in a namespace.
    pub const fn is_namespaced(self) -> bool {
        matches!(self, Self::ResourceClaim | Self::ResourceClaimTemplate | Self::Unit)
    }

    /// The kind with this plural.
    pub fn from_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == plural)
    }

    /// The kind with this type, in the version that Dray keeps.
    pub fn from_type(api_version: &str, name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.api_version() == api_version && kind.name() == name)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A type that is one [`Kind`]. Serialized, it carries its `kind` and `apiVersion`.
pub trait Object: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Which kind the type is.
    const KIND: Kind;
    fn metadata(&self) -> &ObjectMeta;
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
}

/// A body that is not an object of the wanted kind.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("body is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("body is too large on the inside")]
    Extent(#[source] ExtentError),
    #[error("body has no apiVersion and kind")]
    NoType,
    #[error("no kind {kind:?} in {api_version:?} is known")]
    UnknownType { api_version: String, kind: String },
    #[error("body is a {found}, wanted a {expected}")]
    OtherType { expected: Kind, found: Kind },
    #[error("body is not a well-formed {kind}")]
    BadShape {
        kind: Kind,
        #[source]
        source: serde_json::Error,
    },
}

macro_rules! objects {
    ($($kind:ident),+ $(,)?) => {
        $(impl Object for $kind {
            const KIND: Kind = Kind::$kind;
            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        })+

        /// An object of any kind.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyObject {
            $($kind(Box<$kind>)),+
        }

        impl AnyObject {
            /// The object's kind.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),+ }
            }
            /// The object's metadata.
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata),+ }
            }
            /// The object's metadata, to change.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$kind(object) => &mut object.metadata),+ }
            }
            /// Decodes a body as the given kind, whatever type it says it has.
            pub fn decode_as(kind: Kind, body: &[u8]) -> Result<Self, DecodeError> {
                match kind { $(Kind::$kind => shape(kind, body).map(|object| Self::$kind(Box::new(object)))),+ }
            }
        }

        impl Serialize for AnyObject {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$kind(object) => object.serialize(to)),+ }
            }
        }

        $(impl From<$kind> for AnyObject {
            fn from(object: $kind) -> Self {
                Self::$kind(Box::new(object))
            }
        })+
    };
}
objects!(
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    DeviceTaintRule,
    ResourcePoolStatusRequest,
    Node,
    Unit
);

impl AnyObject {
    /// Decodes a body by its own `apiVersion` and `kind`.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_as(kind_of(body)?, body)
    }
}

/// Decodes a body that must say it is a `T`.
pub fn decode<T: Object>(body: &[u8]) -> Result<T, DecodeError> {
    let found = kind_of(body)?;
    if found == T::KIND {
        shape(found, body)
    } else {
        Err(DecodeError::OtherType {
            expected: T::KIND,
            found,
        })
    }
}

/// The kind that a body says it is.
pub fn kind_of(body: &[u8]) -> Result<Kind, DecodeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        api_version: Option<String>,
        kind: Option<String>,
    }
    let head: Head = serde_json::from_slice(body).map_err(DecodeError::NotJson)?;
    match (head.api_version, head.kind) {
        (Some(api_version), Some(kind)) => {
            Kind::from_type(&api_version, &kind).ok_or(DecodeError::UnknownType { api_version, kind })
        }
        _ => Err(DecodeError::NoType),
    }
}

/// Decodes one value in the shape of a `T`, refusing arrays in place of objects, anything after the value, and bodies that
/// are too deep or too rich, see [`crate::extent`].
pub(crate) fn shape<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, DecodeError> {
    let bad_shape = |source| DecodeError::BadShape { kind, source };
    extent::check(body).map_err(DecodeError::Extent)?;
    let mut from = serde_json::Deserializer::from_slice(body);
    let object = T::deserialize(ObjectsOnly(&mut from)).map_err(bad_shape)?;
    from.end().map_err(bad_shape)?;
    Ok(object)
}
