//! Why an expression was refused or an evaluation ended without an answer.
//!
//! Kinds are a closed list (the ones upstream tells apart); texts are free, with line, column and a caret
//! for compile errors.

use std::fmt;

/// What is wrong with an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompileErrorKind {
    /// The text does not parse, a number is out of range, or a reserved word is used as a name.
    Syntax,
    /// The constant argument of `duration`, `timestamp` or `matches` is invalid.
    BadLiteral,
    /// A macro has a wrong argument.
    Macro,
    /// Unknown variable or function.
    Undeclared,
    /// Unknown field of `device`.
    UndefinedField,
    /// No overload fits the argument types, or a field is selected from a type without fields.
    NoOverload,
    /// Elements of one literal differ in type, or an operand of `&&` and `||` is no bool.
    TypeMismatch,
    /// A macro ranges over a type without elements.
    NotIterable,
    /// A literal format string and its literal arguments disagree.
    FormatLiteral,
    /// A conversion or pattern with constant arguments fails.
    ConstantFolding,
    /// The whole expression has a type that its place does not allow.
    ResultType,
    /// More than 250 nested levels.
    TooDeep,
    /// More than [`crate::EXPRESSION_MAX_BYTES`] bytes.
    TooLong,
    /// The estimated cost of a new expression is above [`crate::COST_LIMIT`].
    TooExpensive,
}

impl CompileErrorKind {
    /// The kebab-case name used by the conformance vectors.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::BadLiteral => "bad-literal",
            Self::Macro => "macro",
            Self::Undeclared => "undeclared",
            Self::UndefinedField => "undefined-field",
            Self::NoOverload => "no-overload",
            Self::TypeMismatch => "type-mismatch",
            Self::NotIterable => "not-iterable",
            Self::FormatLiteral => "format-literal",
            Self::ConstantFolding => "constant-folding",
            Self::ResultType => "result-type",
            Self::TooDeep => "too-deep",
            Self::TooLong => "too-long",
            Self::TooExpensive => "too-expensive",
        }
    }
}

/// Refusal of an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CompileError {
    pub kind: CompileErrorKind,
    /// What a user sees: message, line and column, the line itself and a caret under the place.
    pub text: String,
}

/// A refusal at a byte offset, before it is rendered against the source.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: CompileErrorKind,
    pub(crate) pos: u32,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: CompileErrorKind, pos: u32, message: impl Into<String>) -> Self {
        Self {
            kind,
            pos,
            message: message.into(),
        }
    }

    /// Renders the refusal in the form users of the Kubernetes API know, with the caret under the place.
    pub(crate) fn render(self, source: &str) -> CompileError {
        let mut pos = (self.pos as usize).min(source.len());
        while !source.is_char_boundary(pos) {
            pos -= 1;
        }
        let start = source[..pos].rfind('\n').map_or(0, |i| i + 1);
        let end = source[pos..].find('\n').map_or(source.len(), |i| pos + i);
        let line = source[..start].matches('\n').count() + 1;
        let column = source[start..pos].chars().count() + 1;
        let dots = ".".repeat(column - 1);
        let text = format!(
            "compilation failed: ERROR: <input>:{line}:{column}: {}\n | {}\n | {dots}^",
            self.message,
            &source[start..end]
        );
        CompileError { kind: self.kind, text }
    }
}

/// Why an evaluation gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvalErrorKind {
    /// A map key, attribute or capacity is missing.
    NoSuchKey,
    /// The operands' types do not fit the operation.
    NoSuchOverload,
    /// The final value is no bool.
    NotBool,
    /// An attribute of the device has no usable value; every expression fails for such a device.
    BadDevice,
    /// `/` or `%` by zero.
    DivideByZero,
    /// A number, duration or timestamp left its range.
    Overflow,
    /// A list index, string position or `format` argument is missing.
    OutOfRange,
    /// A macro ranges over a scalar.
    NotIterable,
    /// The evaluation used more than its budget. Never absorbed by `&&` or `||`.
    CostLimit,
    /// Everything else: unparsable text, incomparable elements, value of an empty optional.
    InvalidValue,
}

impl EvalErrorKind {
    /// The kebab-case name used by the conformance vectors.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSuchKey => "no-such-key",
            Self::NoSuchOverload => "no-such-overload",
            Self::NotBool => "not-bool",
            Self::BadDevice => "bad-device",
            Self::DivideByZero => "divide-by-zero",
            Self::Overflow => "overflow",
            Self::OutOfRange => "out-of-range",
            Self::NotIterable => "not-iterable",
            Self::CostLimit => "cost-limit",
            Self::InvalidValue => "invalid-value",
        }
    }
}

/// An evaluation that ended without an answer. Boxed inside, so that results stay small.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvalError(Box<Detail>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Detail {
    kind: EvalErrorKind,
    message: String,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl EvalError {
    pub(crate) fn new(kind: EvalErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Detail {
            kind,
            message: message.into(),
        }))
    }

    pub(crate) fn no_overload(what: &str) -> Self {
        Self::new(EvalErrorKind::NoSuchOverload, format!("no such overload: {what}"))
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        let message = format!("no such key: {key}, consider using an optional field `.?{key}.orValue(…)` or a test with `has()`");
        Self::new(EvalErrorKind::NoSuchKey, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(EvalErrorKind::InvalidValue, message)
    }

    pub(crate) fn overflow(what: &str) -> Self {
        Self::new(EvalErrorKind::Overflow, format!("{what} out of range"))
    }

    pub(crate) fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(EvalErrorKind::OutOfRange, message)
    }

    /// What ended the evaluation.
    pub fn kind(&self) -> EvalErrorKind {
        self.0.kind
    }
}
