//! From text to program: the steps every expression goes through, whatever it is for.

use resource_api::gates::{FeatureGates, Gate};

use crate::check::{Checked, Environment, check};
use crate::cost::estimate;
use crate::error::{CompileError, CompileErrorKind, Refusal};
use crate::literals;
use crate::parse::parse;
use crate::program::{Program, lower};
use crate::types::Type;

/// Longest expression, in bytes. API limit: `CELSelectorExpressionMaxLength`.
pub const EXPRESSION_MAX_BYTES: usize = 10 * 1024;

/// Largest estimated cost of a new expression, and largest cost of one evaluation. API limit:
/// `CELSelectorExpressionMaxCost`.
pub const COST_LIMIT: u64 = 1_000_000;

/// Which expressions are accepted, and what they see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// An expression that is being written: only what the gates allow, and only within the estimated cost.
    New(Gates),
    /// An expression that some release accepted: everything is understood, nothing is estimated.
    Stored,
}

/// The feature gates that change the language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gates {
    /// `DRAListTypeAttributes`: attribute values are `dyn` instead of `any`, and `includes` exists.
    pub list_type_attributes: bool,
    /// `DRAConsumableCapacity`: `device.allowMultipleAllocations` exists.
    pub consumable_capacity: bool,
}

impl From<&FeatureGates> for Gates {
    fn from(gates: &FeatureGates) -> Self {
        Self {
            list_type_attributes: gates.is_on(Gate::DRAListTypeAttributes),
            consumable_capacity: gates.is_on(Gate::DRAConsumableCapacity),
        }
    }
}

impl Mode {
    pub(crate) fn environment(self) -> Environment {
        match self {
            Self::New(gates) => Environment {
                list_attributes: gates.list_type_attributes,
                multiple_allocations: gates.consumable_capacity,
            },
            Self::Stored => Environment {
                list_attributes: true,
                multiple_allocations: true,
            },
        }
    }
}

/// A program and the largest cost it can have.
pub(crate) struct Compiled {
    pub(crate) program: Program,
    pub(crate) estimated_cost: u64,
}

/// Compiles `source`; `result` refuses wrong types of the whole expression with a sentence.
pub(crate) fn compile(
    source: &str,
    mode: Mode,
    result: impl FnOnce(&Type, Environment) -> Result<(), String>,
) -> Result<Compiled, CompileError> {
    if source.len() > EXPRESSION_MAX_BYTES {
        let text = format!("must not be longer than {EXPRESSION_MAX_BYTES} bytes");
        return Err(CompileError {
            kind: CompileErrorKind::TooLong,
            text,
        });
    }
    let compiled = steps(source, mode.environment(), result).map_err(|refusal| refusal.render(source))?;
    if matches!(mode, Mode::New(_)) && compiled.estimated_cost > COST_LIMIT {
        let text = "too complex, exceeds cost limit".to_owned();
        return Err(CompileError {
            kind: CompileErrorKind::TooExpensive,
            text,
        });
    }
    Ok(compiled)
}

fn steps(
    source: &str,
    env: Environment,
    result: impl FnOnce(&Type, Environment) -> Result<(), String>,
) -> Result<Compiled, Refusal> {
    let expr = parse(source)?;
    let checked: Checked = check(&expr, env)?;
    literals::check(&expr, &checked)?;
    result(checked.type_of(&expr), env).map_err(|message| Refusal::new(CompileErrorKind::ResultType, 0, message))?;
    let program = lower(&expr, &checked)?;
    Ok(Compiled {
        program,
        estimated_cost: estimate(&expr, &checked),
    })
}
