//! Between objects as requests have them (JSON of some version) and as they are stored (JSON of one).
//!
//! Kinds that Dray decides about have types of their own: they are kept in v1 and converted. All others are kept as they come.

use apiserver::resources::ResourceType;
use apiserver::status::Status;
use resource_api::object::{AnyObject, Kind};
use resource_api::version::{self, ApiVersion};
use serde_json::Value;

use super::object::Entry;

/// The kind under which objects of a resource are stored: its plural, for custom resources with their group.
pub(crate) fn stored_kind(resource: &ResourceType) -> String {
    if resource.is_custom {
        format!("{}.{}", resource.plural, resource.group)
    } else {
        resource.plural.clone()
    }
}

/// The type that Dray has for a resource, and the version that the resource is in. Nodes are more than what Dray reads of them, so they
/// are kept as they come.
pub(crate) fn typed(resource: &ResourceType) -> Option<(Kind, ApiVersion)> {
    if resource.group != "resource.k8s.io" {
        return None;
    }
    Some((
        Kind::from_plural(&resource.plural)?,
        ApiVersion::from_name(&resource.version)?,
    ))
}

/// A stored state as an object of the resource's version.
pub(crate) fn shown(resource: &ResourceType, entry: &Entry) -> Result<Value, Status> {
    let unreadable = |error: &dyn std::fmt::Display| {
        tracing::error!(kind = %resource.plural, name = %entry.name, %error, "a stored object cannot be read");
        Status::internal(format!("stored {} {:?} cannot be read", resource.kind, entry.name))
    };
    let mut value = match typed(resource) {
        Some((kind, version)) if version != ApiVersion::V1 => {
            let object = AnyObject::decode_as(kind, entry.body.as_bytes()).map_err(|error| unreadable(&error))?;
            let text = version::encode(version, &object).map_err(|error| unreadable(&error))?;
            serde_json::from_str(&text).map_err(|error| unreadable(&error))?
        }
        _ => serde_json::from_str::<Value>(&entry.body).map_err(|error| unreadable(&error))?,
    };
    apiserver::object::set_meta_text(&mut value, "resourceVersion", &entry.sequence.to_string());
    Ok(value)
}

/// An object of the resource's version as one of v1, decoded.
pub(crate) fn decoded(kind: Kind, version: ApiVersion, value: &Value) -> Result<AnyObject, Status> {
    version::decode(version, kind, value.to_string().as_bytes()).map_err(|error| {
        let mut told = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            told = format!("{told}: {cause}");
            source = cause.source();
        }
        Status::bad_request(told)
    })
}

/// A decoded object as JSON of v1.
pub(crate) fn value_of(object: &AnyObject) -> Result<Value, Status> {
    serde_json::to_value(object).map_err(|error| Status::internal(error.to_string()))
}

/// JSON of v1 in the resource's version, for answers.
pub(crate) fn in_version(resource: &ResourceType, value: Value) -> Result<Value, Status> {
    let Some((kind, version)) = typed(resource).filter(|(_, version)| *version != ApiVersion::V1) else {
        return Ok(value);
    };
    let object = decoded(kind, ApiVersion::V1, &value)?;
    let text = version::encode(version, &object).map_err(|error| Status::internal(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| Status::internal(error.to_string()))
}
