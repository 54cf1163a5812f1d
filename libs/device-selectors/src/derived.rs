//! Derived attributes: expressions whose value counts as an attribute of the device (KEP-6080).

use std::sync::Arc;

use resource_api::device::DeviceAttribute;

use crate::compile::{COST_LIMIT, Mode, compile};
use crate::device::DeviceView;
use crate::error::{CompileError, EvalError};
use crate::eval::run;
use crate::meter::Meter;
use crate::program::Program;
use crate::reads::{self, Reads};
use crate::types::Type;
use crate::value::Value;

/// A compiled `derivedAttributes[].expression`.
#[derive(Debug)]
pub struct DerivedAttribute {
    expression: Arc<str>,
    program: Program,
    reads: Reads,
    estimated_cost: u64,
}

impl DerivedAttribute {
    /// Compiles `expression`, which must yield a bool, int, string or version, or (unless it is new and
    /// `DRAListTypeAttributes` is off) a list of one of these.
    pub fn compile(expression: &str, mode: Mode) -> Result<Self, CompileError> {
        let compiled = compile(expression, mode, |found, env| {
            let fits = match found {
                Type::List(element) => env.list_attributes && is_value(element),
                other => is_value(other),
            };
            let lists = if env.list_attributes {
                " or a list of these scalars"
            } else {
                ""
            };
            let message =
                || format!("must evaluate to a primitive scalar (string, integer, boolean, semver){lists}, not {found}");
            if fits { Ok(()) } else { Err(message()) }
        })?;
        Ok(Self {
            expression: expression.into(),
            reads: reads::of(&compiled.program.root),
            program: compiled.program,
            estimated_cost: compiled.estimated_cost,
        })
    }

    /// The text it was compiled from.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The estimated cost, which counts towards the limit of the whole claim.
    pub fn estimated_cost(&self) -> u64 {
        self.estimated_cost
    }

    /// What the expression can look at.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The attribute that `device` has by this expression.
    pub fn evaluate(&self, device: &DeviceView<'_>) -> Result<DeviceAttribute, EvalError> {
        to_attribute(run(&self.program, device, &mut Meter::new(COST_LIMIT))?)
    }
}

/// A single attribute value, or what may turn out to be one.
fn is_value(t: &Type) -> bool {
    t.is_dynamic() || matches!(t, Type::Bool | Type::Int | Type::String | Type::Semver)
}

fn to_attribute(value: Value) -> Result<DeviceAttribute, EvalError> {
    let mut attribute = DeviceAttribute::default();
    match value {
        Value::Bool(b) => attribute.bool = Some(b),
        Value::Int(n) => attribute.int = Some(n),
        Value::String(text) => attribute.string = Some(text.to_string()),
        Value::Semver(version) => attribute.version = Some(version.to_string()),
        Value::List(list) => return list_attribute(&list),
        other => {
            return Err(EvalError::invalid(format!(
                "unsupported CEL return type: {}",
                other.type_name()
            )));
        }
    }
    Ok(attribute)
}

/// A list by the type of its first element; an empty one counts as strings.
fn list_attribute(list: &[Value]) -> Result<DeviceAttribute, EvalError> {
    let mut attribute = DeviceAttribute::default();
    match list.first() {
        Some(Value::Bool(_)) => {
            attribute.bools = Some(elements(
                list,
                "bool",
                |v| if let Value::Bool(b) = v { Some(*b) } else { None },
            )?);
        }
        Some(Value::Int(_)) => {
            attribute.ints = Some(elements(
                list,
                "int",
                |v| if let Value::Int(n) = v { Some(*n) } else { None },
            )?);
        }
        None | Some(Value::String(_)) => {
            let text = |v: &Value| {
                if let Value::String(text) = v {
                    Some(text.to_string())
                } else {
                    None
                }
            };
            attribute.strings = Some(elements(list, "string", text)?);
        }
        Some(Value::Semver(_)) => {
            let text = |v: &Value| {
                if let Value::Semver(version) = v {
                    Some(version.to_string())
                } else {
                    None
                }
            };
            attribute.versions = Some(elements(list, "semver", text)?);
        }
        Some(other) => {
            return Err(EvalError::invalid(format!(
                "unsupported list element type: {}",
                other.type_name()
            )));
        }
    }
    Ok(attribute)
}

fn elements<T>(list: &[Value], wanted: &str, convert: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>, EvalError> {
    let element = |(i, value): (usize, &Value)| {
        let message = || format!("expected list element at index {i} to be {wanted}, got {}", value.type_name());
        convert(value).ok_or_else(|| EvalError::invalid(message()))
    };
    list.iter().enumerate().map(element).collect()
}
