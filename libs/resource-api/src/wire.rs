//! How values look on the wire where plain serde derives do not say it: `null` for "unset", empty lists that are
//! left out, open enums that keep unknown words, times in whole seconds and raw JSON that keeps its bytes.
//!
//! Decoding here is lenient, like the decoder of the Kubernetes API: it refuses wrong JSON types only. Whether a value
//! makes sense is the business of [`crate::validation`].

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use serde::de::IgnoredAny;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

/// Reads a value for which JSON `null` means "not given".
pub(crate) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// True for values that the Kubernetes API leaves out when printing (`omitempty`).
pub(crate) fn is_empty<T: Empty>(value: &T) -> bool {
    value.is_empty()
}

/// Prints an empty list as `null`: fields that the Kubernetes API prints always, also when unset.
pub(crate) fn null_if_empty<S: Serializer, T: Serialize>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
    if list.is_empty() {
        to.serialize_none()
    } else {
        to.collect_seq(list)
    }
}

/// Values with a "nothing" that is not printed.
pub(crate) trait Empty {
    fn is_empty(&self) -> bool;
}

impl<T> Empty for Vec<T> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}
/// A list whose absence differs from emptiness when it is read; both print alike.
impl<T> Empty for Option<Vec<T>> {
    fn is_empty(&self) -> bool {
        self.as_ref().is_none_or(Vec::is_empty)
    }
}
impl<K, V> Empty for BTreeMap<K, V> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}
impl Empty for String {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}
impl Empty for bool {
    fn is_empty(&self) -> bool {
        !*self
    }
}
impl Empty for i64 {
    fn is_empty(&self) -> bool {
        *self == 0
    }
}

/// An instant in whole seconds, printed as RFC 3339 in UTC (`2026-01-01T00:00:00Z`). Fractions are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(jiff::Timestamp);

impl Time {
    /// Cuts `instant` to whole seconds. Source: `metav1.Time`.
    pub fn new(instant: jiff::Timestamp) -> Self {
        Self(jiff::Timestamp::from_second(instant.as_second()).unwrap_or(instant))
    }

    /// The instant; its sub-second part is zero.
    pub fn timestamp(self) -> jiff::Timestamp {
        self.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        text.parse::<jiff::Timestamp>()
            .map(Self::new)
            .map_err(|_| D::Error::custom(format!("{text:?} is not an RFC 3339 time")))
    }
}

/// One JSON value whose text is kept: key order and number spelling survive.
///
/// The text is held as it was sent (sizes are limits on what was sent) and printed compact, without blanks between tokens.
#[derive(Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Takes over a JSON text. Error: the text is not one JSON value.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// The JSON text as it was sent.
    pub fn as_sent(&self) -> &str {
        self.0.get()
    }

    /// The JSON text without blanks between tokens.
    pub fn compact(&self) -> String {
        compact(self.as_sent())
    }

    /// True if the value is a JSON object.
    pub fn is_object(&self) -> bool {
        self.as_sent().trim_ascii_start().starts_with('{')
    }
}

/// Two raw values are equal if their compact texts are: key order counts.
impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_sent() == other.as_sent() || self.compact() == other.compact()
    }
}
impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Opaque parameters may hold secrets of a driver, so their text stays out of logs.
        write!(f, "RawJson({} bytes)", self.as_sent().len())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.compact()).map_err(S::Error::custom)?.serialize(to)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(from).map(Self)
    }
}

/// Removes blanks outside of strings from a valid JSON text.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_string = c == '"';
        }
        out.push(c);
    }
    out
}

/// Defines a zero-sized field that always prints one `apiVersion` and accepts any when read: which version a body was
/// written in is decided before it is decoded, see [`crate::object`].
macro_rules! api_version {
    ($(#[$doc:meta])* $name:ident = $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// The text of the `apiVersion` field.
            pub const TEXT: &'static str = $text;
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(Self::TEXT)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                IgnoredAny::deserialize(from).map(|_| Self)
            }
        }
    };
}
api_version!(/** `resource.k8s.io/v1`. */ ResourceV1 = "resource.k8s.io/v1");
api_version!(/** `resource.k8s.io/v1alpha3`. */ ResourceV1Alpha3 = "resource.k8s.io/v1alpha3");
api_version!(/** `v1`, the core group. */ CoreV1 = "v1");
api_version!(/** `dray.v1`, Dray's own kinds. */ DrayV1 = "dray.v1");

/// Defines an enum of words that keeps a word it does not know, so that stored objects of other releases stay readable.
/// The default is the empty word: "not given".
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
            /// Any other word, also the empty one.
            Other(Box<str>),
        }
        impl $name {
            /// The known words, sorted: what a refusal lists as supported.
            pub fn supported() -> Vec<&'static str> {
                let mut words = vec![$(stringify!($variant)),+];
                words.sort_unstable();
                words
            }
            /// The word as it is on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                    Self::Other(word) => word,
                }
            }
            /// True if no word was given.
            pub fn is_empty(&self) -> bool {
                self.as_str().is_empty()
            }
            /// True for a word of this API.
            pub fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }
        }
        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $(stringify!($variant) => Self::$variant,)+
                    other => Self::Other(other.into()),
                }
            }
        }
        impl Default for $name {
            fn default() -> Self {
                Self::Other("".into())
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl $crate::wire::Empty for $name {
            fn is_empty(&self) -> bool {
                self.is_empty()
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<str>::deserialize(from).map(|word| Self::from(word.as_ref()))
            }
        }
    };
}
pub(crate) use {api_version, open_enum};
