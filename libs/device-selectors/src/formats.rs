//! Named formats: what `format.<name>().validate(text)` accepts, and the sentences it answers with.

use resource_api::names;

use crate::url::Url;

/// Every format as (name of its function, name of the format).
pub(crate) const CONSTRUCTORS: [(&str, &str); 13] = [
    ("format.dns1123Label", "dns1123Label"),
    ("format.dns1123LabelPrefix", "dns1123LabelPrefix"),
    ("format.dns1123Subdomain", "dns1123Subdomain"),
    ("format.dns1123SubdomainPrefix", "dns1123SubdomainPrefix"),
    ("format.dns1035Label", "dns1035Label"),
    ("format.dns1035LabelPrefix", "dns1035LabelPrefix"),
    ("format.qualifiedName", "qualifiedName"),
    ("format.labelValue", "labelValue"),
    ("format.uri", "uri"),
    ("format.uuid", "uuid"),
    ("format.byte", "byte"),
    ("format.date", "date"),
    ("format.datetime", "datetime"),
];

/// The format called `name`.
pub(crate) fn named(name: &str) -> Option<&'static str> {
    CONSTRUCTORS.iter().map(|(_, format)| *format).find(|format| *format == name)
}

/// Sentences about what is wrong with `text`; none if it is valid.
pub(crate) fn validate(format: &str, text: &str) -> Vec<String> {
    match format {
        "dns1123Label" => names::dns_label(text),
        "dns1123LabelPrefix" => names::dns_label(&masked(text)),
        "dns1123Subdomain" => names::dns_subdomain(text),
        "dns1123SubdomainPrefix" => names::dns_subdomain(&masked(text)),
        "dns1035Label" => dns1035_label(text),
        "dns1035LabelPrefix" => dns1035_label(&masked(text)),
        "qualifiedName" => names::label_key(text),
        "labelValue" => names::label_value(text),
        "uri" => one(Url::parse(text).is_some(), "invalid URI"),
        "uuid" => one(is_uuid(text), "does not match the UUID format"),
        "byte" => one(is_base64(text), "invalid base64"),
        "date" => one(is_date(text), "invalid date"),
        "datetime" => one(is_datetime(text), "invalid datetime"),
        _ => Vec::new(),
    }
}

/// The size of the pattern behind a format, as the cost at run time counts it.
pub(crate) fn pattern_size(format: &str) -> u64 {
    match format {
        "dns1123Subdomain" | "dns1123SubdomainPrefix" | "qualifiedName" => 60,
        "labelValue" => 40,
        "uri" => 1103,
        "uuid" => 70,
        "byte" => 84,
        "date" | "datetime" => 71,
        _ => 30,
    }
}

fn one(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

/// Prefix forms check a name as if something followed: the last two characters become one `a` if the text ends
/// in `-`. What the dash followed is thereby never looked at, upstream either.
fn masked(text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    if chars.len() > 1 && text.ends_with('-') {
        chars.truncate(chars.len() - 2);
        chars.push('a');
    }
    chars.into_iter().collect()
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} bytes"))
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 63).into_iter().collect();
    let inner = text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !inner || !text.starts_with(|c: char| c.is_ascii_lowercase()) || text.ends_with('-') {
        wrong.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character"
                .to_owned(),
        );
    }
    wrong
}

/// 32 hex digits in groups of 8-4-4-4-12; each dash may be missing.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..len) {
            Some(group) if group.bytes().all(|b| b.is_ascii_hexdigit()) => rest = &rest[len..],
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Standard base64 with padding, not empty.
fn is_base64(text: &str) -> bool {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    let digits = &text.as_bytes()[..text.len() - padding];
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && digits.iter().all(|b| b.is_ascii_alphanumeric() || b"+/".contains(b))
}

fn number(text: Option<&str>) -> Option<i64> {
    let text = text?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn is_date(text: &str) -> bool {
    let shape = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    let parts = || Some((number(text.get(..4))?, number(text.get(5..7))?, number(text.get(8..10))?));
    shape && parts().is_some_and(|(year, month, day)| crate::time::is_date(year, month, day))
}

/// A date, `T`, a time of day, perhaps a fraction (any character may stand before its digits), an offset.
fn is_datetime(text: &str) -> bool {
    let Some((date, rest)) = text.split_at_checked(10) else {
        return false;
    };
    let Some(time) = rest.strip_prefix(['t', 'T']) else {
        return false;
    };
    let field = |at: usize, most| number(time.get(at..at + 2)).is_some_and(|n| n <= most);
    let colons = time.as_bytes().get(2) == Some(&b':') && time.as_bytes().get(5) == Some(&b':');
    is_date(date) && colons && field(0, 23) && field(3, 59) && field(6, 59) && time.get(8..).is_some_and(is_zone)
}

fn is_zone(text: &str) -> bool {
    if is_offset(text) {
        return true;
    }
    let mut chars = text.chars();
    let fraction = chars.next().map(|_| chars.as_str()).unwrap_or_default();
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && is_offset(&fraction[digits..])
}

fn is_offset(text: &str) -> bool {
    if text == "z" || text == "Z" {
        return true;
    }
    let bytes = text.as_bytes();
    bytes.len() == 6
        && matches!(bytes[0], b'+' | b'-')
        && bytes[3] == b':'
        && [1, 2, 4, 5].iter().all(|i| bytes[*i].is_ascii_digit())
}
