//! Quantity: an exact decimal number with a unit suffix, as Kubernetes writes amounts (`1Gi`, `500m`, `1e3`).
//!
//! Kept as a whole number of nano-units, the finest step of the format; what does not fit in 128 bits goes to a big
//! integer, so comparing, adding and subtracting are exact and never wrap. The format only decides how the number prints.
//!
//! Choices against upstream (`k8s.io/apimachinery/pkg/api/resource`): text always prints in canonical form (upstream
//! keeps some odd spellings such as `+1`); numbers beyond 10^1024 and exponents below -4096 are refused instead of being expanded; a missing
//! number is zero with every suffix (`Mi`, but upstream refuses `Pi`); `1000E` prints as it is (upstream prints `1`).

mod parse;
mod print;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use num_bigint::{BigInt, Sign};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use parse::QuantityError;

/// Nano-units in one.
const NANOS: i128 = 1_000_000_000;

/// Which suffixes a quantity prints with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `e3`, `e6`, ….
    DecimalExponent,
}

/// An exact amount. Equality, order and hash are by value; the format does not matter.
#[derive(Clone, Debug)]
pub struct Quantity(Repr);

/// The format sits inside of the variants so that a quantity stays 32 bytes.
#[derive(Clone, Debug)]
enum Repr {
    Small {
        nanos: i128,
        format: Format,
    },
    /// Only values that do not fit `Small`.
    Big {
        nanos: Box<BigInt>,
        format: Format,
    },
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self(Repr::Small {
        nanos: 0,
        format: Format::DecimalSi,
    });

    /// A whole number.
    pub fn from_whole(value: i64, format: Format) -> Self {
        Self::from_nanos(i128::from(value) * NANOS, format)
    }

    /// A number of nano-units.
    pub fn from_nanos(nanos: i128, format: Format) -> Self {
        Self(Repr::Small { nanos, format })
    }

    fn from_big(nanos: BigInt, format: Format) -> Self {
        match i128::try_from(&nanos) {
            Ok(nanos) => Self::from_nanos(nanos, format),
            Err(_) => Self(Repr::Big {
                nanos: Box::new(nanos),
                format,
            }),
        }
    }

    /// Which suffixes the quantity prints with.
    pub fn format(&self) -> Format {
        match &self.0 {
            Repr::Small { format, .. } | Repr::Big { format, .. } => *format,
        }
    }

    /// The number of nano-units, if it fits in 128 bits: below about 1.7e29.
    pub fn nanos(&self) -> Option<i128> {
        match &self.0 {
            Repr::Small { nanos, .. } => Some(*nanos),
            Repr::Big { .. } => None,
        }
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        match self.cmp(&Self::ZERO) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// True for zero.
    pub fn is_zero(&self) -> bool {
        self.signum() == 0
    }

    /// The value if it is whole and fits in 64 bits.
    pub fn as_whole(&self) -> Option<i64> {
        let nanos = self.nanos().filter(|nanos| nanos % NANOS == 0)?;
        i64::try_from(nanos / NANOS).ok()
    }

    /// The nearest whole number away from zero, if it fits in 64 bits. Upstream: `Value()`, which wraps instead.
    pub fn round_up(&self) -> Option<i64> {
        let nanos = self.nanos()?;
        i64::try_from(nanos / NANOS + (nanos % NANOS).signum()).ok()
    }

    /// The nearest floating-point number; infinite if there is none.
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            #[expect(clippy::cast_precision_loss, reason = "a floating-point view is approximate by nature")]
            Repr::Small { nanos, .. } => *nanos as f64 / NANOS as f64,
            Repr::Big { nanos, .. } => nanos.to_string().parse::<f64>().unwrap_or(f64::INFINITY) / 1e9,
        }
    }

    /// The sum, in the format of `self` (of `other` if `self` is zero).
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format() } else { self.format() };
        match (self.nanos(), other.nanos()) {
            (Some(a), Some(b)) if a.checked_add(b).is_some() => Self::from_nanos(a + b, format),
            _ => Self::from_big(self.big() + other.big(), format),
        }
    }

    /// The difference, in the format of `self` (of `other` if `self` is zero).
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.plus(&other.negated())
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        match self.nanos().and_then(i128::checked_neg) {
            Some(nanos) => Self::from_nanos(nanos, self.format()),
            None => Self::from_big(-self.big(), self.format()),
        }
    }

    /// The product, in the format of `self`; rounded away from zero to whole nano-units.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        let product = self.big() * other.big();
        Self::from_big(divide_away_from_zero(&product, &BigInt::from(NANOS)), self.format())
    }

    /// True if `self` is a whole multiple of `step`. Of zero, only zero is one.
    pub fn is_multiple_of(&self, step: &Self) -> bool {
        match (self.nanos(), step.nanos()) {
            (_, Some(0)) => self.is_zero(),
            (Some(nanos), Some(step)) => nanos.checked_rem(step).unwrap_or(0) == 0,
            _ => (self.big() % step.big()).sign() == Sign::NoSign,
        }
    }

    /// How many times `step` must be taken to reach at least `self`, for positive `step`. `None`: `step` is not
    /// positive, or the count does not fit in 64 bits.
    pub fn steps_up(&self, step: &Self) -> Option<i64> {
        if step.signum() <= 0 {
            return None;
        }
        let (amount, step) = (self.big(), step.big());
        let whole = &amount / &step;
        let rest = (&amount % &step).sign() == Sign::Plus;
        i64::try_from(whole).ok()?.checked_add(i64::from(rest))
    }

    fn big(&self) -> BigInt {
        match &self.0 {
            Repr::Small { nanos, .. } => BigInt::from(*nanos),
            Repr::Big { nanos, .. } => (**nanos).clone(),
        }
    }
}

fn divide_away_from_zero(number: &BigInt, by: &BigInt) -> BigInt {
    let whole = number / by;
    match (number % by).sign() {
        Sign::NoSign => whole,
        Sign::Plus => whole + 1,
        Sign::Minus => whole - 1,
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Small { nanos: a, .. }, Repr::Small { nanos: b, .. }) => a.cmp(b),
            _ => self.big().cmp(&other.big()),
        }
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Repr::Small { nanos, .. } => nanos.hash(state),
            Repr::Big { nanos, .. } => nanos.hash(state),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }
}

impl fmt::Display for Quantity {
    /// Prints the canonical text: no fraction, the largest suffix that keeps the number whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nanos() {
            Some(nanos) => print::small(nanos, self.format(), f),
            None => print::big(&self.big(), self.format(), f),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Accepts a string, with blanks around it, or a bare number.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl serde::de::Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"1Gi\" or 2")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.trim().parse().map_err(E::custom)
    }
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_whole(value, Format::DecimalSi))
    }
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Quantity, E> {
        Ok(Quantity::from_nanos(i128::from(value) * NANOS, Format::DecimalSi))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Quantity, E> {
        // The number's own text is gone here; the shortest text that reads back the same stands for it.
        value.to_string().parse().map_err(E::custom)
    }
}
