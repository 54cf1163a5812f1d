//! Quantities in expressions: the exact value of `resource_api`, plus the fast form upstream would hold it in,
//! because `isInteger` and `asInteger` depend on that form and on nothing else.

use std::str::FromStr;

use resource_api::Quantity;

/// A quantity and the form upstream would hold it in.
#[derive(Clone, Debug)]
pub(crate) struct Amount {
    pub(crate) value: Quantity,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// That of the canonical text; not looked at yet, as hardly any expression asks.
    Canonical,
    Fast(Fast),
    /// Arbitrary precision.
    Slow,
}

/// `value · 10^scale`.
#[derive(Clone, Copy, Debug)]
struct Fast {
    value: i64,
    scale: i64,
}

impl Amount {
    /// Parses the text of a quantity; blanks are not trimmed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let value = Quantity::from_str(text).ok()?;
        Some(Self {
            value,
            form: Form::of(Fast::of_text(text)),
        })
    }

    /// The value of a capacity. Its text is the canonical one.
    pub(crate) fn of(value: &Quantity) -> Self {
        Self {
            value: value.clone(),
            form: Form::Canonical,
        }
    }

    pub(crate) fn from_int(value: i64) -> Self {
        let format = resource_api::quantity::Format::DecimalSi;
        Self {
            value: Quantity::from_whole(value, format),
            form: Form::Fast(Fast { value, scale: 0 }),
        }
    }

    /// The value, if it is held in the fast form and is whole without rescaling down.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        let fast = self.fast()?;
        let power = 10_i64.checked_pow(u32::try_from(fast.scale).ok()?)?;
        fast.value.checked_mul(power)
    }

    fn fast(&self) -> Option<Fast> {
        match self.form {
            Form::Canonical => Fast::of_text(&self.value.to_string()),
            Form::Fast(fast) => Some(fast),
            Form::Slow => None,
        }
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            value: self.value.plus(&other.value),
            form: Form::of(self.combined(other, i64::checked_add)),
        }
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self {
            value: self.value.minus(&other.value),
            form: Form::of(self.combined(other, i64::checked_sub)),
        }
    }

    /// The fast form of a sum or difference: a zero operand takes the other's, two meet at the finer scale.
    fn combined(&self, other: &Self, combine: fn(i64, i64) -> Option<i64>) -> Option<Fast> {
        if other.value.is_zero() {
            return self.fast();
        }
        if self.value.is_zero() {
            let fast = other.fast()?;
            return Some(Fast {
                value: combine(0, fast.value)?,
                ..fast
            });
        }
        let (a, b) = self.fast().zip(other.fast())?;
        let scale = a.scale.min(b.scale);
        Some(Fast {
            value: combine(a.at(scale)?, b.at(scale)?)?,
            scale,
        })
    }
}

impl Form {
    fn of(fast: Option<Fast>) -> Self {
        fast.map_or(Self::Slow, Self::Fast)
    }
}

impl Fast {
    /// The mantissa at a scale that is not above the own one.
    fn at(self, scale: i64) -> Option<i64> {
        let power = 10_i64.checked_pow(u32::try_from(self.scale - scale).ok()?)?;
        self.value.checked_mul(power)
    }

    /// The fast form of a text that is known to be a quantity, if upstream holds it in one.
    fn of_text(text: &str) -> Option<Self> {
        let negative = text.starts_with('-');
        let unsigned = text.trim_start_matches(['+', '-']);
        let split = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(split(unsigned));
        let (fraction, suffix, dot) = match rest.strip_prefix('.') {
            Some(rest) => {
                let (fraction, suffix) = rest.split_at(split(rest));
                (fraction, suffix, true)
            }
            None => ("", rest, false),
        };
        let whole = whole.trim_start_matches('0');
        let digits = i64::try_from(whole.len().max(1)).ok()?;
        let decimals = i64::try_from(fraction.len()).ok()?;
        let mantissa: i64 = if digits + decimals > 18 {
            return None;
        } else {
            format!("0{whole}{fraction}").parse().ok()?
        };
        let sign = if negative { -1 } else { 1 };
        let (base_two, exponent) = exponent_of(suffix)?;
        if base_two {
            let fits = !dot && 15 - digits - exponent * 3 / 10 > 0;
            let value = mantissa.checked_mul(1_i64.checked_shl(u32::try_from(exponent).ok()?)?)?;
            return fits.then_some(Self {
                value: sign * value,
                scale: 0,
            });
        }
        let scale = exponent - decimals;
        (scale >= -9).then_some(Self {
            value: sign * mantissa,
            scale,
        })
    }
}

/// (base two, exponent) of a suffix.
fn exponent_of(suffix: &str) -> Option<(bool, i64)> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let at = |list: &[&str]| list.iter().position(|s| *s == suffix).and_then(|i| i64::try_from(i).ok());
    if let Some(i) = at(&DECIMAL) {
        return Some((false, (i - 3) * 3));
    }
    if let Some(i) = at(&BINARY) {
        return Some((true, (i + 1) * 10));
    }
    Some((false, suffix.get(1..)?.parse().ok()?))
}
