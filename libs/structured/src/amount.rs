//! Quantities as plain numbers, for the inner loop of the search.
//!
//! Nano-units in 128 bits are exact for everything below about 1.7e29; larger quantities are clamped there, which no
//! device can tell apart from "more than enough".

use std::iter::Sum;
use std::ops::{AddAssign, SubAssign};

use resource_api::quantity::Quantity;

const CLAMP: i128 = i128::MAX / 4;

/// A number of nano-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Amount(i128);

impl Amount {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) fn of(quantity: &Quantity) -> Self {
        let clamped = if quantity.signum() < 0 { -CLAMP } else { CLAMP };
        Self(quantity.nanos().filter(|nanos| nanos.abs() <= CLAMP).unwrap_or(clamped))
    }

    pub(crate) fn nanos(self) -> i128 {
        self.0
    }

    pub(crate) fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(i128::from(n)))
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The four 32-bit words of the number, for keys.
    pub(crate) fn key_words(self) -> [u32; 4] {
        let bytes = self.0.to_le_bytes();
        std::array::from_fn(|word| {
            u32::from_le_bytes([bytes[4 * word], bytes[4 * word + 1], bytes[4 * word + 2], bytes[4 * word + 3]])
        })
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_sub(other.0);
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, |mut sum, amount| {
            sum += amount;
            sum
        })
    }
}
