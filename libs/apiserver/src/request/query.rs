//! The query of a URL, decoded.

use crate::status::Status;

/// Bytes of a path and of a query. Selectors are the longest parts of real ones.
pub const URL_PART_BYTES_MAX: usize = 128 * 1024;

/// Names and values of a query, in their order. Pairs with broken escapes are left out, as upstream does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Decodes a query. 400 if it has more than [`URL_PART_BYTES_MAX`] bytes.
    pub fn parse(text: &str) -> Result<Self, Status> {
        if text.len() > URL_PART_BYTES_MAX {
            return Err(Status::bad_request(format!("query has more than {URL_PART_BYTES_MAX} bytes")));
        }
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let pairs = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        });
        Ok(Self { pairs: pairs.collect() })
    }

    /// The first value of a name; the others do not count.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of a name.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = move |pair: &&'a (String, String)| pair.0 == name;
        self.pairs.iter().filter(named).map(|(_, value)| value.as_str())
    }

    /// A flag: absent, or set unless it is `0` or `false`.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.first(name)
            .map(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
    }

    /// A whole number. 400 with upstream's text if it is none.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let number = |text: &str| {
            text.parse::<i64>().map_err(|error| {
                let why = match error.kind() {
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
            })
        };
        self.first(name).map(number).transpose()
    }
}

/// Undoes percent encoding. `None` if an escape is broken or the result is not UTF-8.
pub fn decode(text: &str, plus_is_blank: bool) -> Option<String> {
    if !text.contains(['%', '+'].as_slice()) {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? * 16 + hex(rest.next()?)?,
            b'+' if plus_is_blank => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
