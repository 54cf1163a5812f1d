//! Prints the canonical text of a quantity.

use std::fmt;

use num_bigint::BigInt;

use super::{Format, NANOS};

const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

pub(super) fn small(nanos: i128, format: Format, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if nanos == 0 {
        return f.write_str("0");
    }
    if format == Format::BinarySi && nanos % NANOS == 0 && (nanos / NANOS).unsigned_abs() >= 1024 {
        return binary(nanos / NANOS, f);
    }
    let (mut number, mut thousands) = (nanos, 0);
    while number % 1000 == 0 && (thousands < LAST_SUFFIX || format == Format::DecimalExponent) {
        number /= 1000;
        thousands += 1;
    }
    write!(f, "{number}{}", decimal_suffix(thousands, format))
}

pub(super) fn big(nanos: &BigInt, format: Format, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digits = nanos.to_string();
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    let most = if format == Format::DecimalExponent {
        usize::MAX
    } else {
        LAST_SUFFIX
    };
    let thousands = (zeros / 3).min(most);
    write!(
        f,
        "{}{}",
        &digits[..digits.len() - 3 * thousands],
        decimal_suffix(thousands, format)
    )
}

/// Index of `E`, beyond which a decimal number just gets longer.
const LAST_SUFFIX: usize = DECIMAL_SUFFIXES.len() - 1;

/// The suffix for a number of `1000^thousands` nano-units. A binary quantity that is not whole prints as decimal.
fn decimal_suffix(thousands: usize, format: Format) -> String {
    match format {
        Format::DecimalSi | Format::BinarySi => DECIMAL_SUFFIXES[thousands].to_owned(),
        Format::DecimalExponent if thousands == 3 => String::new(),
        Format::DecimalExponent if thousands < 3 => format!("e-{}", (3 - thousands) * 3),
        Format::DecimalExponent => format!("e{}", (thousands - 3) * 3),
    }
}

fn binary(whole: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut number, mut power) = (whole, 0);
    while number % 1024 == 0 && power + 1 < BINARY_SUFFIXES.len() {
        number /= 1024;
        power += 1;
    }
    write!(f, "{number}{}", BINARY_SUFFIXES[power])
}
