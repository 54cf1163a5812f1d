//! Ages as people read them: two units at most, the smaller one only where it matters.
//!
//! Source: `k8s.io/apimachinery/pkg/util/duration`.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// What is shown for a time that is not given.
pub const UNKNOWN: &str = "<unknown>";

/// The time since an instant in RFC 3339. [`UNKNOWN`] if there is none or it cannot be read.
pub fn age(since: Option<&str>, now: Timestamp) -> String {
    match since.and_then(|text| text.parse::<Timestamp>().ok()) {
        None => UNKNOWN.to_owned(),
        Some(since) => duration(since, now),
    }
}

/// The time from one instant to another. Two seconds or more into the future: `<invalid>`.
pub fn duration(since: Timestamp, now: Timestamp) -> String {
    // Whole seconds towards zero: clocks may differ a little.
    let seconds = now.duration_since(since).as_secs();
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds, MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds, YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Two units; the smaller one is left out if it is zero.
fn two(seconds: i64, large: i64, large_name: char, small: i64, small_name: char) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    if rest == 0 {
        format!("{whole}{large_name}")
    } else {
        format!("{whole}{large_name}{rest}{small_name}")
    }
}
