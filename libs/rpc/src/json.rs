//! The places where Kubernetes' JSON is not what protobuf's field layout suggests.

/// A raw extension is JSON as it stands, not base64.
pub(crate) mod raw {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::value::RawValue;

    use crate::k8s::io::apimachinery::pkg::runtime::RawExtension;

    pub(crate) fn serialize<S: Serializer>(value: &Option<RawExtension>, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = value.as_ref().and_then(|v| v.raw.as_ref());
        let Some(raw) = raw else { return serializer.serialize_none() };
        let text = std::str::from_utf8(raw).map_err(serde::ser::Error::custom)?;
        let json: &RawValue =
            serde_json::from_str(text).map_err(|e| serde::ser::Error::custom(format!("parameters are not JSON: {e}")))?;
        json.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawExtension>, D::Error> {
        let json = Option::<Box<RawValue>>::deserialize(deserializer)?;
        Ok(json.map(|json| RawExtension {
            raw: Some(json.get().to_owned().into_bytes()),
        }))
    }
}

/// A time is RFC 3339 with whole seconds.
pub(crate) mod time {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::k8s::io::apimachinery::pkg::apis::meta::v1::Time;

    pub(crate) fn serialize<S: Serializer>(value: &Option<Time>, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(time) = value else {
            return serializer.serialize_none();
        };
        let at = jiff::Timestamp::new(time.seconds.unwrap_or(0), 0).map_err(serde::ser::Error::custom)?;
        at.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
        let at = Option::<jiff::Timestamp>::deserialize(deserializer)?;
        Ok(at.map(|at| Time {
            seconds: Some(at.as_second()),
            nanos: Some(0),
        }))
    }
}

/// Kubernetes inlines the device configuration: what is a message in protobuf is its only member, `opaque`, in JSON.
pub(crate) mod opaque {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::resource_v1::{DeviceConfiguration, OpaqueDeviceConfiguration};

    pub(crate) fn serialize<S: Serializer>(value: &Option<DeviceConfiguration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().and_then(|v| v.opaque.as_ref()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DeviceConfiguration>, D::Error> {
        let opaque = Option::<OpaqueDeviceConfiguration>::deserialize(deserializer)?;
        Ok(opaque.map(|opaque| DeviceConfiguration { opaque: Some(opaque) }))
    }
}

/// Kubernetes prints some empty lists as `null`; for protobuf an empty list and none are the same.
pub(crate) fn or_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    <Option<Vec<T>> as serde::Deserialize>::deserialize(deserializer).map(Option::unwrap_or_default)
}
