//! CEL expressions over devices: compile (parse, type check, cost estimate) and evaluate within a budget.
//!
//! The language, its library and its costs are those of Kubernetes v1.37, checked by conformance vectors. Pure: no
//! clock, no randomness, no input or output. Expressions come from users of many namespaces, so no input makes
//! this crate panic, recurse without bound or run without bound.

mod actual;
mod arith;
mod ast;
mod call;
mod check;
mod compile;
mod convert;
mod cost;
mod depth;
mod derived;
mod device;
mod error;
mod eval;
mod expressions;
mod formats;
mod functions;
mod lex;
mod list;
mod literals;
mod macros;
mod meter;
mod net;
mod parse;
mod print;
mod program;
mod quantity;
mod reads;
mod regex;
mod selector;
mod semver;
mod text;
mod time;
mod types;
mod url;
mod value;
pub mod vectors;

pub use compile::{COST_LIMIT, EXPRESSION_MAX_BYTES, Gates, Mode};
pub use derived::DerivedAttribute;
pub use device::DeviceView;
pub use error::{CompileError, CompileErrorKind, EvalError, EvalErrorKind};
pub use expressions::DeviceExpressions;
pub use reads::{ReadSet, Reads};
pub use selector::{Options, Selector};
