//! Conformance vectors: runs a file of input and result pairs and says where this engine differs.
//!
//! The form of the file is described in its README under `testdata/`.

use std::collections::BTreeMap;

use resource_api::device::{Device, DeviceAttribute, DeviceCapacity};
use serde::Deserialize;

use crate::{CompileError, DeviceView, EvalError, Gates, Mode, Options, Selector};

/// The estimate of a vector that is only known to be above 10^15.
const UNBOUNDED: u64 = 1_000_000_000_000_000;

/// How one vector went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseResult {
    pub id: String,
    /// What differs from the expected outcome, error kind, estimated or actual cost; empty if the vector agrees.
    pub differences: Vec<String>,
    /// The actual cost, if it differs from that of the vector. It counts as a difference, too.
    pub actual_cost: Option<ActualCost>,
}

/// Two actual costs that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActualCost {
    pub expected: u64,
    pub found: u64,
}

impl CaseResult {
    /// Whether the vector agrees.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vector {
    id: String,
    expression: String,
    device: VectorDevice,
    env: Option<Env>,
    expect: serde_json::Value,
    error_kind: Option<String>,
    cost_estimate: Option<serde_json::Value>,
    cost_actual: Option<u64>,
    #[serde(rename = "note")]
    _note: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VectorDevice {
    driver: String,
    #[serde(default)]
    attributes: BTreeMap<String, DeviceAttribute>,
    #[serde(default)]
    capacity: BTreeMap<String, resource_api::Quantity>,
    allow_multiple_allocations: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Env {
    mode: String,
    #[serde(default)]
    list_type_attributes: bool,
    #[serde(default)]
    consumable_capacity: bool,
}

/// Runs every vector of a JSON file's text. The error says why the file cannot be read.
pub fn run(json: &str) -> Result<Vec<CaseResult>, serde_json::Error> {
    let vectors: Vec<Vector> = serde_json::from_str(json)?;
    Ok(vectors.iter().map(run_one).collect())
}

fn run_one(vector: &Vector) -> CaseResult {
    let mut differences = Vec::new();
    let mut actual_cost = None;
    let compiled = Selector::compile(&vector.expression, mode(vector.env.as_ref()), Options::default());
    if let (Ok(selector), Some(expected)) = (&compiled, &vector.cost_estimate) {
        differences.extend(estimate_difference(selector.estimated_cost(), expected));
    }
    let outcome = compiled.map_err(Failure::Compile).and_then(|selector| {
        let device = device(&vector.device);
        let (answer, found) = selector.matches_with_cost(&DeviceView::new(&vector.device.driver, &device));
        actual_cost = vector
            .cost_actual
            .filter(|e| *e != found)
            .map(|expected| ActualCost { expected, found });
        answer.map_err(Failure::Eval)
    });
    differences.extend(outcome_difference(outcome, vector));
    differences
        .extend(actual_cost.map(|ActualCost { expected, found }| format!("actual cost: expected {expected}, found {found}")));
    CaseResult {
        id: vector.id.clone(),
        differences,
        actual_cost,
    }
}

enum Failure {
    Compile(CompileError),
    Eval(EvalError),
}

fn mode(env: Option<&Env>) -> Mode {
    match env {
        Some(env) if env.mode == "new" => Mode::New(Gates {
            list_type_attributes: env.list_type_attributes,
            consumable_capacity: env.consumable_capacity,
        }),
        _ => Mode::Stored,
    }
}

fn device(from: &VectorDevice) -> Device {
    let capacity = from.capacity.iter().map(|(name, value)| {
        (
            name.clone(),
            DeviceCapacity {
                value: value.clone(),
                ..DeviceCapacity::default()
            },
        )
    });
    Device {
        attributes: from.attributes.clone(),
        capacity: capacity.collect(),
        allow_multiple_allocations: from.allow_multiple_allocations,
        ..Device::default()
    }
}

fn estimate_difference(found: u64, expected: &serde_json::Value) -> Option<String> {
    let agrees = match expected.as_u64() {
        Some(expected) => found == expected,
        None => found > UNBOUNDED,
    };
    (!agrees).then(|| format!("estimated cost: expected {expected}, found {found}"))
}

fn outcome_difference(outcome: Result<bool, Failure>, vector: &Vector) -> Option<String> {
    let (found, kind, text) = match outcome {
        Ok(answer) => (serde_json::Value::Bool(answer), None, String::new()),
        Err(Failure::Compile(error)) => ("compile-error".into(), Some(error.kind.as_str()), error.text),
        Err(Failure::Eval(error)) => ("runtime-error".into(), Some(error.kind().as_str()), error.to_string()),
    };
    if found == vector.expect && kind == vector.error_kind.as_deref() {
        return None;
    }
    let expected = vector.error_kind.as_deref().unwrap_or_default();
    Some(format!(
        "expected {} {expected}, found {found} {}: {text}",
        vector.expect,
        kind.unwrap_or_default()
    ))
}
