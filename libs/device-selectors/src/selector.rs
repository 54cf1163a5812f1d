//! Selectors: expressions that say whether a device fits.

use std::sync::Arc;

use crate::compile::{COST_LIMIT, Mode, compile};
use crate::device::DeviceView;
use crate::error::{CompileError, EvalError, EvalErrorKind};
use crate::eval::run;
use crate::meter::Meter;
use crate::program::Program;
use crate::reads::{self, Reads};
use crate::types::Type;
use crate::value::Value;

/// A compiled selector. Immutable and `Send + Sync`: share it behind an `Arc`.
#[derive(Debug)]
pub struct Selector {
    expression: Arc<str>,
    program: Program,
    reads: Reads,
    estimated_cost: u64,
    cost_limit: u64,
}

/// Settings that have good defaults.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Cost units one evaluation may use.
    pub cost_limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cost_limit: COST_LIMIT }
    }
}

impl Selector {
    /// Compiles `expression` (`selectors[].cel.expression`), which must yield a bool or an attribute's value.
    ///
    /// Takes time in proportion to the text, which is limited; never panics and never recurses deeper than the
    /// language's nesting limit. Errors say what is wrong and where.
    pub fn compile(expression: &str, mode: Mode, options: Options) -> Result<Self, CompileError> {
        let compiled = compile(expression, mode, |found, env| match found {
            Type::Bool => Ok(()),
            found if *found == env.attribute_type() => Ok(()),
            found => Err(format!("must evaluate to bool or the unknown type, not {found}")),
        })?;
        Ok(Self {
            expression: expression.into(),
            reads: reads::of(&compiled.program.root),
            program: compiled.program,
            estimated_cost: compiled.estimated_cost,
            cost_limit: options.cost_limit,
        })
    }

    /// The text it was compiled from.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The largest cost an evaluation can have by the estimate of upstream; `u64::MAX` where nothing bounds it.
    pub fn estimated_cost(&self) -> u64 {
        self.estimated_cost
    }

    /// What the selector can look at.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Whether `device` fits. An error means: no answer for this device, and the claim should say why.
    pub fn matches(&self, device: &DeviceView<'_>) -> Result<bool, EvalError> {
        self.matches_with_cost(device).0
    }

    /// As [`Self::matches`], with the cost that was used.
    pub fn matches_with_cost(&self, device: &DeviceView<'_>) -> (Result<bool, EvalError>, u64) {
        let mut meter = Meter::new(self.cost_limit);
        let answer = match run(&self.program, device, &mut meter) {
            Ok(Value::Bool(fits)) => Ok(fits),
            Ok(other) => {
                let message = format!("CEL result of type {} could not be converted to bool", other.type_name());
                Err(EvalError::new(EvalErrorKind::NotBool, message))
            }
            Err(error) => Err(error),
        };
        (answer, meter.cost())
    }
}
