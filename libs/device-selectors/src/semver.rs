//! Semantic versions as upstream's parser takes them: three 64-bit numbers, build metadata kept but ignored in
//! comparisons. (The usual crates order build metadata, which would change `==`.)

use std::cmp::Ordering;
use std::fmt;

use crate::error::{EvalError, EvalErrorKind};

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pre: Vec<Identifier>,
    build: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    // Numbers sort before text.
    Number(u64),
    Text(String),
}

impl Version {
    /// Exactly three numbers without leading zeros, then `-pre` and `+build`.
    pub(crate) fn parse(text: &str) -> Result<Self, EvalError> {
        let (core, build) = split_at(text, '+');
        let (core, pre) = split_at(core, '-');
        let mut numbers = core.splitn(3, '.');
        let mut number = || {
            numbers
                .next()
                .ok_or_else(|| invalid(text))
                .and_then(|part| self::number(part, text))
        };
        let (major, minor, patch) = (number()?, number()?, number()?);
        let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(|id| identifier(id, text)).collect())?;
        let build = build.map_or(Ok(Vec::new()), |build| {
            build.split('.').map(|id| build_id(id, text)).collect()
        })?;
        Ok(Self {
            major,
            minor,
            patch,
            pre,
            build,
        })
    }

    /// Forgives a leading `v`, missing parts and leading zeros.
    pub(crate) fn parse_tolerant(text: &str) -> Result<Self, EvalError> {
        let stripped = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = stripped.splitn(3, '.').map(without_leading_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err(invalid(text));
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    /// Order by semver.org; build metadata does not take part.
    pub(crate) fn precedence(&self, other: &Self) -> Ordering {
        let core = |v: &Self| (v.major, v.minor, v.patch);
        core(self)
            .cmp(&core(other))
            .then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                // A release is above its pre-releases.
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre.cmp(&other.pre),
            })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (i, id) in self.pre.iter().enumerate() {
            f.write_str(if i == 0 { "-" } else { "." })?;
            match id {
                Identifier::Number(n) => write!(f, "{n}")?,
                Identifier::Text(text) => f.write_str(text)?,
            }
        }
        for (i, id) in self.build.iter().enumerate() {
            write!(f, "{}{id}", if i == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}

fn split_at(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn invalid(text: &str) -> EvalError {
    EvalError::invalid(format!("invalid semantic version {text:?}"))
}

fn number(part: &str, text: &str) -> Result<u64, EvalError> {
    let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits || (part.len() > 1 && part.starts_with('0')) {
        return Err(invalid(text));
    }
    part.parse().map_err(|_| {
        EvalError::new(
            EvalErrorKind::OutOfRange,
            format!("number out of range in semantic version {text:?}"),
        )
    })
}

fn is_identifier(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn identifier(id: &str, text: &str) -> Result<Identifier, EvalError> {
    if !is_identifier(id) {
        return Err(invalid(text));
    }
    if id.bytes().all(|b| b.is_ascii_digit()) {
        return number(id, text).map(Identifier::Number);
    }
    Ok(Identifier::Text(id.to_owned()))
}

fn build_id(id: &str, text: &str) -> Result<String, EvalError> {
    if is_identifier(id) {
        Ok(id.to_owned())
    } else {
        Err(invalid(text))
    }
}

fn without_leading_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let stripped = part.trim_start_matches('0');
    match stripped.bytes().next() {
        Some(b'0'..=b'9') => stripped.to_owned(),
        _ => format!("0{stripped}"),
    }
}
