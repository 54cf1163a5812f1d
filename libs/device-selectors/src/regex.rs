//! Regular expressions in Go's RE2 syntax, rewritten for the `regex` crate.
//!
//! Matching is the same (leftmost-first, no backtracking). The syntaxes differ: here classes are ASCII, `&&` and
//! friends are no operators inside `[…]`, a lone `{` is text, and what Go refuses is refused.

use ::regex::{Regex, RegexBuilder};

/// Largest count in `{n,m}`, and largest product of counts around one another.
const REPEAT_MAX: u32 = 1000;
/// Bytes a compiled pattern may take.
const SIZE_MAX: usize = 4 << 20;
/// Levels of groups in a pattern.
const NESTING_MAX: u32 = 200;
/// States a pattern may have, by the rough count of [`Prepared`]; known before the time to build them is spent.
pub(crate) const STATES_MAX: u64 = 100_000;
/// Rough counts of states, by the time they take to build: of a character, of a class of ASCII characters, of a class
/// that others can be in too, of a class of Unicode.
const CHARACTER_STATES: u64 = 1;
const CLASS_STATES: u64 = 8;
const WIDE_CLASS_STATES: u64 = 32;
const UNICODE_STATES: u64 = 4_000;

/// A pattern that was read but not built.
pub(crate) struct Prepared {
    rewritten: String,
    /// Roughly how many states it will have, counted repetitions written out. Building takes time in proportion.
    pub(crate) states: u64,
}

/// Reads `pattern`; the error is a sentence.
pub(crate) fn prepare(pattern: &str) -> Result<Prepared, String> {
    let prepared = rewrite(pattern).map_err(|what| format!("error parsing regexp: {what}: `{pattern}`"))?;
    if prepared.states > STATES_MAX {
        return Err(format!("error parsing regexp: expression too large: `{pattern}`"));
    }
    Ok(prepared)
}

impl Prepared {
    pub(crate) fn build(&self) -> Result<Regex, String> {
        RegexBuilder::new(&self.rewritten)
            .size_limit(SIZE_MAX)
            .nest_limit(NESTING_MAX)
            .build()
            .map_err(|_| format!("error parsing regexp: `{}`", self.rewritten))
    }
}

/// All matches, at most `limit` of them if that is not negative.
pub(crate) fn find_all<'t>(regex: &Regex, text: &'t str, limit: i64) -> Vec<&'t str> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    regex.find_iter(text).take(most).map(|m| m.as_str()).collect()
}

struct Rewriter<'a> {
    rest: std::str::Chars<'a>,
    out: String,
    /// The last thing was a repetition, which cannot be repeated again.
    repeated: bool,
    /// There is something to repeat.
    repeatable: bool,
    /// Sizes of what stands before, by open group, outermost first.
    groups: Vec<Size>,
    /// Size of the innermost open group so far.
    current: Size,
    /// Size of what a repetition would repeat.
    last: Size,
}

#[derive(Clone, Copy, Default)]
struct Size {
    states: u64,
    /// Largest product of counts around one another.
    repeats: u32,
}

fn rewrite(pattern: &str) -> Result<Prepared, &'static str> {
    let mut r = Rewriter {
        rest: pattern.chars(),
        out: String::new(),
        repeated: false,
        repeatable: false,
        groups: Vec::new(),
        current: Size::default(),
        last: Size::default(),
    };
    while let Some(c) = r.rest.next() {
        r.item(c)?;
    }
    if !r.groups.is_empty() {
        return Err("missing closing )");
    }
    Ok(Prepared {
        rewritten: r.out,
        states: r.current.states,
    })
}

/// ASCII forms of Perl classes, without brackets.
fn perl_class(c: char) -> Option<&'static str> {
    Some(match c.to_ascii_lowercase() {
        'd' => "0-9",
        's' => r"\t\n\f\r ",
        'w' => "0-9A-Za-z_",
        _ => return None,
    })
}

impl Rewriter<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.as_str().strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.chars();
                true
            }
            None => false,
        }
    }

    /// Notes that something was written that a repetition may follow.
    fn atom(&mut self, states: u64) {
        (self.repeated, self.repeatable) = (false, true);
        self.last = Size { states, repeats: 1 };
        self.current.states = self.current.states.saturating_add(states);
    }

    fn close_group(&mut self) -> Result<(), &'static str> {
        let outer = self.groups.pop().ok_or("unexpected )")?;
        let inner = std::mem::replace(&mut self.current, outer);
        self.atom(inner.states);
        self.last.repeats = inner.repeats.max(1);
        self.current.repeats = self.current.repeats.max(inner.repeats);
        Ok(())
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    fn item(&mut self, c: char) -> Result<(), &'static str> {
        match c {
            '\\' => self.escape(),
            '[' => self.class(),
            '(' => self.group(),
            ')' => {
                self.out.push(c);
                self.close_group()
            }
            '|' => {
                self.out.push(c);
                (self.repeated, self.repeatable) = (false, false);
                Ok(())
            }
            '*' | '+' | '?' => self.repetition(&c.to_string(), 1),
            '{' => match self.counts()? {
                Some((counts, times)) => self.repetition(&counts, times),
                None => {
                    self.literal(c);
                    self.atom(CHARACTER_STATES);
                    Ok(())
                }
            },
            '^' | '$' | '.' => {
                self.out.push(c);
                self.atom(WIDE_CLASS_STATES);
                Ok(())
            }
            _ => {
                self.literal(c);
                self.atom(CHARACTER_STATES);
                Ok(())
            }
        }
    }

    /// `times`: how often the repeated part is written out.
    fn repetition(&mut self, text: &str, times: u32) -> Result<(), &'static str> {
        if !self.repeatable {
            return Err("missing argument to repetition operator");
        }
        if self.repeated {
            return Err("invalid nested repetition operator");
        }
        self.out.push_str(text);
        if self.eat("?") {
            self.out.push('?');
        }
        self.repeated = true;
        let repeats = self.last.repeats.saturating_mul(times.max(1));
        if repeats > REPEAT_MAX {
            return Err("invalid repeat count");
        }
        let copies = self.last.states.saturating_mul(u64::from(times.saturating_sub(1)));
        self.current.states = self.current.states.saturating_add(copies);
        self.current.repeats = self.current.repeats.max(repeats);
        Ok(())
    }

    /// The rest of `{n}`, `{n,}` or `{n,m}` after the brace, with the larger count; `None` if it is text.
    fn counts(&mut self) -> Result<Option<(String, u32)>, &'static str> {
        let rest = self.rest.as_str();
        let Some(end) = rest.find('}') else { return Ok(None) };
        let body = &rest[..end];
        let (min, max) = match body.split_once(',') {
            None => (body, Some(body)),
            Some((min, "")) => (min, None),
            Some((min, max)) => (min, Some(max)),
        };
        let is_count = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
        if !is_count(min) || !max.is_none_or(is_count) {
            return Ok(None);
        }
        let small = |s: &str| {
            s.parse()
                .ok()
                .filter(|n: &u32| *n <= REPEAT_MAX)
                .ok_or("invalid repeat count")
        };
        let min = small(min)?;
        let max = max.map_or(Ok(min), small)?;
        if max < min {
            return Err("invalid repeat count");
        }
        let counts = format!("{{{body}}}");
        self.rest = rest[end + 1..].chars();
        Ok(Some((counts, max)))
    }

    fn group(&mut self) -> Result<(), &'static str> {
        self.groups.push(std::mem::take(&mut self.current));
        self.out.push('(');
        (self.repeated, self.repeatable) = (false, false);
        if !self.eat("?") {
            return Ok(());
        }
        self.out.push('?');
        let named = if self.eat("P<") {
            true
        } else {
            !self.rest.as_str().starts_with("<=") && !self.rest.as_str().starts_with("<!") && self.eat("<")
        };
        if named {
            let rest = self.rest.as_str();
            let end = rest.find('>').ok_or("invalid named capture")?;
            let name = &rest[..end];
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err("invalid named capture");
            }
            // Names are only text here; a digit in front, which Go allows, is not.
            self.out.push_str(&format!("P<n{name}>"));
            self.rest = rest[end + 1..].chars();
            return Ok(());
        }
        self.flags()
    }

    /// `i m s U`, perhaps switched off after `-`, then `:` or `)`.
    fn flags(&mut self) -> Result<(), &'static str> {
        let (mut negated, mut any_since_sign) = (false, false);
        for c in self.rest.by_ref() {
            match c {
                'i' | 'm' | 's' | 'U' => any_since_sign = true,
                '-' if !negated => (negated, any_since_sign) = (true, false),
                ':' | ')' if !negated || any_since_sign => {
                    self.out.push(c);
                    if c == ')' {
                        // Flags for the rest of the group around; nothing was inside.
                        self.current = self.groups.pop().unwrap_or_default();
                    }
                    return Ok(());
                }
                _ => break,
            }
            self.out.push(c);
        }
        Err("invalid or unsupported Perl syntax")
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        let c = self.rest.next().ok_or("trailing backslash at end of expression")?;
        match c {
            'b' | 'B' => self.out.push_str(if c == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" }),
            'A' | 'z' => {
                self.out.push('\\');
                self.out.push(c);
            }
            'Q' => return self.quoted(),
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => {
                let class = perl_class(c).unwrap_or_default();
                self.out
                    .push_str(&format!("[{}{class}]", if c.is_ascii_uppercase() { "^" } else { "" }));
            }
            'p' | 'P' => {
                self.unicode_class(c)?;
                self.atom(UNICODE_STATES);
                return Ok(());
            }
            _ => {
                let c = self.char_escape(c)?;
                self.hex(c);
            }
        }
        self.atom(if c.is_ascii_uppercase() {
            WIDE_CLASS_STATES
        } else {
            CLASS_STATES
        });
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), &'static str> {
        while !self.eat("\\E") {
            let Some(c) = self.rest.next() else { return Ok(()) };
            self.literal(c);
            self.atom(CHARACTER_STATES);
        }
        Ok(())
    }

    fn hex(&mut self, c: char) {
        self.out.push_str(&format!(r"\x{{{:x}}}", u32::from(c)));
    }

    /// The character that an escape after the backslash and `c` stands for.
    fn char_escape(&mut self, c: char) -> Result<char, &'static str> {
        const INVALID: &str = "invalid escape sequence";
        Ok(match c {
            'a' => '\x07',
            'f' => '\x0c',
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'v' => '\x0b',
            '0'..='7' => {
                // One digit other than 0 would be a back-reference.
                if c != '0' && !self.peek().is_some_and(|next| next.is_digit(8)) {
                    return Err(INVALID);
                }
                let mut code = c.to_digit(8).ok_or(INVALID)?;
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(|next| next.to_digit(8)) else {
                        break;
                    };
                    self.rest.next();
                    code = code * 8 + digit;
                }
                char::from_u32(code).ok_or(INVALID)?
            }
            'x' => self.hex_escape().ok_or(INVALID)?,
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return Err(INVALID),
        })
    }

    fn hex_escape(&mut self) -> Option<char> {
        let rest = self.rest.as_str();
        let (digits, len) = match rest.strip_prefix('{') {
            Some(inner) => {
                let end = inner.find('}')?;
                (&inner[..end], end + 2)
            }
            None => (rest.get(..2)?, 2),
        };
        if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = rest[len..].chars();
        char::from_u32(u32::from_str_radix(digits, 16).ok()?)
    }

    /// `\pL`, `\p{Greek}`, `\p{^Greek}`.
    fn unicode_class(&mut self, p: char) -> Result<(), &'static str> {
        const INVALID: &str = "invalid character class range";
        let c = self.rest.next().ok_or(INVALID)?;
        let mut name = c.to_string();
        if c == '{' {
            let rest = self.rest.as_str();
            let end = rest.find('}').ok_or(INVALID)?;
            name = rest[..end].to_owned();
            self.rest = rest[end + 1..].chars();
        }
        let negated = name.starts_with('^');
        let name = name.trim_start_matches('^');
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') {
            return Err(INVALID);
        }
        let p = if negated == (p == 'p') { 'P' } else { 'p' };
        self.out.push_str(&format!(r"\{p}{{{name}}}"));
        Ok(())
    }

    fn class(&mut self) -> Result<(), &'static str> {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let first = if self.out.ends_with('^') { WIDE_CLASS_STATES } else { 0 };
        let mut states = first;
        loop {
            let c = self.rest.next().ok_or("missing closing ]")?;
            if c == ']' && states > first {
                break;
            }
            states += self.class_item(c)?;
        }
        self.out.push(']');
        self.atom(states);
        Ok(())
    }

    /// One part of a class; returns its states.
    fn class_item(&mut self, c: char) -> Result<u64, &'static str> {
        if c == '[' && self.eat(":") {
            let rest = self.rest.as_str();
            if let Some(end) = rest.find(":]") {
                self.out.push_str(&format!("[:{}:]", &rest[..end]));
                self.rest = rest[end + 2..].chars();
                return Ok(CLASS_STATES);
            }
            return Err("invalid character class range");
        }
        if c == '\\' {
            match self.peek() {
                Some(p @ ('p' | 'P')) => {
                    self.rest.next();
                    self.unicode_class(p)?;
                    return Ok(UNICODE_STATES);
                }
                Some(d @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                    self.rest.next();
                    let class = perl_class(d).unwrap_or_default();
                    self.out
                        .push_str(&format!("[{}{class}]", if d.is_ascii_uppercase() { "^" } else { "" }));
                    return Ok(CLASS_STATES);
                }
                _ => {}
            }
        }
        let low = self.class_char(c)?;
        self.hex(low);
        let rest = self.rest.as_str();
        if rest.starts_with('-') && !rest.starts_with("-]") && rest.len() > 1 {
            self.rest.next();
            let next = self.rest.next().ok_or("missing closing ]")?;
            let high = self.class_char(next)?;
            if high < low {
                return Err("invalid character class range");
            }
            self.out.push('-');
            self.hex(high);
        }
        Ok(if low.is_ascii() { CLASS_STATES } else { WIDE_CLASS_STATES })
    }

    fn class_char(&mut self, c: char) -> Result<char, &'static str> {
        if c != '\\' {
            return Ok(c);
        }
        let escaped = self.rest.next().ok_or("missing closing ]")?;
        self.char_escape(escaped)
    }
}
