//! Reads the text of a quantity: optional sign, digits with optional fraction, suffix.

use std::ops::RangeInclusive;

use num_bigint::BigInt;

use super::{Format, NANOS, Quantity, divide_away_from_zero};

/// Digits that a number may be written with before it is refused.
const DIGITS_MAX: usize = 2048;

/// Powers of ten in an exponent. Small ones only round.
const EXPONENTS: RangeInclusive<i64> = -4096..=1024;

/// Bits of the largest magnitude in nano-units, about 10^1024. An amount takes some hundred bytes then, so that a body full
/// of huge amounts takes no more than some times its own size; and whatever prints can be read again.
const BITS_MAX: u64 = 3432;

/// Largest magnitude of a quantity with a binary suffix.
const BINARY_MAX: i64 = i64::MAX;

/// Text that is not a quantity. The words are those of the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Form,
    #[error("unable to parse quantity's suffix")]
    Suffix,
    #[error("unable to parse numeric part of quantity")]
    Number,
}

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// What a suffix multiplies with: `base` to the power of `exponent`.
struct Scale {
    base: u8,
    exponent: i64,
    format: Format,
}

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let parts = split(text)?;
    let scale = scale_of(parts.suffix)?;
    if parts.whole.len() + parts.fraction.len() > DIGITS_MAX {
        return Err(QuantityError::Number);
    }
    match small_nanos(&parts, &scale) {
        Some(nanos) => Ok(Quantity::from_nanos(
            if parts.negative { -nanos } else { nanos },
            scale.format,
        )),
        None => big_quantity(&parts, &scale),
    }
}

/// Splits along the grammar. Nearly everything may be missing: `.`, `-` and `m` are zero.
fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Form);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = leading_digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), leading_digits);
    let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !leading_digits(exponent).1.is_empty() {
        return Err(QuantityError::Form);
    }
    Ok(Parts {
        negative: text.starts_with('-'),
        whole: whole.trim_start_matches('0'),
        fraction,
        suffix,
    })
}

fn leading_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn scale_of(suffix: &str) -> Result<Scale, QuantityError> {
    let (base, exponent, format) = match suffix {
        "n" => (10, -9, Format::DecimalSi),
        "u" => (10, -6, Format::DecimalSi),
        "m" => (10, -3, Format::DecimalSi),
        "" => (10, 0, Format::DecimalSi),
        "k" => (10, 3, Format::DecimalSi),
        "M" => (10, 6, Format::DecimalSi),
        "G" => (10, 9, Format::DecimalSi),
        "T" => (10, 12, Format::DecimalSi),
        "P" => (10, 15, Format::DecimalSi),
        "E" => (10, 18, Format::DecimalSi),
        "Ki" => (2, 10, Format::BinarySi),
        "Mi" => (2, 20, Format::BinarySi),
        "Gi" => (2, 30, Format::BinarySi),
        "Ti" => (2, 40, Format::BinarySi),
        "Pi" => (2, 50, Format::BinarySi),
        "Ei" => (2, 60, Format::BinarySi),
        other => (10, exponent_of(other)?, Format::DecimalExponent),
    };
    Ok(Scale { base, exponent, format })
}

/// The number in `e3`, `E+3`, `e-3`.
fn exponent_of(suffix: &str) -> Result<i64, QuantityError> {
    let digits = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i64 = digits.parse().map_err(|_| QuantityError::Suffix)?;
    if EXPONENTS.contains(&exponent) {
        Ok(exponent)
    } else {
        Err(QuantityError::Number)
    }
}

/// Nano-units of the magnitude, where plain 128-bit arithmetic gives them exactly; nearly always.
fn small_nanos(parts: &Parts<'_>, scale: &Scale) -> Option<i128> {
    let digits = parts.whole.bytes().chain(parts.fraction.bytes());
    let number = digits.into_iter().try_fold(0_i128, |number, digit| {
        number.checked_mul(10)?.checked_add(i128::from(digit - b'0'))
    })?;
    let fraction_digits = i64::try_from(parts.fraction.len()).ok()?;
    match scale.base {
        2 if fraction_digits == 0 => {
            let value = number.checked_mul(1_i128.checked_shl(u32::try_from(scale.exponent).ok()?)?)?;
            value.min(i128::from(BINARY_MAX)).checked_mul(NANOS)
        }
        2 => None,
        _ => {
            let power = u32::try_from(scale.exponent - fraction_digits + 9).ok()?;
            if number == 0 {
                Some(0)
            } else {
                number.checked_mul(10_i128.checked_pow(power)?)
            }
        }
    }
}

fn big_quantity(parts: &Parts<'_>, scale: &Scale) -> Result<Quantity, QuantityError> {
    let digits = [parts.whole, parts.fraction].concat();
    let number = BigInt::parse_bytes(format!("0{digits}").as_bytes(), 10).ok_or(QuantityError::Number)?;
    let fraction_digits = i64::try_from(parts.fraction.len()).map_err(|_| QuantityError::Number)?;
    let (number, decimal_exponent) = match scale.base {
        2 => (number << scale.exponent, -fraction_digits),
        _ => (number, scale.exponent - fraction_digits),
    };
    let mut nanos = scaled_by_ten(&number, decimal_exponent + 9);
    if scale.base == 10 && nanos.bits() > BITS_MAX {
        return Err(QuantityError::Number);
    }
    let mut format = scale.format;
    if format == Format::BinarySi {
        nanos = nanos.min(BigInt::from(BINARY_MAX) * NANOS);
        // Upstream looks at the positive value before it gives the sign back.
        if nanos < BigInt::from(NANOS) && nanos > BigInt::from(0) {
            format = Format::DecimalSi;
        }
    }
    Ok(Quantity::from_big(if parts.negative { -nanos } else { nanos }, format))
}

/// `number · 10^exponent`, rounded away from zero if that is not whole.
fn scaled_by_ten(number: &BigInt, exponent: i64) -> BigInt {
    let power = BigInt::from(10).pow(u32::try_from(exponent.unsigned_abs()).unwrap_or(u32::MAX));
    if exponent >= 0 {
        number * power
    } else {
        divide_away_from_zero(number, &power)
    }
}
