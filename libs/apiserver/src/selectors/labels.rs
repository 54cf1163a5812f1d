//! Label selectors: requirements joined by commas.

use std::collections::BTreeSet;
use std::fmt;

use resource_api::names;
use serde_json::Value;

use super::{SelectorError, check_size};
use crate::object;

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`; also objects without the key.
    NotIn,
    /// `key=a`
    Equals,
    /// `key==a`
    DoubleEquals,
    /// `key!=a`; also objects without the key.
    NotEquals,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>1`
    GreaterThan,
    /// `key<1`
    LessThan,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// One value but for `in` and `notin`; none for existence.
    pub values: BTreeSet<String>,
}

/// Selects objects by their labels: every requirement must hold. Displays as canonical text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Sorted by key.
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses a selector; the empty text selects everything.
    ///
    /// The error's text is upstream's, except that grammars of keys and values are described without their patterns.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_size(text)?;
        let tokens = tokens(text);
        let mut requirements = Parser { tokens, at: 0 }.selector()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Reads a selector in the form that objects have: `matchLabels` and `matchExpressions`. `None` if it is not well-formed.
    pub fn from_value(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            requirements.push(Requirement {
                key: key.clone(),
                operator: Operator::Equals,
                values: BTreeSet::from([value.as_str()?.to_owned()]),
            });
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            requirements.push(Requirement {
                key: object::text_at(expression, &["key"]).to_owned(),
                operator: match object::text_at(expression, &["operator"]) {
                    "In" => Operator::In,
                    "NotIn" => Operator::NotIn,
                    "Exists" => Operator::Exists,
                    "DoesNotExist" => Operator::DoesNotExist,
                    _ => return None,
                },
                values: values.map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            });
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Some(Self { requirements })
    }

    /// True if everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// True if labels are selected; `label` finds the value of a key.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compares(value, |label, bound| label > bound),
            Operator::LessThan => self.compares(value, |label, bound| label < bound),
        }
    }

    fn compares(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|bound| number(bound));
        matches!((value.and_then(number), bound), (Some(label), Some(bound)) if holds(label, bound))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A word or a mark. `in` and `notin` are words; only their place tells that they are operators.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(&'static str),
    /// Marks that mean nothing.
    Bad(String),
    End,
}

impl Token {
    fn shown(&self) -> &str {
        match self {
            Self::Word(text) | Self::Bad(text) => text,
            Self::Mark(mark) => mark,
            Self::End => "",
        }
    }

    fn is_word(&self) -> bool {
        matches!(self, Self::Word(_))
    }
}

const MARKS: [&str; 9] = ["==", "!=", "!", "=", ">", "<", "(", ")", ","];

fn tokens(text: &str) -> Vec<Token> {
    let is_blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let is_mark = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while let Some(first) = rest.chars().next() {
        if is_mark(first) {
            let mark = MARKS.into_iter().find(|mark| rest.starts_with(mark)).unwrap_or_default();
            found.push(Token::Mark(mark));
            rest = &rest[mark.len()..];
        } else if first == '\0' {
            // Ends the text for upstream; here it is an error, since nobody means it.
            found.push(Token::Bad("\\0".to_owned()));
            break;
        } else {
            let end = rest.find(|c| is_blank(c) || is_mark(c) || c == '\0').unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start_matches(is_blank);
    }
    found.push(Token::End);
    found
}

struct Parser {
    /// Ends with [`Token::End`].
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        let expected = |found: &Token, what: &str| SelectorError::new(format!("found '{}', expected: {what}", found.shown()));
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                Token::Word(_) | Token::Mark("!") => {}
                other => return Err(expected(other, "!, identifier, or 'end of string'")),
            }
            let requirement = self
                .requirement()
                .map_err(|text| SelectorError::new(format!("unable to parse requirement: {text}")))?;
            requirements.push(requirement);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Mark(",") => {}
                other => return Err(expected(&other, "',' or 'end of string'")),
            }
            match self.peek() {
                Token::Word(_) | Token::Mark("!") => {}
                other => return Err(expected(other, "identifier after ','")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let is_negated = *self.peek() == Token::Mark("!");
        if is_negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.shown())),
        };
        let rules = names::label_key(&key);
        if !rules.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", rules.join("; ")));
        }
        let ends = matches!(self.peek(), Token::End | Token::Mark(","));
        if is_negated || ends {
            let operator = if is_negated {
                Operator::DoesNotExist
            } else {
                Operator::Exists
            };
            return Ok(Requirement {
                key,
                operator,
                values: BTreeSet::new(),
            });
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            Operator::Equals
            | Operator::DoubleEquals
            | Operator::NotEquals
            | Operator::Exists
            | Operator::DoesNotExist
            | Operator::GreaterThan
            | Operator::LessThan => BTreeSet::from([self.exact_value()?]),
        };
        check_values(&key, operator, &values)?;
        Ok(Requirement { key, operator, values })
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.next() {
            Token::Word(word) if word == "in" => Operator::In,
            Token::Word(word) if word == "notin" => Operator::NotIn,
            Token::Mark("=") => Operator::Equals,
            Token::Mark("==") => Operator::DoubleEquals,
            Token::Mark("!=") => Operator::NotEquals,
            Token::Mark(">") => Operator::GreaterThan,
            Token::Mark("<") => Operator::LessThan,
            other => {
                let operators = "in, notin, =, ==, !=, gt, lt";
                return Err(format!("found '{}', expected: {operators}", other.shown()));
            }
        })
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Mark(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value),
            other => Err(format!("found '{}', expected: identifier", other.shown())),
        }
    }

    /// `(a,b)`; a missing value is the empty one.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Token::Mark("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.shown())),
        }
        match self.peek() {
            Token::Word(_) | Token::Mark("," | ")") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.shown())),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Word(value) => value.clone(),
                _ => String::new(),
            };
            if self.peek().is_word() {
                self.next();
            }
            values.insert(value);
            match self.next() {
                Token::Mark(",") => {}
                Token::Mark(")") => return Ok(values),
                other => return Err(format!("found '{}', expected: ',' or ')'", other.shown())),
            }
        }
    }
}

fn check_values(key: &str, operator: Operator, values: &BTreeSet<String>) -> Result<(), String> {
    let compares = matches!(operator, Operator::GreaterThan | Operator::LessThan);
    for value in values {
        if compares && value.parse::<i64>().is_err() {
            let rule = "for 'Gt', 'Lt' operators, the value must be an integer";
            return Err(format!("values[0]: Invalid value: {value:?}: {rule}"));
        }
        let rules = names::label_value(value);
        if !rules.is_empty() {
            return Err(format!("values[0][{key}]: Invalid value: {value:?}: {}", rules.join("; ")));
        }
    }
    Ok(())
}
