//! Text to tokens. Positions are byte offsets; literals are decoded here, so the parser sees values.

use std::fmt;
use std::sync::Arc;

use crate::error::{CompileErrorKind, Refusal};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// Operators and punctuation, spelled as written.
    Punct(&'static str),
    Ident(Arc<str>),
    /// `` `x-y` ``: only after a dot.
    QuotedIdent(Arc<str>),
    Null,
    Bool(bool),
    In,
    /// Digits of an int literal; the sign decides whether they fit.
    Int {
        digits: Arc<str>,
        hex: bool,
    },
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    End,
}

impl fmt::Display for Token {
    /// The token as a message names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Punct(text) => write!(f, "'{text}'"),
            Self::Ident(name) | Self::QuotedIdent(name) => write!(f, "'{name}'"),
            Self::Null => f.write_str("'null'"),
            Self::Bool(value) => write!(f, "'{value}'"),
            Self::In => f.write_str("'in'"),
            Self::Int { .. } | Self::Uint(_) | Self::Double(_) => f.write_str("a number"),
            Self::String(_) => f.write_str("a string"),
            Self::Bytes(_) => f.write_str("bytes"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// Two-character operators first, so that the longest match wins.
const PUNCTUATION: [&str; 26] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", ".", ",", "(", ")", "[", "]", "{", "}",
    "=", "&",
];

/// Splits `source` into tokens with their byte offsets; the last one is [`Token::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, u32)>, Refusal> {
    let mut lexer = Lexer { source, at: 0 };
    let mut out = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        out.push((token, start as u32));
        if end {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

fn syntax(at: usize, message: impl Into<String>) -> Refusal {
    Refusal::new(
        CompileErrorKind::Syntax,
        at as u32,
        format!("Syntax error: {}", message.into()),
    )
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0c => self.at += 1,
                b'/' if self.peek_at(1) == Some(b'/') => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Result<Token, Refusal> {
        let Some(byte) = self.peek() else { return Ok(Token::End) };
        if let Some((raw, bytes, quote)) = self.string_start() {
            self.at = quote;
            return self.string(raw, bytes);
        }
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Ok(self.word()),
            b'0'..=b'9' => self.number(),
            b'.' if self.peek_at(1).is_some_and(|b| b.is_ascii_digit()) => self.number(),
            b'`' => self.quoted_ident(),
            _ => self.punctuation(),
        }
    }

    /// Whether a string literal starts here: (raw, bytes, offset of the quote).
    fn string_start(&self) -> Option<(bool, bool, usize)> {
        let (mut raw, mut bytes, mut ahead) = (false, false, 0);
        if matches!(self.peek_at(ahead), Some(b'b' | b'B')) {
            bytes = true;
            ahead += 1;
        }
        if matches!(self.peek_at(ahead), Some(b'r' | b'R')) {
            raw = true;
            ahead += 1;
        }
        matches!(self.peek_at(ahead), Some(b'"' | b'\'')).then_some((raw, bytes, self.at + ahead))
    }

    fn punctuation(&mut self) -> Result<Token, Refusal> {
        let found = PUNCTUATION.iter().find(|p| self.rest().starts_with(**p));
        let Some(punct) = found.filter(|p| **p != "=" && **p != "&") else {
            let unknown = self.rest().chars().next().unwrap_or(' ');
            return Err(syntax(self.at, format!("token recognition error at: '{unknown}'")));
        };
        self.at += punct.len();
        Ok(Token::Punct(punct))
    }

    fn word(&mut self) -> Token {
        let end = self.rest().find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let word = &self.rest()[..end.unwrap_or(self.rest().len())];
        self.at += word.len();
        match word {
            "true" => Token::Bool(true),
            "false" => Token::Bool(false),
            "null" => Token::Null,
            "in" => Token::In,
            _ => Token::Ident(word.into()),
        }
    }

    fn quoted_ident(&mut self) -> Result<Token, Refusal> {
        let start = self.at;
        let body = &self.rest()[1..];
        let Some(len) = body.find('`') else {
            return Err(syntax(start, "unterminated quoted field name"));
        };
        let name = &body[..len];
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-/ ".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(syntax(start, format!("invalid quoted field name '{name}'")));
        }
        self.at += len + 2;
        Ok(Token::QuotedIdent(name.into()))
    }

    fn digits(&mut self, accept: fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(accept) {
            self.at += 1;
        }
        &self.source[start..self.at]
    }

    fn number(&mut self) -> Result<Token, Refusal> {
        let start = self.at;
        if self.peek() == Some(b'0') && self.peek_at(1) == Some(b'x') && self.peek_at(2).is_some_and(|b| b.is_ascii_hexdigit()) {
            self.at += 2;
            let digits = self.digits(|b| b.is_ascii_hexdigit());
            return self.integer(start, digits, true);
        }
        let whole = self.digits(|b| b.is_ascii_digit());
        let fraction = self.peek() == Some(b'.') && self.peek_at(1).is_some_and(|b| b.is_ascii_digit());
        if fraction {
            self.at += 1;
            self.digits(|b| b.is_ascii_digit());
        }
        let exponent = self.exponent();
        if !fraction && !exponent {
            return self.integer(start, whole, false);
        }
        match self.source[start..self.at].parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Token::Double(value)),
            _ => Err(syntax(start, "invalid double literal")),
        }
    }

    /// Takes `e`, an optional sign and digits, if all of it is there.
    fn exponent(&mut self) -> bool {
        if !matches!(self.peek(), Some(b'e' | b'E')) {
            return false;
        }
        let sign = usize::from(matches!(self.peek_at(1), Some(b'+' | b'-')));
        if !self.peek_at(1 + sign).is_some_and(|b| b.is_ascii_digit()) {
            return false;
        }
        self.at += 1 + sign;
        self.digits(|b| b.is_ascii_digit());
        true
    }

    fn integer(&mut self, start: usize, digits: &str, hex: bool) -> Result<Token, Refusal> {
        if !matches!(self.peek(), Some(b'u' | b'U')) {
            return Ok(Token::Int {
                digits: digits.into(),
                hex,
            });
        }
        self.at += 1;
        let radix = if hex { 16 } else { 10 };
        match u64::from_str_radix(digits, radix) {
            Ok(value) => Ok(Token::Uint(value)),
            Err(_) => Err(syntax(start, "invalid uint literal")),
        }
    }

    /// A string or bytes literal whose opening quote is at `self.at`.
    fn string(&mut self, raw: bool, bytes: bool) -> Result<Token, Refusal> {
        let start = self.at;
        let quote = &self.rest()[..1];
        let triple = self.rest().starts_with(&quote.repeat(3));
        let close = if triple { quote.repeat(3) } else { quote.to_owned() };
        self.at += close.len();
        let mut out = Vec::new();
        loop {
            if self.rest().starts_with(&close) {
                self.at += close.len();
                break;
            }
            let Some(c) = self.rest().chars().next() else {
                return Err(syntax(start, "unterminated string"));
            };
            if !triple && (c == '\n' || c == '\r') {
                return Err(syntax(start, "newline in string"));
            }
            if c == '\\' && !raw {
                self.escape(bytes, &mut out)?;
            } else {
                self.at += c.len_utf8();
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if bytes {
            return Ok(Token::Bytes(out.into()));
        }
        match String::from_utf8(out) {
            Ok(text) => Ok(Token::String(text.into())),
            Err(_) => Err(syntax(start, "string is not valid UTF-8")),
        }
    }

    /// Decodes one escape. In strings `\x` and octal give a code point, in bytes a byte.
    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let start = self.at;
        let bad = || syntax(start, "invalid escape sequence");
        let letter = self.peek_at(1).ok_or_else(bad)?;
        self.at += 2;
        let simple = match letter {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'\\' | b'"' | b'\'' | b'?' | b'`' => letter,
            _ => 0,
        };
        if simple != 0 {
            out.push(simple);
            return Ok(());
        }
        let (len, radix) = match letter {
            b'x' | b'X' => (2, 16),
            b'u' if !bytes => (4, 16),
            b'U' if !bytes => (8, 16),
            b'0'..=b'3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return Err(bad()),
        };
        let digits = self.rest().get(..len).ok_or_else(bad)?;
        if !digits.bytes().all(|b| (b as char).is_digit(radix)) {
            return Err(bad());
        }
        self.at += len;
        let code = u32::from_str_radix(digits, radix).map_err(|_| bad())?;
        if bytes {
            out.push(u8::try_from(code).map_err(|_| bad())?);
        } else {
            let c = char::from_u32(code).ok_or_else(bad)?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}
