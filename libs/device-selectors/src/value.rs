//! Values at run time: cheap to clone, compared and ordered by the rules of the language.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::meter::Meter;
use crate::net::{Cidr, Ip};
use crate::quantity::Amount;
use crate::semver::Version;
use crate::time::Timestamp;
use crate::url::Url;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<Vec<Value>>),
    Map(Arc<Map>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    /// The name of a type.
    Type(&'static str),
    Optional(Option<Arc<Value>>),
    Quantity(Arc<Amount>),
    Semver(Arc<Version>),
    Ip(Ip),
    Cidr(Cidr),
    Url(Arc<Url>),
    /// A named format, by name.
    Format(&'static str),
}

impl Value {
    pub(crate) fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(elements: Vec<Value>) -> Self {
        Self::List(Arc::new(elements))
    }

    pub(crate) fn some(value: Value) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// The name of the value's type, as `type(x)` compares and `%s` prints it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// Size for the cost at run time: code points, bytes, elements, entries, bytes of an address or of a prefix; 1 for
    /// everything else.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::String(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.entries.len() as u64,
            Self::Ip(ip) => ip.bytes(),
            Self::Cidr(cidr) => cidr.prefix_bytes(),
            _ => 1,
        }
    }

    /// Size for the cost of operators and of the standard functions, which look into optionals.
    pub(crate) fn inner_size(&self) -> u64 {
        let mut value = self;
        while let Self::Optional(Some(inner)) = value {
            value = inner;
        }
        value.size()
    }

    /// Library types that refuse to be compared with anything but their own kind and null.
    pub(crate) fn is_extension(&self) -> bool {
        matches!(
            self,
            Self::Quantity(_) | Self::Semver(_) | Self::Ip(_) | Self::Cidr(_) | Self::Url(_) | Self::Format(_)
        )
    }

    /// `int`, `uint` and `double` compare by value across types.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Uint(_) | Self::Double(_))
    }
}

/// A map with unique keys, sorted by [`key_order`]; iteration is in that order (upstream's is random).
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    pub(crate) entries: Vec<(Value, Value)>,
    /// Unknown keys read as an empty map: `device.attributes` and `device.capacity`.
    pub(crate) empty_by_default: bool,
}

impl Map {
    fn position(&self, key: &Value) -> Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| key_order(k, key))
    }

    /// The value of a key that is really there.
    pub(crate) fn get(&self, key: &Value) -> Option<&Value> {
        if matches!(key, Value::Double(d) if d.is_nan()) {
            return None;
        }
        self.position(key).ok().map(|i| &self.entries[i].1)
    }

    /// The value that selecting or indexing gives.
    pub(crate) fn find(&self, key: &Value) -> Option<Value> {
        match self.get(key) {
            Some(value) => Some(value.clone()),
            None if self.empty_by_default => Some(Value::Map(Arc::default())),
            None => None,
        }
    }

    /// Sets a key; a later value wins. True if the key was there.
    pub(crate) fn insert(&mut self, key: Value, value: Value) -> bool {
        match self.position(&key) {
            Ok(i) => {
                self.entries[i].1 = value;
                true
            }
            Err(i) => {
                self.entries.insert(i, (key, value));
                false
            }
        }
    }
}

/// Total order of map keys: numbers by value, then strings, then bools; anything else is equal to nothing of these.
pub(crate) fn key_order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        _ if a.is_number() && b.is_number() => compare_keys(a, b).unwrap_or_else(|| nan_last(a, b)),
        _ => key_rank(a).cmp(&key_rank(b)),
    }
}

/// [`key_order`] of a key and a string.
pub(crate) fn order_with_text(key: &Value, text: &str) -> Ordering {
    match key {
        Value::String(key) => key.as_bytes().cmp(text.as_bytes()),
        Value::Int(_) | Value::Uint(_) | Value::Double(_) => Ordering::Less,
        _ => Ordering::Greater,
    }
}

fn nan_last(a: &Value, b: &Value) -> Ordering {
    let is_nan = |v: &Value| matches!(v, Value::Double(d) if d.is_nan());
    is_nan(a).cmp(&is_nan(b))
}

fn key_rank(v: &Value) -> u8 {
    match v {
        Value::Int(_) | Value::Uint(_) | Value::Double(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        _ => 3,
    }
}

/// Order of two numbers across types; `None` if one is NaN or no number. An integer meets a double as a double,
/// as upstream has it: 2^53 + 1 equals the double 2^53.
pub(crate) fn compare_numbers(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => a.partial_cmp(&rounded(b)?),
        (a, Value::Double(b)) => rounded(a)?.partial_cmp(b),
        _ => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "upstream rounds before it compares")]
fn rounded(v: &Value) -> Option<f64> {
    whole(v).map(|n| n as f64)
}

/// Order of two numbers by exact value: keys that differ must not meet.
fn compare_keys(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Double(_), Value::Double(_)) => compare_numbers(a, b),
        (Value::Double(a), b) => compare_with_double(b, *a).map(Ordering::reverse),
        (a, Value::Double(b)) => compare_with_double(a, *b),
        _ => compare_numbers(a, b),
    }
}

fn whole(v: &Value) -> Option<i128> {
    match v {
        Value::Int(n) => Some(i128::from(*n)),
        Value::Uint(n) => Some(i128::from(*n)),
        _ => None,
    }
}

/// Exact order of a 64-bit integer and a double.
fn compare_with_double(integer: &Value, double: f64) -> Option<Ordering> {
    let integer = whole(integer)?;
    if double.is_nan() {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturating; the fraction is looked at afterwards"
    )]
    let truncated = double.trunc() as i128;
    Some(
        integer
            .cmp(&truncated)
            .then_with(|| 0.0_f64.total_cmp(&(double.fract() + 0.0))),
    )
}

/// `a == b`. An error only for a library type compared with something else, and for an exhausted budget.
pub(crate) fn equal(meter: &mut Meter, a: &Value, b: &Value) -> Result<bool, EvalError> {
    meter.work(1)?;
    match (a, b) {
        (Value::Null, Value::Null) => Ok(true),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::String(a), Value::String(b)) => Ok(a == b),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a == b),
        (Value::Duration(a), Value::Duration(b)) => Ok(a == b),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.instant() == b.instant()),
        (Value::Type(a), Value::Type(b)) => Ok(a == b),
        (Value::List(a), Value::List(b)) => equal_lists(meter, a, b),
        (Value::Map(a), Value::Map(b)) => equal_maps(meter, a, b),
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(meter, a, b),
            (None, None) => Ok(true),
            _ => Ok(false),
        },
        (Value::Quantity(a), Value::Quantity(b)) => Ok(a.value == b.value),
        (Value::Semver(a), Value::Semver(b)) => Ok(a.precedence(b) == Ordering::Equal),
        (Value::Ip(a), Value::Ip(b)) => Ok(a == b),
        (Value::Cidr(a), Value::Cidr(b)) => Ok(a == b),
        (Value::Url(a), Value::Url(b)) => Ok(a.text() == b.text()),
        (Value::Format(a), Value::Format(b)) => Ok(a == b),
        _ if a.is_number() && b.is_number() => Ok(compare_numbers(a, b) == Some(Ordering::Equal)),
        (_, Value::Null) => Ok(false),
        _ if a.is_extension() => Err(EvalError::no_overload("_==_")),
        _ => Ok(false),
    }
}

fn equal_lists(meter: &mut Meter, a: &[Value], b: &[Value]) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.iter().zip(b) {
        if !equal(meter, a, b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(meter: &mut Meter, a: &Map, b: &Map) -> Result<bool, EvalError> {
    if a.entries.len() != b.entries.len() {
        return Ok(false);
    }
    for (key, value) in &a.entries {
        match b.get(key) {
            Some(other) if equal(meter, value, other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Equality where a pair that cannot be compared counts as unequal: `in`, `includes`, `distinct`, sets.
pub(crate) fn same(meter: &mut Meter, a: &Value, b: &Value) -> Result<bool, EvalError> {
    match equal(meter, a, b) {
        Err(error) if !Meter::is_exhaustion(&error) => Ok(false),
        other => other,
    }
}

/// Order for `<` and its kin.
pub(crate) fn compare(a: &Value, b: &Value) -> Result<Ordering, EvalError> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Ok(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.instant().cmp(&b.instant())),
        _ if a.is_number() && b.is_number() => {
            compare_numbers(a, b).ok_or_else(|| EvalError::invalid("NaN values cannot be ordered"))
        }
        _ => Err(EvalError::no_overload("comparison")),
    }
}
