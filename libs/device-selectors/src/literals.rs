//! Checks on literals that need final types: one type per list and map literal, valid constants of `duration` and
//! `timestamp`, literal format strings that agree with their literal arguments.

use crate::ast::{Element, Entry, Expr, ExprKind, Literal};
use crate::check::Checked;
use crate::depth::guarded;
use crate::error::{CompileErrorKind, Refusal};
use crate::functions::Fun;
use crate::print::{Part, parts};
use crate::time::{Timestamp, parse_duration};
use crate::types::Type;

/// Finds the first literal that is refused.
pub(crate) fn check(expr: &Expr, checked: &Checked) -> Result<(), Refusal> {
    visit(expr, checked, false)
}

/// `exempt`: inside the arguments of `format`, whose lists may mix types.
fn visit(expr: &Expr, checked: &Checked, exempt: bool) -> Result<(), Refusal> {
    match &expr.kind {
        ExprKind::List { elements } if !exempt => one_type(elements.iter().map(element), checked)?,
        ExprKind::Map { entries } if !exempt => {
            one_type(entries.iter().map(|e| (&e.key, false)), checked)?;
            one_type(entries.iter().map(value), checked)?;
        }
        ExprKind::Call { target, args, .. } => call(expr, target.as_deref(), args, checked)?,
        _ => {}
    }
    let exempt = exempt || checked.fun(expr) == Some(Fun::Format);
    let mut result = Ok(());
    expr.for_children(&mut |child| {
        if result.is_ok() {
            result = guarded(|| visit(child, checked, exempt));
        }
    });
    result
}

fn element(e: &Element) -> (&Expr, bool) {
    (&e.value, e.optional)
}

fn value(e: &Entry) -> (&Expr, bool) {
    (&e.value, e.optional)
}

fn one_type<'a>(parts: impl Iterator<Item = (&'a Expr, bool)>, checked: &Checked) -> Result<(), Refusal> {
    let mut first: Option<&Type> = None;
    for (part, optional) in parts {
        let found = match checked.type_of(part) {
            Type::Optional(inner) if optional => inner,
            other => other,
        };
        match first {
            None => first = Some(found),
            Some(first) if first != found => {
                let message = format!("expected type '{first}' but found '{found}'");
                return Err(Refusal::new(CompileErrorKind::TypeMismatch, part.pos, message));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn string_literal(expr: Option<&Expr>) -> Option<&str> {
    match &expr?.kind {
        ExprKind::Literal(Literal::String(text)) => Some(text),
        _ => None,
    }
}

fn call(expr: &Expr, target: Option<&Expr>, args: &[Expr], checked: &Checked) -> Result<(), Refusal> {
    let refuse = |kind, message: String| Err(Refusal::new(kind, expr.pos, message));
    match checked.fun(expr) {
        Some(Fun::ToDuration) => match string_literal(args.first()) {
            Some(text) if parse_duration(text).is_none() => {
                refuse(CompileErrorKind::BadLiteral, format!("invalid duration argument {text:?}"))
            }
            _ => Ok(()),
        },
        Some(Fun::ToTimestamp) => match string_literal(args.first()) {
            Some(text) if Timestamp::parse(text).is_none() => {
                refuse(CompileErrorKind::BadLiteral, format!("invalid timestamp argument {text:?}"))
            }
            _ => Ok(()),
        },
        Some(Fun::Format) => match (string_literal(target), args.first().map(|a| &a.kind)) {
            (Some(text), Some(ExprKind::List { elements })) => match format_problem(text, elements, checked) {
                Some(message) => refuse(CompileErrorKind::FormatLiteral, message),
                None => Ok(()),
            },
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn format_problem(text: &str, arguments: &[Element], checked: &Checked) -> Option<String> {
    let parts = match parts(text) {
        Ok(parts) => parts,
        Err(message) => return Some(message),
    };
    let mut next = arguments.iter();
    for part in &parts {
        let Part::Clause { verb, .. } = part else { continue };
        let Some(argument) = next.next() else {
            return Some("index out of range".to_owned());
        };
        let found = checked.type_of(&argument.value);
        if !accepts(*verb, found, &argument.value) {
            return Some(format!("clause %{verb} does not accept a value of type {found}"));
        }
    }
    let surplus = next.len();
    (surplus > 0).then(|| {
        format!(
            "too many arguments supplied to string.format (expected {}, got {})",
            arguments.len() - surplus,
            arguments.len()
        )
    })
}

/// Whether a clause can print values of a static type; what is only known at run time passes.
fn accepts(verb: char, t: &Type, argument: &Expr) -> bool {
    if t.is_dynamic() {
        return true;
    }
    match verb {
        's' => printable(t),
        'd' | 'o' => matches!(t, Type::Int | Type::Uint),
        'b' => matches!(t, Type::Int | Type::Uint | Type::Bool),
        'x' | 'X' => matches!(t, Type::Int | Type::Uint | Type::String | Type::Bytes),
        _ => match (t, string_literal(Some(argument))) {
            (Type::String, Some(text)) => matches!(text, "NaN" | "Infinity" | "-Infinity"),
            (Type::String | Type::Double, _) => true,
            _ => false,
        },
    }
}

fn printable(t: &Type) -> bool {
    match t {
        Type::Dyn
        | Type::Any
        | Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp
        | Type::Of(_)
        | Type::Param(_) => true,
        Type::List(inner) => printable(inner),
        Type::Map(pair) => printable(&pair.0) && printable(&pair.1),
        Type::Optional(_) | Type::Quantity | Type::Semver | Type::Url | Type::Format | Type::Ip | Type::Cidr | Type::Device => {
            false
        }
    }
}
