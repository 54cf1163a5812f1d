//! The grammars of names and other small texts. Each function returns every rule that a text breaks, as sentences; no
//! rule broken: empty. Lengths are in bytes.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation` and `pkg/api/validate/content`; semver.org 2.0.0.

use std::net::IpAddr;

/// Longest domain of a qualified name, and longest driver name.
pub const DOMAIN_LENGTH_MAX: usize = 63;
/// Longest id of a qualified name.
pub const ID_LENGTH_MAX: usize = 32;
/// Longest pool name.
pub const POOL_NAME_LENGTH_MAX: usize = 253;

const LABEL_LENGTH_MAX: usize = 63;
const SUBDOMAIN_LENGTH_MAX: usize = 253;

/// Lower-case letters, digits and inner `-`; 1 to 63.
pub fn dns_label(text: &str) -> Vec<String> {
    let grammar = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                   and end with an alphanumeric character";
    broken([
        (text.len() > LABEL_LENGTH_MAX).then(|| at_most(LABEL_LENGTH_MAX)),
        (!is_dns_label_text(text)).then(|| grammar.to_owned()),
    ])
}

/// Label texts joined by `.`; 1 to 253.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let grammar = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                   must start and end with an alphanumeric character";
    broken([
        (text.len() > SUBDOMAIN_LENGTH_MAX).then(|| at_most(SUBDOMAIN_LENGTH_MAX)),
        (!text.split('.').all(is_dns_label_text)).then(|| grammar.to_owned()),
    ])
}

/// A DNS subdomain in any case; 1 to 63.
pub fn driver_name(text: &str) -> Vec<String> {
    let too_long = (text.len() > DOMAIN_LENGTH_MAX).then(|| at_most(DOMAIN_LENGTH_MAX));
    too_long
        .into_iter()
        .chain(dns_subdomain(&text.to_ascii_lowercase()))
        .collect()
}

/// DNS subdomains joined by `/`; 1 to 253 in all.
pub fn pool_name(text: &str) -> Vec<String> {
    let too_long = (text.len() > POOL_NAME_LENGTH_MAX).then(|| at_most(POOL_NAME_LENGTH_MAX));
    too_long.into_iter().chain(text.split('/').flat_map(dns_subdomain)).collect()
}

/// `[prefix/]name` with a DNS subdomain as prefix; name of 1 to 63.
pub fn label_key(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => return vec!["a valid label key is a name with an optional DNS subdomain prefix and '/'".to_owned()],
    };
    let prefix_rules = match prefix {
        None => Vec::new(),
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => dns_subdomain(prefix)
            .into_iter()
            .map(|rule| format!("prefix part {rule}"))
            .collect(),
    };
    let grammar = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                   alphanumeric character";
    let name_rules = broken([
        name.is_empty().then(|| "name part must be non-empty".to_owned()),
        (name.len() > LABEL_LENGTH_MAX).then(|| format!("name part {}", at_most(LABEL_LENGTH_MAX))),
        (!is_label_text(name)).then(|| grammar.to_owned()),
    ]);
    prefix_rules.into_iter().chain(name_rules).collect()
}

/// Empty, or the name part of a label key.
pub fn label_value(text: &str) -> Vec<String> {
    let grammar = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                   must start and end with an alphanumeric character";
    broken([
        (text.len() > LABEL_LENGTH_MAX).then(|| at_most(LABEL_LENGTH_MAX)),
        (!text.is_empty() && !is_label_text(text)).then(|| grammar.to_owned()),
    ])
}

/// A letter or `_`, then letters, digits and `_`. The length is not looked at.
pub fn c_identifier(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let starts = bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let fits = starts && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let grammar = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                   alphanumeric characters or '_'";
    broken([(!fits).then(|| grammar.to_owned())])
}

/// A lower-case UUID in its 36-byte form.
pub fn uuid(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let fits = bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
    let grammar = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                   hexadecimal characters";
    broken([(!fits).then(|| grammar.to_owned())])
}

/// A semantic version without leading `v`. Numbers have no bound. The length is not looked at.
pub fn version(text: &str) -> Vec<String> {
    let fits = is_version(text);
    broken([(!fits).then(|| "must be a string compatible with semver.org spec 2.0.0".to_owned())])
}

/// Reason of a condition: a letter, then letters, digits, `_`, and inside also `,` and `:`.
pub fn condition_reason(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let fits = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(word)
        && bytes.iter().all(|byte| word(byte) || matches!(byte, b',' | b':'));
    let grammar = "a condition reason must start with alphabetic character, optionally followed by a string of \
                   alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    broken([(!fits).then(|| grammar.to_owned())])
}

/// An IP address with prefix length in canonical form; host bits are allowed.
pub fn interface_address(text: &str) -> Vec<String> {
    let form = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
    match canonical_interface_address(text) {
        None => vec![form.to_owned()],
        Some(canonical) if canonical != text => vec![format!("must be in canonical form ({canonical:?})")],
        Some(_) => Vec::new(),
    }
}

/// A resource name outside of Kubernetes' own, such as `example.com/gpu`.
pub fn extended_resource_name(text: &str) -> Vec<String> {
    let native = !text.contains('/') || text.contains("kubernetes.io/");
    let fits = !native && !text.starts_with("requests.") && label_key(&format!("requests.{text}")).is_empty();
    broken([(!fits).then(|| "must be a valid extended resource name".to_owned())])
}

fn broken<const N: usize>(rules: [Option<String>; N]) -> Vec<String> {
    rules.into_iter().flatten().collect()
}

fn at_most(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

fn is_dns_label_text(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre_release) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| is_number(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre_release.is_none_or(|ids| ids.split('.').all(|id| word(id) && (!is_number(id) || number(id))))
        && build.is_none_or(|ids| ids.split('.').all(word))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn canonical_interface_address(text: &str) -> Option<String> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = length.parse().ok()?;
    match (address.parse::<IpAddr>().ok()?, length) {
        (IpAddr::V4(address), 0..=32) => Some(format!("{address}/{length}")),
        (IpAddr::V6(address), 0..=128) => Some(match (address.to_ipv4_mapped(), length.checked_sub(96)) {
            // An IPv4 address in IPv6 clothes is canonical without them.
            (Some(address), Some(length)) => format!("{address}/{length}"),
            (Some(address), None) => format!("{address}/{length}"),
            (None, _) => format!("{address}/{length}"),
        }),
        _ => None,
    }
}
