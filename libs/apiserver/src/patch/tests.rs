//! Patches against what upstream's libraries make of the same ones (`testdata`, recorded from Kubernetes v1.37.2), and limits.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::body::kind_of;
use crate::schema::arbitrary;

#[derive(Deserialize)]
struct Recorded {
    #[serde(rename = "type")]
    patch_type: String,
    object: Map<String, Value>,
    patch: Value,
    result: Option<Value>,
    error: Option<String>,
}

#[test]
fn recorded_patches_give_the_recorded_results() {
    let cases: Vec<Recorded> = serde_json::from_str(include_str!("../../testdata/patches.json")).unwrap();
    for case in cases {
        let patch_type = match case.patch_type.as_str() {
            "strategic" => PatchType::Strategic,
            "merge" => PatchType::Merge,
            _ => PatchType::Json,
        };
        let patch = case.patch.to_string();
        let found = apply(
            Schema::builtin(),
            &kind_of(&case.object),
            patch_type,
            &case.object,
            patch.as_bytes(),
        );
        match (found, case.result) {
            (Ok(body), Some(wanted)) => assert_eq!(Value::Object(body.object), wanted, "{patch}"),
            (Err(_), None) => assert!(case.error.is_some()),
            (found, wanted) => panic!("{patch}: {found:?}, wanted {wanted:?} or {:?}", case.error),
        }
    }
}

fn claim() -> Map<String, Value> {
    let Value::Object(object) = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}})
    else {
        unreachable!()
    };
    object
}

fn patched(patch_type: PatchType, patch: &str) -> Result<Body, PatchError> {
    apply(Schema::builtin(), &kind_of(&claim()), patch_type, &claim(), patch.as_bytes())
}

#[track_caller]
fn check_findings(patch_type: PatchType, patch: &str, wanted: &[&str]) {
    let body = patched(patch_type, patch).unwrap();
    let found: Vec<_> = body.findings.iter().map(Finding::to_string).collect();
    assert_eq!(found, wanted);
}

#[test]
fn findings_are_those_of_the_patch_and_of_the_result() {
    let patch = r#"{"metadata":{"labels":{"a":"1","a":"2"}},"spec":{"zz":1}}"#;
    let wanted = [r#"duplicate field "metadata.labels.a""#, r#"unknown field "spec.zz""#];
    check_findings(PatchType::Merge, patch, &wanted);
    check_findings(PatchType::Strategic, patch, &wanted);
    check_findings(
        PatchType::Json,
        r#"[{"op":"add","path":"/spec","value":{"zz":1},"foo":1}]"#,
        &[r#"json patch unknown field "[0].foo""#, r#"unknown field "spec.zz""#],
    );
}

#[track_caller]
fn check_refused(patch_type: PatchType, patch: &str, wanted: &str) {
    let error = patched(patch_type, patch).unwrap_err().to_string();
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn limits_hold() {
    let operations = vec![r#"{"op":"test","path":"/metadata/name","value":"c"}"#; OPERATIONS_MAX + 1].join(",");
    check_refused(PatchType::Json, &format!("[{operations}]"), "is 10000, got 10001");
    let doubling = r#"{"op":"copy","from":"/metadata","path":"/x"},{"op":"copy","from":"/x","path":"/metadata/NAME"}"#;
    let doubling = (0..30)
        .map(|round| doubling.replace("NAME", &round.to_string()))
        .collect::<Vec<_>>()
        .join(",");
    check_refused(
        PatchType::Json,
        &format!("[{doubling}]"),
        "accumulated size increase of copies exceeds the limit",
    );
    let deep = format!("{}{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    check_refused(PatchType::Merge, &deep, "levels deep");
    check_refused(PatchType::Merge, &" ".repeat(BODY_BYTES_MAX + 1), "Request entity too large");
}

#[test]
fn a_patch_of_another_kind_or_a_bad_result_is_refused() {
    check_refused(
        PatchType::Merge,
        r#"{"metadata":{"name":5}}"#,
        "cannot unmarshal number into Go struct field ObjectMeta",
    );
    check_refused(PatchType::Merge, r#"{"kind":"Pod"}"#, "the kinds differ");
    check_refused(PatchType::Json, r#"[{"op":"replace","path":"","value":[]}]"#, "not an object");
    check_refused(PatchType::Json, "{", "error decoding patch");
}

#[test]
fn custom_resources_have_no_strategic_merge_patch() {
    let kind = GroupVersionKind::new("resource.nvidia.com/v1beta1", "ComputeDomain");
    let apply = |patch_type| apply(Schema::builtin(), &kind, patch_type, &Map::new(), b"{\"spec\":{\"a\":1}}");
    assert!(matches!(apply(PatchType::Strategic), Err(PatchError::NotSupported)));
    assert_eq!(apply(PatchType::Merge).unwrap().object["spec"], json!({"a": 1}));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_object_patched_with_itself_or_nothing_stays(object in arbitrary::object()) {
        let kind = kind_of(&object);
        let itself = Value::Object(object.clone()).to_string();
        let schema = Schema::builtin();
        for (patch_type, patch) in [(PatchType::Merge, itself.as_str()), (PatchType::Merge, "{}"), (PatchType::Json, "[]"), (PatchType::Strategic, "{}")] {
            let body = apply(schema, &kind, patch_type, &object, patch.as_bytes()).unwrap();
            prop_assert_eq!(&body.object, &object);
        }
    }

    #[test]
    fn any_object_is_a_strategic_patch_with_a_proper_result_or_is_refused(
        (object, patch) in (0..usize::MAX).prop_flat_map(|choice| {
            let kinds: Vec<_> = Schema::builtin().kinds().map(|(kind, _)| kind).collect();
            let kind = kinds[choice % kinds.len()];
            (arbitrary::object_of(kind), arbitrary::object_of(kind))
        })
    ) {
        let kind = kind_of(&object);
        let text = Value::Object(patch).to_string();
        if let Ok(patched) = apply(Schema::builtin(), &kind, PatchType::Strategic, &object, text.as_bytes()) {
            let again = body::conform(Schema::builtin(), &kind, patched.object.clone()).unwrap();
            prop_assert_eq!(again.object, patched.object);
        }
    }
}

#[test]
fn large_lists_are_merged_in_time() {
    let number = 20_000;
    let finalizers = |prefix: &str| -> Vec<Value> { (0..number).map(|index| format!("{prefix}/{index}").into()).collect() };
    let owners = |prefix: &str| -> Vec<Value> { (0..number).map(|index| json!({"uid": format!("{prefix}{index}")})).collect() };
    let mut object = claim();
    object["metadata"] = json!({"name": "c", "finalizers": finalizers("a"), "ownerReferences": owners("a")});
    let deletions: Vec<Value> = (0..number / 2)
        .map(|index| json!({"$patch": "delete", "uid": format!("a{index}")}))
        .collect();
    let owners_patch = [owners("b"), deletions].concat();
    let patch = json!({"metadata": {
        "finalizers": finalizers("b"),
        "$setElementOrder/ownerReferences": owners("b"),
        "ownerReferences": owners_patch,
    }});
    let kind = kind_of(&object);
    let patched = apply(
        Schema::builtin(),
        &kind,
        PatchType::Strategic,
        &object,
        patch.to_string().as_bytes(),
    )
    .unwrap();
    let metadata = &patched.object["metadata"];
    assert_eq!(metadata["finalizers"].as_array().unwrap().len(), 2 * number);
    assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), number + number / 2);
}
