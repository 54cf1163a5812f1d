//! What is accepted and what is refused in the scenarios that are decided by validation alone.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use resource_api::field_path::FieldError;
use resource_api::gates::FeatureGates;
use resource_api::object::AnyObject;
use resource_api::validation::{
    AdminAccess, ExpressionChecker, ExpressionMode, ExpressionProblem, ValidationContext, check_create, claim,
};
use resource_api::{Time, defaults, prepare};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Expectation {
    admission: Vec<Admission>,
}

#[derive(Deserialize)]
struct Admission {
    /// `Kind/namespace/name` or `Kind/name`.
    object: String,
    outcome: String,
    code: Option<u16>,
    field: Option<String>,
    reason: Option<String>,
}

/// The expressions of these scenarios are all good.
struct AnyExpression;

impl ExpressionChecker for AnyExpression {
    fn check(&self, _: &str, _: ExpressionMode) -> Result<(), ExpressionProblem> {
        Ok(())
    }
    fn check_derived(&self, _: &str, _: ExpressionMode) -> Result<u64, ExpressionProblem> {
        Ok(1)
    }
}

#[test]
fn admin_access_needs_the_label_of_the_namespace() {
    check("21-admin-access");
}

#[test]
fn counts_are_positive_and_unbounded() {
    check("16-count-overflow-quota");
}

#[test]
fn device_node_selectors_have_one_term() {
    check("19-per-device-node-selector");
}

#[test]
fn pool_bookkeeping_is_checked() {
    check("20-slice-count-zero");
}

#[track_caller]
fn check(scenario: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/scenarios")
        .join(scenario);
    let expected = std::fs::read_to_string(folder.join("expect.json")).unwrap();
    let expected: Expectation = serde_json::from_str(&expected).unwrap();
    let objects = read_objects(&std::fs::read_to_string(folder.join("input.yaml")).unwrap());
    let namespaces = admin_namespaces(&objects);
    for admission in expected
        .admission
        .iter()
        .filter(|admission| admission.code.is_none_or(|code| code == 422))
    {
        let errors = admit(&objects[&admission.object], &namespaces);
        match admission.outcome.as_str() {
            "accepted" => assert!(errors.is_empty(), "{}: {errors:?}", admission.object),
            "rejected" => assert!(
                errors.iter().any(|error| is_expected(error, admission)),
                "{}: {errors:?}",
                admission.object
            ),
            other => panic!("unknown outcome {other}"),
        }
    }
}

fn is_expected(error: &FieldError, admission: &Admission) -> bool {
    let field = admission.field.as_ref().is_none_or(|field| *field == error.path);
    field && admission.reason.as_ref().is_none_or(|reason| reason == error.cause_reason())
}

fn read_objects(text: &str) -> BTreeMap<String, Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap());
    let keyed = documents.filter(Value::is_object).map(|object| {
        let part = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let key = [part("/kind"), part("/metadata/namespace"), part("/metadata/name")];
        (key.into_iter().flatten().collect::<Vec<String>>().join("/"), object)
    });
    keyed.collect()
}

fn admin_namespaces(objects: &BTreeMap<String, Value>) -> BTreeMap<String, AdminAccess> {
    let namespaces = objects
        .iter()
        .filter_map(|(key, object)| Some((key.strip_prefix("Namespace/")?, object)));
    let access = |object: &Value| match object.pointer("/metadata/labels/resource.kubernetes.io~1admin-access") {
        Some(label) if label == "true" => AdminAccess::Allowed,
        _ => AdminAccess::Denied,
    };
    namespaces.map(|(name, object)| (name.to_owned(), access(object))).collect()
}

fn admit(object: &Value, namespaces: &BTreeMap<String, AdminAccess>) -> Vec<FieldError> {
    let gates = FeatureGates::default();
    let mut object = AnyObject::decode(object.to_string().as_bytes()).unwrap();
    defaults::apply(&mut object, Time::new("2026-06-01T12:00:00Z".parse().unwrap()));
    prepare::for_create(&mut object, &gates);
    let mut errors = check_create(
        &object,
        &ValidationContext {
            expressions: &AnyExpression,
            gates: &gates,
        },
    );
    if let AnyObject::ResourceClaim(claim) = &object {
        let access = namespaces
            .get(&claim.metadata.namespace)
            .copied()
            .unwrap_or(AdminAccess::Unknown);
        errors.extend(claim::check_admin_access(&claim.spec, access));
    }
    errors
}
