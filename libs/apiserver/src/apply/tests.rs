//! Sequences of writes against what upstream's packages make of the same ones (`testdata`, recorded from Kubernetes v1.37.2), and
//! the parts on their own.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::schema::arbitrary;

#[derive(Deserialize)]
struct Sequence {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    op: String,
    manager: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    force: bool,
    object: Map<String, Value>,
    result: Option<Value>,
    error: Option<String>,
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    message: String,
    field: String,
}

fn reset(subresource: &str) -> FieldSet {
    if subresource.is_empty() {
        FieldSet::of(&[&["status"]])
    } else {
        FieldSet::of(&[&["metadata"], &["spec"]])
    }
}

fn time(seconds: usize) -> resource_api::Time {
    resource_api::Time::new(format!("2020-01-01T00:00:{seconds:02}Z").parse().unwrap())
}

fn run(step: &Step, index: usize, stored: Option<&Map<String, Value>>) -> Result<Map<String, Value>, ApplyError> {
    let kind = kind_of(&step.object);
    let reset = reset(&step.subresource);
    let write = Write {
        schema: Schema::builtin(),
        kind: &kind,
        manager: &step.manager,
        subresource: &step.subresource,
        now: time(index),
        reset: &reset,
        versions: &OneVersion,
    };
    let mut written = if step.op == "apply" {
        apply(&write, stored, &step.object, step.force)?
    } else {
        let mut new = body::conform(write.schema, &kind, step.object.clone())
            .map_err(ApplyError::BadResult)?
            .object;
        if stored.is_some() {
            new["metadata"]["uid"] = "uid-1".into();
        }
        update(&write, stored, new)
    };
    written["metadata"]["uid"] = "uid-1".into();
    Ok(written)
}

#[test]
fn recorded_sequences_give_the_recorded_objects_and_owners() {
    let sequences: Vec<Sequence> = serde_json::from_str(include_str!("../../testdata/apply.json")).unwrap();
    for sequence in sequences {
        let mut stored = None;
        for (index, step) in sequence.steps.iter().enumerate() {
            let at = format!("{}, step {index}", sequence.name);
            match (run(step, index, stored.as_ref()), &step.result) {
                (Ok(object), Some(wanted)) => {
                    assert_eq!(Value::Object(object.clone()), *wanted, "{at}");
                    stored = Some(object);
                }
                (Err(error), None) => check_error(&error, step, &at),
                (found, wanted) => panic!("{at}: {found:?}, wanted {wanted:?} or {:?}", step.error),
            }
        }
    }
}

#[track_caller]
fn check_error(error: &ApplyError, step: &Step, at: &str) {
    // How upstream prints a value of a wrong type shows its Go types.
    let cut = |text: &str| text.split(", got ").next().unwrap_or_default().to_owned();
    assert_eq!(Some(cut(&error.to_string())), step.error.as_deref().map(cut), "{at}");
    let mut causes: Vec<_> = match error {
        ApplyError::Conflicts { conflicts } => conflicts
            .iter()
            .map(|found| (conflict_message(found), found.path.clone()))
            .collect(),
        _ => Vec::new(),
    };
    let mut wanted: Vec<_> = step
        .causes
        .iter()
        .map(|cause| (cause.message.clone(), cause.field.clone()))
        .collect();
    causes.sort();
    wanted.sort();
    assert_eq!(causes, wanted, "{at}");
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => panic!("not an object"),
    }
}

fn rule(api_version: &str, metadata: Value, spec: Value) -> Map<String, Value> {
    object(json!({"apiVersion": api_version, "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}))
}

/// Versions that differ by their name, of which one is gone.
struct Renamed;

impl Versions for Renamed {
    fn convert(&self, object: &Map<String, Value>, api_version: &str) -> Option<Map<String, Value>> {
        if api_version == "resource.k8s.io/v1alpha3" {
            return None;
        }
        let mut object = object.clone();
        object.insert("apiVersion".to_owned(), api_version.into());
        Some(object)
    }
}

fn apply_in(
    api_version: &str,
    manager: &str,
    stored: Option<&Map<String, Value>>,
    config: &Map<String, Value>,
) -> Result<Map<String, Value>, ApplyError> {
    let kind = GroupVersionKind::new(api_version, "DeviceTaintRule");
    let reset = reset("");
    let write = Write {
        schema: Schema::builtin(),
        kind: &kind,
        manager,
        subresource: "",
        now: time(0),
        reset: &reset,
        versions: &Renamed,
    };
    apply(&write, stored, config, false)
}

#[test]
fn ownership_crosses_versions() {
    let (v1, v1beta2) = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2");
    let spec = json!({"taint": {"key": "k", "effect": "NoSchedule"}, "deviceSelector": {"driver": "d"}});
    let mut stored = apply_in(v1beta2, "a", None, &rule(v1beta2, json!({"name": "r"}), spec)).unwrap();
    stored.insert("apiVersion".to_owned(), v1.into());
    let other = rule(v1, json!({"name": "r"}), json!({"taint": {"key": "q"}}));
    let error = apply_in(v1, "b", Some(&stored), &other).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.taint.key"#
    );
    // What "a" applied in v1beta2 and does not apply in v1 goes.
    let less = rule(
        v1,
        json!({"name": "r"}),
        json!({"taint": {"key": "k", "effect": "NoSchedule"}}),
    );
    let applied = apply_in(v1, "a", Some(&stored), &less).unwrap();
    assert_eq!(applied["spec"], json!({"taint": {"key": "k", "effect": "NoSchedule"}}));
    assert_eq!(applied["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert_eq!(applied["metadata"]["managedFields"][0]["apiVersion"], v1);
}

#[test]
fn entries_of_versions_that_are_gone_are_dropped() {
    let (v1, v1alpha3) = ("resource.k8s.io/v1", "resource.k8s.io/v1alpha3");
    let spec = json!({"taint": {"key": "k", "effect": "NoSchedule"}});
    let mut stored = apply_in(v1, "a", None, &rule(v1, json!({"name": "r"}), spec)).unwrap();
    stored["metadata"]["managedFields"][0]["apiVersion"] = v1alpha3.into();
    let other = rule(v1, json!({"name": "r"}), json!({"taint": {"key": "q"}}));
    let applied = apply_in(v1, "b", Some(&stored), &other).unwrap();
    let entries = applied["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["manager"], "b");
}

#[test]
fn custom_resources_are_applied_field_by_field() {
    let kind = GroupVersionKind::new("resource.nvidia.com/v1beta1", "ComputeDomain");
    let reset = reset("");
    let write = |manager| Write {
        schema: Schema::builtin(),
        kind: &kind,
        manager,
        subresource: "",
        now: time(0),
        reset: &reset,
        versions: &OneVersion,
    };
    let domain = |spec: Value| {
        object(json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "d"}, "spec": spec}))
    };
    let first = apply(
        &write("a"),
        None,
        &domain(json!({"numNodes": 1, "list": [1], "m": {"x": 1}})),
        false,
    )
    .unwrap();
    let second = apply(&write("b"), Some(&first), &domain(json!({"m": {"y": 2}})), false).unwrap();
    assert_eq!(second["spec"], json!({"numNodes": 1, "list": [1], "m": {"x": 1, "y": 2}}));
    let error = apply(&write("b"), Some(&second), &domain(json!({"list": [2]})), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.list"#
    );
    let third = apply(&write("a"), Some(&second), &domain(json!({"numNodes": 1})), false).unwrap();
    assert_eq!(third["spec"], json!({"numNodes": 1, "m": {"y": 2}}));
}

#[test]
fn configurations_are_json_or_yaml() {
    let wanted = object(json!({"apiVersion": "v1", "metadata": {"labels": {"a": "2"}}}));
    let (config, findings) = decode_config(br#"{"apiVersion":"v1","metadata":{"labels":{"a":"1","a":"2"}}}"#).unwrap();
    assert_eq!(config, wanted);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].to_string(), r#"duplicate field "metadata.labels.a""#);
    let (config, findings) = decode_config(b"apiVersion: v1\nmetadata:\n  labels:\n    a: '2'\n").unwrap();
    assert_eq!((config, findings), (wanted.clone(), vec![]));
    let (config, _) = decode_config(b"{apiVersion: v1, metadata: {labels: {a: '2'}}}").unwrap();
    assert_eq!(config, wanted);
    for body in ["", "[]", "x", "{", "a: [", "a: b: c"] {
        let error = decode_config(body.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("error decoding patch: "), "{error}");
    }
    let error = decode_config(&vec![b' '; body::BODY_BYTES_MAX + 1]).unwrap_err();
    assert!(matches!(error, ApplyError::TooLarge));
}

#[test]
fn other_kinds_are_not_applied() {
    let error = apply_in(
        "resource.k8s.io/v1",
        "a",
        None,
        &rule("resource.k8s.io/v1beta2", json!({}), json!({})),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid object type: resource.k8s.io/v1beta2, Kind=DeviceTaintRule"
    );
}

#[test]
fn times_and_versions_alone_are_no_change() {
    let entry = |manager: &str, time: &str| json!({"manager": manager, "time": time});
    let of = |version: &str, entries: Value, labels: Value| {
        object(json!({"metadata": {"resourceVersion": version, "labels": labels, "managedFields": entries}}))
    };
    let stored = of("1", json!([entry("a", "2"), entry("b", "3")]), json!({}));
    assert!(is_unchanged(
        &stored,
        &of("2", json!([entry("b", "3"), entry("a", "9")]), json!({}))
    ));
    assert!(!is_unchanged(&stored, &of("1", json!([entry("a", "2")]), json!({}))));
    assert!(!is_unchanged(
        &stored,
        &of("1", json!([entry("a", "2"), entry("b", "3")]), json!({"x": "y"}))
    ));
}

#[track_caller]
fn check_fields_v1(fields: Value) {
    let set = FieldSet::from_fields_v1(fields.as_object().unwrap()).unwrap();
    assert_eq!(Value::Object(set.to_fields_v1()), fields);
}

#[test]
fn sets_read_as_they_are_written() {
    check_fields_v1(json!({}));
    check_fields_v1(json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:\"x/y\"": {}}}}));
    check_fields_v1(json!({"f:status": {"f:devices": {"k:{\"device\":\"d\",\"n\":1}": {".": {}, "f:device": {}}}, "i:3": {}}}));
}

#[test]
fn keys_that_name_no_field_are_refused() {
    for key in ["x", "x:y", "k:[1]", "v:", "i:x", ""] {
        let fields = object(json!({key: {}}));
        assert!(FieldSet::from_fields_v1(&fields).is_err(), "{key}");
    }
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"f:a": deep});
    }
    assert!(FieldSet::from_fields_v1(deep.as_object().unwrap()).is_err());
}

fn any_set() -> impl Strategy<Value = FieldSet> {
    let path = prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4);
    prop::collection::vec(path, 0..8).prop_map(|paths| {
        let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
        FieldSet::of(&paths)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sets_obey_the_laws_of_sets(a in any_set(), b in any_set()) {
        let paths = |set: &FieldSet| -> std::collections::BTreeSet<_> { set.paths().into_iter().collect() };
        let (in_a, in_b) = (paths(&a), paths(&b));
        prop_assert_eq!(paths(&a.union(&b)), &in_a | &in_b);
        prop_assert_eq!(paths(&a.intersection(&b)), &in_a & &in_b);
        prop_assert_eq!(paths(&a.difference(&b)), &in_a - &in_b);
        let below = |path: &Vec<PathElement>| (1..=path.len()).any(|length| in_b.contains(&path[..length]));
        let left: std::collections::BTreeSet<_> = in_a.iter().filter(|path| !below(path)).cloned().collect();
        prop_assert_eq!(paths(&a.recursive_difference(&b)), left);
        let read = FieldSet::from_fields_v1(&a.to_fields_v1()).unwrap();
        prop_assert_eq!(paths(&read), in_a);
    }

    /// Whatever was there: after a forced apply the fields of the configuration have its values, and applying it again changes
    /// nothing and meets no conflict.
    #[test]
    fn what_is_applied_by_force_is_there_and_stays(
        (stored, config) in (0..usize::MAX).prop_flat_map(|choice| {
            let kinds: Vec<_> = Schema::builtin().kinds().map(|(kind, _)| kind).filter(|kind| kind.group == "resource.k8s.io").collect();
            let kind = kinds[choice % kinds.len()];
            (arbitrary::object_of(kind), arbitrary::object_of(kind))
        })
    ) {
        let kind = kind_of(&config);
        let none = FieldSet::default();
        let write = Write {
            schema: Schema::builtin(), kind: &kind, manager: "m", subresource: "", now: time(1), reset: &none, versions: &OneVersion,
        };
        let (mut stored, mut config) = (stored, config);
        remove_managed_fields(&mut stored);
        remove_managed_fields(&mut config);
        let Ok(applied) = apply(&write, Some(&stored), &config, true) else { return Ok(()) };
        let again = apply(&Write { now: time(2), ..write }, Some(&applied), &config, false).unwrap();
        prop_assert!(is_unchanged(&applied, &again));
        let owners = owners(&write);
        let (config, applied) = (owners.typed(config), owners.typed(applied));
        let compared = config.compare(&applied);
        prop_assert!(compared.modified.is_empty(), "{:?}", compared.modified);
        prop_assert!(compared.removed.is_empty(), "{:?}", compared.removed);
    }

    /// A tracked object records every change: who wrote last owns it, and nobody owns what is not there.
    #[test]
    fn everything_that_changes_has_an_owner(
        (first, second) in Just(()).prop_flat_map(|()| {
            let kind = GroupVersionKind::new("resource.k8s.io/v1", "ResourceClaim");
            (arbitrary::object_of(&kind), arbitrary::object_of(&kind))
        })
    ) {
        let kind = kind_of(&first);
        let none = FieldSet::default();
        let write = |manager| Write {
            schema: Schema::builtin(), kind: &kind, manager, subresource: "", now: time(1), reset: &none, versions: &OneVersion,
        };
        let (mut first, mut second) = (first, second);
        remove_managed_fields(&mut first);
        remove_managed_fields(&mut second);
        // Objects of which nothing is owned are not tracked.
        first["metadata"]["annotations"] = json!({"tracked": "yes"});
        let stored = update(&write("a"), None, first);
        let stored = update(&write("b"), Some(&stored), second);
        let record = managed::decode(managed_fields(&stored)).unwrap();
        let owned = record.values().fold(FieldSet::default(), |all, owned| all.union(&owned.set));
        let owners = owners(&write("b"));
        let mut bare = stored.clone();
        remove_managed_fields(&mut bare);
        let there = owners.typed(bare).field_set().difference(&never_owned());
        let empty = owners.typed(zero(&write("b")).unwrap()).field_set();
        let unowned = there.difference(&owned).difference(&empty);
        prop_assert!(unowned.is_empty(), "{:?}", unowned.paths());
    }
}

#[test]
fn large_lists_are_applied_in_time() {
    let kind = GroupVersionKind::new("resource.k8s.io/v1", "ResourceClaim");
    let none = FieldSet::default();
    let write = |manager| Write {
        schema: Schema::builtin(),
        kind: &kind,
        manager,
        subresource: "",
        now: time(1),
        reset: &none,
        versions: &OneVersion,
    };
    let claim = |from: usize| {
        let references: Vec<Value> = (from..from + 2_500)
            .map(|uid| json!({"uid": uid.to_string(), "name": "p"}))
            .collect();
        let finalizers: Vec<Value> = (from..from + 2_500).map(|name| name.to_string().into()).collect();
        object(json!({"apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": "c", "finalizers": finalizers}, "status": {"reservedFor": references}}))
    };
    let first = apply(&write("a"), None, &claim(0), false).unwrap();
    let second = apply(&write("b"), Some(&first), &claim(1_250), false).unwrap();
    assert_eq!(second["status"]["reservedFor"].as_array().unwrap().len(), 3_750);
    let third = apply(&write("a"), Some(&second), &claim(2_500), false).unwrap();
    assert_eq!(third["metadata"]["finalizers"].as_array().unwrap().len(), 3_750);
}
