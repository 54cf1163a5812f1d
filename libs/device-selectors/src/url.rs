//! URLs by Go's rules for request URIs: an absolute URI or an absolute path.

use crate::functions::UrlPart;

/// A parsed URL. Parts are decoded except for path and query.
#[derive(Clone, Debug)]
pub(crate) struct Url {
    text: String,
    scheme: String,
    host: String,
    escaped_path: String,
    query: String,
}

impl Url {
    /// Parses `text`, first as a request URI (which decides), then once more with a fragment allowed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        Parts::of(text, true)?;
        let (without_fragment, fragment) = text.split_once('#').map_or((text, None), |(u, f)| (u, Some(f)));
        let parts = Parts::of(without_fragment, false)?;
        unescape(fragment.unwrap_or_default(), false)?;
        let escaped_path = escaped_path(parts.path)?;
        let mut normal = String::new();
        if !parts.scheme.is_empty() {
            normal = format!("{}:", parts.scheme);
        }
        normal.push_str(parts.opaque);
        if let Some(authority) = parts.authority {
            normal.push_str("//");
            normal.push_str(authority);
        }
        normal.push_str(&escaped_path);
        if parts.has_query {
            normal.push('?');
            normal.push_str(parts.query);
        }
        if let Some(fragment) = fragment {
            normal.push('#');
            normal.push_str(fragment);
        }
        Some(Self {
            text: normal,
            scheme: parts.scheme,
            host: parts.host,
            escaped_path,
            query: parts.query.to_owned(),
        })
    }

    /// The text put together again from the parts; decides equality.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn part(&self, part: UrlPart) -> &str {
        match part {
            UrlPart::Scheme => &self.scheme,
            UrlPart::Host => &self.host,
            UrlPart::Hostname => self.hostname(),
            UrlPart::Port => self.port(),
            UrlPart::EscapedPath => &self.escaped_path,
        }
    }

    fn split_port(&self) -> (&str, &str) {
        match self.host.rfind(':') {
            Some(colon) if is_optional_port(&self.host[colon..]) => (&self.host[..colon], &self.host[colon + 1..]),
            _ => (&self.host, ""),
        }
    }

    fn hostname(&self) -> &str {
        let host = self.split_port().0;
        host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
    }

    fn port(&self) -> &str {
        self.split_port().1
    }

    /// Decoded pairs in order; pairs with `;` or bad escapes are left out.
    pub(crate) fn query_pairs(&self) -> Vec<(String, String)> {
        let decode = |pair: &str| {
            if pair.is_empty() || pair.contains(';') {
                return None;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape(key, true)?, unescape(value, true)?))
        };
        self.query.split('&').filter_map(decode).collect()
    }
}

struct Parts<'a> {
    scheme: String,
    opaque: &'a str,
    authority: Option<&'a str>,
    host: String,
    path: &'a str,
    query: &'a str,
    has_query: bool,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str, as_request: bool) -> Option<Self> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return None;
        }
        let (scheme, rest) = scheme(text)?;
        let has_query = rest.contains('?');
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = scheme.to_ascii_lowercase();
        let mut parts = Self {
            scheme,
            opaque: "",
            authority: None,
            host: String::new(),
            path: rest,
            query,
            has_query,
        };
        if text == "*" {
            return Some(parts);
        }
        if !rest.starts_with('/') {
            if !parts.scheme.is_empty() {
                (parts.opaque, parts.path) = (rest, "");
                return Some(parts);
            }
            if as_request || rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return None;
            }
        }
        let may_have_authority = !parts.scheme.is_empty() || (!as_request && !rest.starts_with("///"));
        if let Some(after) = rest.strip_prefix("//").filter(|_| may_have_authority) {
            let end = after.find('/').unwrap_or(after.len());
            parts.authority = Some(&after[..end]);
            parts.path = &after[end..];
            parts.host = host_of(&after[..end])?;
        }
        unescape(parts.path, false)?;
        Some(parts)
    }
}

/// Splits off a scheme; `None` if the text starts with a colon.
fn scheme(text: &str) -> Option<(&str, &str)> {
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return None,
            b':' => return Some((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

fn host_of(authority: &str) -> Option<String> {
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(allowed) {
            return None;
        }
        unescape(user, false)?;
    }
    if let Some(rest) = host.strip_prefix('[') {
        let (inner, port) = rest.rsplit_once(']')?;
        let address = inner.split("%25").next().unwrap_or(inner);
        let valid = is_optional_port(port) && address.parse::<std::net::Ipv6Addr>().is_ok();
        return valid.then(|| host.to_owned());
    }
    if let Some(colon) = host.rfind(':')
        && !is_optional_port(&host[colon..])
    {
        return None;
    }
    let allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    if !host.chars().all(allowed) {
        return None;
    }
    unescape(host, false)
}

/// Empty, or a colon and any number of digits.
fn is_optional_port(text: &str) -> bool {
    match text.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_digit()),
        None => text.is_empty(),
    }
}

/// Decodes `%XX`, and `+` as a blank if `plus`. `None` on a bad escape. Bytes that are no UTF-8 become U+FFFD.
fn unescape(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let (high, low) = (hex(bytes.next()?)?, hex(bytes.next()?)?);
                out.push(high * 16 + low);
            }
            b'+' if plus => out.push(b' '),
            _ => out.push(byte),
        }
    }
    Some(match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The path as given if it is a valid encoding, else encoded anew.
fn escaped_path(path: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b);
    if path.bytes().all(|b| plain(b) || b"!'()*[]%".contains(&b)) {
        return Some(path.to_owned());
    }
    let mut out = String::new();
    for byte in unescape(path, false)?.bytes() {
        if plain(byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(out)
}
