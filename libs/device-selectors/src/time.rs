//! Durations and timestamps: parsing, printing and calendar parts.
//!
//! Time zones come from a database inside the binary, so that answers do not depend on the host.

use jiff::tz::TimeZoneDatabase;

use crate::error::EvalError;
use crate::functions::TimePart;

/// Nanoseconds in a second.
pub(crate) const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;
/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
const SECONDS_MIN: i64 = -62_135_596_800;
const SECONDS_MAX: i64 = 253_402_300_799;

/// An instant, with the offset it was written with (which only printing shows).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timestamp {
    seconds: i64,
    nanos: u32,
    offset_seconds: i32,
}

impl Timestamp {
    /// A whole second since 1970, if within the years 1 to 9999.
    pub(crate) fn from_seconds(seconds: i64) -> Result<Self, EvalError> {
        Self {
            seconds,
            nanos: 0,
            offset_seconds: 0,
        }
        .in_range()
    }

    fn in_range(self) -> Result<Self, EvalError> {
        let fits = (SECONDS_MIN..=SECONDS_MAX).contains(&self.seconds);
        if fits {
            Ok(self)
        } else {
            Err(EvalError::overflow("timestamp"))
        }
    }

    pub(crate) fn seconds(self) -> i64 {
        self.seconds
    }

    /// What comparisons look at.
    pub(crate) fn instant(self) -> (i64, u32) {
        (self.seconds, self.nanos)
    }

    fn total_nanos(self) -> i128 {
        i128::from(self.seconds) * i128::from(SECOND) + i128::from(self.nanos)
    }

    /// `self + nanos`; keeps the offset.
    pub(crate) fn plus(self, nanos: i64) -> Result<Self, EvalError> {
        let total = self.total_nanos() + i128::from(nanos);
        let second = i128::from(SECOND);
        let (Ok(seconds), Ok(nanos)) = (
            i64::try_from(total.div_euclid(second)),
            u32::try_from(total.rem_euclid(second)),
        ) else {
            return Err(EvalError::overflow("timestamp"));
        };
        Self { seconds, nanos, ..self }.in_range()
    }

    /// `self − other` in nanoseconds.
    pub(crate) fn minus(self, other: Self) -> Result<i64, EvalError> {
        i64::try_from(self.total_nanos() - other.total_nanos()).map_err(|_| EvalError::overflow("duration"))
    }

    /// RFC 3339 with seconds, an optional fraction and an offset.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let fixed = |i: usize, b: u8| bytes.get(i) == Some(&b);
        if !(fixed(4, b'-') && fixed(7, b'-') && fixed(10, b'T') && fixed(13, b':') && fixed(16, b':')) {
            return None;
        }
        let year = digits(text.get(..4)?)?;
        let (month, day) = (digits(text.get(5..7)?)?, digits(text.get(8..10)?)?);
        let (hour, minute, second) = (
            digits(text.get(11..13)?)?,
            digits(text.get(14..16)?)?,
            digits(text.get(17..19)?)?,
        );
        if !is_date(year, month, day) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let (nanos, rest) = fraction(text.get(19..)?)?;
        let offset = if rest == "Z" { 0 } else { offset(rest)? };
        let local = days_from_civil(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second;
        Self {
            seconds: local - i64::from(offset),
            nanos,
            offset_seconds: offset,
        }
        .in_range()
        .ok()
    }

    /// RFC 3339 with as many fraction digits as needed.
    pub(crate) fn to_text(self) -> String {
        let local = self.seconds + i64::from(self.offset_seconds);
        let (year, month, day) = civil_from_days(local.div_euclid(DAY_SECONDS));
        let of_day = local.rem_euclid(DAY_SECONDS);
        let mut text = format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        );
        if self.nanos != 0 {
            let fraction = format!(".{:09}", self.nanos);
            text.push_str(fraction.trim_end_matches('0'));
        }
        if self.offset_seconds == 0 {
            text.push('Z');
        } else {
            let sign = if self.offset_seconds < 0 { '-' } else { '+' };
            let minutes = self.offset_seconds.unsigned_abs() / 60;
            text.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        text
    }

    /// A calendar part in UTC, or in `zone`: an IANA name or `[+-]HH:MM`.
    pub(crate) fn part(self, part: TimePart, zone: Option<&str>) -> Result<i64, EvalError> {
        let offset = zone.map_or(Ok(0), |zone| self.offset_in(zone))?;
        let local = self.seconds + i64::from(offset);
        let days = local.div_euclid(DAY_SECONDS);
        let (year, month, day) = civil_from_days(days);
        let of_day = local.rem_euclid(DAY_SECONDS);
        Ok(match part {
            TimePart::FullYear => year,
            TimePart::Month => month - 1,
            TimePart::Date => day,
            TimePart::DayOfMonth => day - 1,
            TimePart::DayOfWeek => (days + 4).rem_euclid(7), // 1970-01-01 was a Thursday
            TimePart::DayOfYear => days - days_from_civil(year, 1, 1),
            TimePart::Hours => of_day / 3600,
            TimePart::Minutes => of_day / 60 % 60,
            TimePart::Seconds => of_day % 60,
            TimePart::Milliseconds => i64::from(self.nanos / 1_000_000),
        })
    }

    fn offset_in(self, zone: &str) -> Result<i32, EvalError> {
        if let Some(offset) = zone_offset(zone) {
            return Ok(offset);
        }
        let unknown = || EvalError::invalid(format!("unknown time zone {zone}"));
        if zone.is_empty() || zone == "UTC" {
            return Ok(0);
        }
        let zone = TimeZoneDatabase::bundled().get(zone).map_err(|_| unknown())?;
        let instant = jiff::Timestamp::from_second(self.seconds).map_err(|_| unknown())?;
        Ok(zone.to_offset(instant).seconds())
    }
}

/// All of `text` as decimal digits.
fn digits(text: &str) -> Option<i64> {
    let valid = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    valid.then(|| text.parse().ok()).flatten()
}

/// A fraction of a second, if there is one: (nanoseconds, rest).
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let len = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = rest.split_at(len);
    if digits.is_empty() {
        return None;
    }
    let nine: String = digits.chars().chain("000000000".chars()).take(9).collect();
    Some((nine.parse().ok()?, rest))
}

/// `±HH:MM` in seconds.
fn offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours <= 23 && minutes <= 59).then(|| i32::try_from(sign * (hours * 3600 + minutes * 60)).ok())?
}

/// `[+-]HH:MM` or `H:MM`, the form the getters take.
fn zone_offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    if hours.len() > 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours <= 23 && minutes <= 59).then(|| i32::try_from(sign * (hours * 3600 + minutes * 60)).ok())?
}

pub(crate) fn is_date(year: i64, month: i64, day: i64) -> bool {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar (Howard Hinnant's algorithm).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Parses Go's notation: a signed sequence of decimal numbers with units, such as `1h30m` or `-1.5h`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (nanos, after) = duration_part(rest)?;
        total = total.checked_add(nanos)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// One number with its unit: (nanoseconds, rest).
fn duration_part(text: &str) -> Option<(i128, &str)> {
    let len = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(len(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(len(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_len = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_len);
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // More than 18 digits are below a nanosecond of any unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    Some((whole.checked_mul(unit)?.checked_add(fraction * unit / scale)?, rest))
}

/// `1.5s`.
pub(crate) fn duration_text(nanos: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "upstream prints the seconds as a double")]
    let seconds = (nanos / SECOND) as f64 + (nanos % SECOND) as f64 / 1e9;
    format!("{seconds}s")
}

/// The whole duration in the unit of `part`, truncated.
pub(crate) fn duration_part_of(nanos: i64, part: TimePart) -> Option<i64> {
    match part {
        TimePart::Hours => Some(nanos / (3600 * SECOND)),
        TimePart::Minutes => Some(nanos / (60 * SECOND)),
        TimePart::Seconds => Some(nanos / SECOND),
        TimePart::Milliseconds => Some(nanos / 1_000_000),
        _ => None,
    }
}
