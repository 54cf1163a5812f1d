//! Names and identities that cross every part of Dray: driver, pool and device names, what they identify together,
//! object uids and positions in the event log.
//!
//! Names hold an `Arc<str>`: a snapshot repeats them millions of times and cloning must stay cheap. `From<&str>` takes
//! any text, because decoded objects are validated as a whole ([`crate::validation`]); `FromStr` refuses bad names.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::names;

/// Text that is not a name of the wanted sort.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {sort}: {rule}")]
pub struct NameError {
    /// What was given.
    pub text: String,
    /// The sort of name that was wanted, for example `driver name`.
    pub sort: &'static str,
    /// The first rule that is broken.
    pub rule: String,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $sort:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
            /// True if no name was given.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }
        impl $crate::wire::Empty for $name {
            fn is_empty(&self) -> bool {
                self.is_empty()
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                match $check(text).into_iter().next() {
                    None => Ok(Self::from(text)),
                    Some(rule) => Err(NameError { text: text.to_owned(), sort: $sort, rule }),
                }
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::ops::Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }
        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<str>::deserialize(from).map(|text| Self::from(text.as_ref()))
            }
        }
    };
}

name!(
    /// Name of a DRA driver: a DNS subdomain of at most 63 bytes; upper case is kept and compared byte for byte.
    DriverName, "driver name", names::driver_name
);
name!(
    /// Name of a pool: DNS subdomains joined by `/`, at most 253 bytes.
    PoolName, "pool name", names::pool_name
);
name!(
    /// Name of a device, unique in its pool: a DNS label.
    DeviceName, "device name", names::dns_label
);
name!(
    /// Identifies one share of a shareable device: a lower-case UUID. API field: `shareID`.
    ShareId, "share id", names::uuid
);

/// A pool of one driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolId {
    pub driver: DriverName,
    pub pool: PoolName,
}

impl PoolId {
    /// Puts an identity together from unchecked texts.
    pub fn new(driver: impl Into<DriverName>, pool: impl Into<PoolName>) -> Self {
        Self {
            driver: driver.into(),
            pool: pool.into(),
        }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

/// A device in a pool of one driver. Prints as `driver/pool/device`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    pub driver: DriverName,
    pub pool: PoolName,
    pub device: DeviceName,
}

impl DeviceId {
    /// Puts an identity together from unchecked texts.
    pub fn new(driver: impl Into<DriverName>, pool: impl Into<PoolName>, device: impl Into<DeviceName>) -> Self {
        Self {
            driver: driver.into(),
            pool: pool.into(),
            device: device.into(),
        }
    }

    /// The pool of the device.
    pub fn pool_id(&self) -> PoolId {
        PoolId {
            driver: self.driver.clone(),
            pool: self.pool.clone(),
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// A device, or one share of it. Prints as `driver/pool/device` or `driver/pool/device/share`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SharedDeviceId {
    pub device: DeviceId,
    pub share_id: Option<ShareId>,
}

impl fmt::Display for SharedDeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device)?;
        self.share_id.as_ref().map_or(Ok(()), |share| write!(f, "/{share}"))
    }
}

/// Identity of one object for its whole life; Dray hands out version 7 UUIDs.
///
/// A uid in a body that is not a UUID is read as [`Uid::NONE`], which is the uid of no object: comparing it with the
/// stored one fails as it must, and on create it is replaced anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub Uuid);

impl Uid {
    /// The uid of no object.
    pub const NONE: Self = Self(Uuid::nil());
}

impl From<Uid> for Uuid {
    fn from(uid: Uid) -> Self {
        uid.0
    }
}

impl From<Uuid> for Uid {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl FromStr for Uid {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(from).map(|text| text.parse().unwrap_or(Self::NONE))
    }
}

/// A position in the event log. The sequence of an object's last event is its `resourceVersion`.
///
/// JSON has it as a decimal string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Before the first event.
    pub const ZERO: Self = Self(0);
}

impl From<u64> for Sequence {
    fn from(position: u64) -> Self {
        Self(position)
    }
}

impl FromStr for Sequence {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Sequence {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Sequence {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        text.parse()
            .map_err(|_| serde::de::Error::custom(format!("{text:?} is not a resource version")))
    }
}
