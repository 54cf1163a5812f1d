//! Every validation rule on small objects, against answers recorded from Kubernetes v1.37.2: the same fields, for the
//! same reasons. Where Dray answers differently on purpose, the case says so in `dray`.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;

use resource_api::field_path::FieldError;
use resource_api::gates::FeatureGates;
use resource_api::object::{AnyObject, Kind};
use resource_api::validation::{
    AdminAccess, ExpressionChecker, ExpressionMode, ExpressionProblem, ExpressionProblemKind, ValidationContext, claim, status,
};
use resource_api::version::{self, ApiVersion};
use resource_api::{Time, defaults, prepare, validation};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Corpus {
    bases: BTreeMap<String, Value>,
    cases: Vec<Case>,
}

/// One write. The object is its base with some fields set; `stored` is what is updated, made in the same way.
#[derive(Deserialize)]
struct Case {
    rule: String,
    base: String,
    op: String,
    #[serde(default)]
    set: Map<String, Value>,
    #[serde(default)]
    stored: Map<String, Value>,
    #[serde(default)]
    gates: String,
    /// `path reason`, sorted, as Kubernetes answers.
    errors: Vec<String>,
    /// The same in v1beta1, with the paths of v1beta1, where that is not just another path.
    v1beta1: Option<Vec<String>>,
    /// The same where Dray means to differ, and why.
    dray: Option<Difference>,
    /// The object as it would be stored, if it is accepted and small.
    result: Option<Value>,
}

#[derive(Deserialize)]
struct Difference {
    errors: Vec<String>,
    #[expect(dead_code, reason = "for readers of the corpus")]
    why: String,
}

/// Knows two words of the language: enough to see which expressions are asked about.
struct FewWords;

impl ExpressionChecker for FewWords {
    fn check(&self, expression: &str, _: ExpressionMode) -> Result<(), ExpressionProblem> {
        if expression == "true" {
            Ok(())
        } else {
            Err(invalid(expression))
        }
    }
    fn check_derived(&self, expression: &str, _: ExpressionMode) -> Result<u64, ExpressionProblem> {
        if matches!(expression, "true" | "1" | "'a'") {
            Ok(1)
        } else {
            Err(invalid(expression))
        }
    }
}

fn invalid(expression: &str) -> ExpressionProblem {
    ExpressionProblem {
        kind: ExpressionProblemKind::Invalid,
        detail: format!("cannot compile {expression:.20}"),
    }
}

fn corpus() -> Corpus {
    serde_json::from_str(include_str!("../testdata/rules.json")).unwrap()
}

#[track_caller]
fn check_all(corpus: &Corpus, version: ApiVersion) -> usize {
    let served = |case: &&Case| version.serves(kind_of(&corpus.bases[&case.base]));
    let cases: Vec<&Case> = corpus.cases.iter().filter(served).collect();
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| check(case, &corpus.bases[&case.base], version).err())
        .collect();
    assert!(
        failures.is_empty(),
        "{version:?}: {} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    cases.len()
}

#[test]
fn rules_are_those_of_kubernetes() {
    let corpus = corpus();
    let n = check_all(&corpus, ApiVersion::V1) + check_all(&corpus, ApiVersion::V1Alpha3);
    assert!(n >= corpus.cases.len());
}

#[test]
fn rules_are_the_same_in_older_versions() {
    let corpus = corpus();
    assert!(check_all(&corpus, ApiVersion::V1Beta2) >= 344);
    assert!(check_all(&corpus, ApiVersion::V1Beta1) >= 332);
}

fn kind_of(base: &Value) -> Kind {
    let kind = Kind::ALL.into_iter().find(|kind| base["kind"] == kind.name());
    kind.unwrap()
}

fn check(case: &Case, base: &Value, version: ApiVersion) -> Result<(), String> {
    let name = format!("{} {} ({})", case.base, case.rule, case.op);
    let (object, errors) = write(case, base, version)?;
    let mut found: Vec<String> = errors
        .iter()
        .map(|error| format!("{} {}", error.path, error.cause_reason()))
        .collect();
    found.sort();
    found.dedup();
    if found != wanted(case, base, version) {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Err(format!(
            "{name}:\n  wanted {:#?}\n  found {texts:#?}",
            wanted(case, base, version)
        ));
    }
    let stored = without_resource_version(&object);
    match &case.result {
        Some(wanted) if *wanted != stored => Err(format!("{name}: stored as\n  {stored}\n  not\n  {wanted}")),
        _ => Ok(()),
    }
}

fn wanted(case: &Case, base: &Value, version: ApiVersion) -> Vec<String> {
    match (version, &case.v1beta1, kind_of(base)) {
        (ApiVersion::V1Beta1, Some(errors), _) => return errors.clone(),
        (ApiVersion::V1Beta2 | ApiVersion::V1Alpha3, _, Kind::DeviceTaintRule) if case.rule.starts_with("M4") => {
            return Vec::new();
        }
        _ => {}
    }
    let errors = case.dray.as_ref().map_or(&case.errors, |difference| &difference.errors);
    let in_version = |error: &String| match error.rsplit_once(' ') {
        Some((path, reason)) if version == ApiVersion::V1Beta1 => {
            format!("{} {reason}", version::v1beta1::path(kind_of(base), path))
        }
        _ => error.clone(),
    };
    let mut errors: Vec<String> = errors.iter().map(in_version).collect();
    errors.sort();
    errors
}

fn without_resource_version(object: &AnyObject) -> Value {
    let mut json = serde_json::to_value(object).unwrap();
    json["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    json
}

/// Writes as a server does: decode, default, prepare, validate.
fn write(case: &Case, base: &Value, version: ApiVersion) -> Result<(AnyObject, Vec<FieldError>), String> {
    let gates = FeatureGates::parse(&case.gates).map_err(|error| error.to_string())?;
    let ctx = ValidationContext {
        expressions: &FewWords,
        gates: &gates,
    };
    let mut new = decoded(base, &case.set, version)?;
    let mut errors = match case.op.as_str() {
        "create" => {
            prepare::for_create(&mut new, &gates);
            validation::check_create(&new, &ctx)
        }
        "update" => {
            let old = decoded(base, &case.stored, version)?;
            prepare::for_update(&mut new, &old, &gates, now()).map_err(|error| error.to_string())?;
            validation::check_update_in(version, &new, &old, &ctx).ok_or("kinds differ")?
        }
        _ => {
            let old = decoded(base, &case.stored, version)?;
            prepare::for_status_update(&mut new, &old, &gates).map_err(|error| error.to_string())?;
            let mut errors = validation::check_status_update_in(version, &new, &old).ok_or("kinds differ")?;
            if let (AnyObject::ResourceClaim(new), AnyObject::ResourceClaim(old)) = (&new, &old) {
                errors.extend(status::check_admin_access(new, old, namespace_of(&new.metadata.namespace)));
            }
            errors
        }
    };
    if case.op == "create" {
        let spec = match &new {
            AnyObject::ResourceClaim(claim) => Some(&claim.spec),
            AnyObject::ResourceClaimTemplate(template) => Some(&template.spec.spec),
            _ => None,
        };
        let namespace = namespace_of(&new.metadata().namespace);
        errors.extend(spec.into_iter().flat_map(|spec| claim::check_admin_access(spec, namespace)));
    }
    let errors = version::located(version, new.kind(), errors);
    Ok((new, errors))
}

fn namespace_of(name: &str) -> AdminAccess {
    match name {
        "admin" => AdminAccess::Allowed,
        "plain" => AdminAccess::Denied,
        _ => AdminAccess::Unknown,
    }
}

fn now() -> Time {
    Time::new("2026-06-01T12:00:00Z".parse().unwrap())
}

fn decoded(base: &Value, set: &Map<String, Value>, version: ApiVersion) -> Result<AnyObject, String> {
    let mut object = base.clone();
    for (pointer, value) in set {
        put(&mut object, pointer, expand(value, None));
    }
    let kind = kind_of(base);
    object["apiVersion"] = version.text().into();
    if version == ApiVersion::V1Beta1 {
        put_into_v1beta1(kind, &mut object);
    }
    let body = object.to_string();
    let mut object = version::decode(version, kind, body.as_bytes()).map_err(|error| format!("{error}: {error:?}"))?;
    defaults::apply_in(version, &mut object, now());
    Ok(object)
}

/// Rewrites a v1 object, valid or not, as its author would have written it in v1beta1.
fn put_into_v1beta1(kind: Kind, object: &mut Value) {
    let list = |object: &'_ mut Value, pointer: &str| match object.pointer_mut(pointer) {
        Some(Value::Array(list)) => std::mem::take(list),
        _ => Vec::new(),
    };
    let (pointer, change): (_, fn(&mut Map<String, Value>)) = match kind {
        Kind::ResourceClaim => ("/spec/devices/requests", flatten_request),
        Kind::ResourceClaimTemplate => ("/spec/spec/devices/requests", flatten_request),
        Kind::ResourceSlice => ("/spec/devices", wrap_device),
        _ => return,
    };
    let mut items = list(object, pointer);
    items.iter_mut().filter_map(Value::as_object_mut).for_each(change);
    if let Some(list) = object.pointer_mut(pointer) {
        *list = Value::Array(items);
    }
}

fn flatten_request(request: &mut Map<String, Value>) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        request.extend(exactly);
    }
}

fn wrap_device(device: &mut Map<String, Value>) {
    let name = device.remove("name");
    let basic = std::mem::take(device);
    device.extend(name.map(|name| ("name".to_owned(), name)));
    if !basic.is_empty() {
        device.insert("basic".to_owned(), basic.into());
    }
}

/// Sets what the pointer names and makes the objects on the way there.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        at = match at {
            Value::Array(list) => {
                let index: usize = part.parse().unwrap();
                list.resize_with((index + 1).max(list.len()), || Value::Null);
                &mut list[index]
            }
            Value::Object(map) => map.entry(part).or_insert_with(|| json!({})),
            _ => panic!("{pointer} leads nowhere"),
        };
    }
    *at = value;
}

/// Writes out what the corpus abbreviates: `$repeat`, `$keys`, `$text`, `$cat`, and `$n`, the number of a copy.
fn expand(value: &Value, n: Option<u64>) -> Value {
    let number = |value: &Value| value.as_u64().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match value {
        Value::Object(map) => match map.iter().next().map(|(key, value)| (key.as_str(), value)) {
            Some(("$repeat", args)) => (0..number(&args[0])).map(|n| expand(&args[1], Some(n))).collect(),
            Some(("$text", args)) => text(&args[1]).repeat(usize::try_from(number(&args[0])).unwrap()).into(),
            Some(("$cat", parts)) => parts
                .as_array()
                .unwrap()
                .iter()
                .map(|part| text(&expand(part, n)))
                .collect::<String>()
                .into(),
            Some(("$keys", args)) => {
                let entry = |n| (text(&expand(&args[1], Some(n))), expand(&args[2], Some(n)));
                Value::Object((0..number(&args[0])).map(entry).collect())
            }
            _ => Value::Object(map.iter().map(|(key, value)| (key.clone(), expand(value, n))).collect()),
        },
        Value::Array(list) => list.iter().map(|value| expand(value, n)).collect(),
        Value::String(text) => n.map_or_else(|| value.clone(), |n| text.replace("$n", &n.to_string()).into()),
        _ => value.clone(),
    }
}
