//! Bodies against what upstream's decoder and encoder make of the same texts (`testdata`, recorded from Kubernetes v1.37.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::schema::arbitrary;

fn schema() -> &'static Schema {
    Schema::builtin()
}

#[derive(Deserialize)]
struct Recorded {
    name: String,
    input: Option<Map<String, Value>>,
    json: Map<String, Value>,
    protobuf: String,
}

fn recorded() -> Vec<Recorded> {
    serde_json::from_str(include_str!("../../testdata/protobuf.json")).unwrap()
}

#[test]
fn recorded_json_conforms_to_itself() {
    for case in recorded() {
        let text = serde_json::to_vec(case.input.as_ref().unwrap_or(&case.json)).unwrap();
        let body = decode(schema(), &kind_of(&case.json), Format::Json, &text).unwrap();
        assert_eq!(Value::Object(body.object), Value::Object(case.json), "{}", case.name);
        assert_eq!(body.findings, [], "{}", case.name);
    }
}

#[test]
fn recorded_protobuf_reads_as_the_recorded_json() {
    for case in recorded() {
        let bytes = BASE64.decode(&case.protobuf).unwrap();
        let body = decode(schema(), &kind_of(&case.json), Format::Protobuf, &bytes).unwrap();
        assert_eq!(Value::Object(body.object), Value::Object(case.json), "{}", case.name);
    }
}

#[test]
fn recorded_json_writes_as_the_recorded_protobuf() {
    for case in recorded() {
        let bytes = encode(schema(), &case.json, Format::Protobuf, false).unwrap();
        let wanted = BASE64.decode(&case.protobuf).unwrap();
        assert!(
            bytes == wanted,
            "{}:\n{}\n{}",
            case.name,
            bytes.escape_ascii(),
            wanted.escape_ascii()
        );
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Strict {
    kind: String,
    api_version: String,
    body: String,
    #[serde(default)]
    findings: Vec<String>,
    error: Option<String>,
    json: Option<Value>,
}

#[test]
fn recorded_findings_and_errors_are_the_same() {
    let cases: Vec<Strict> = serde_json::from_str(include_str!("../../testdata/strict.json")).unwrap();
    for case in cases {
        let kind = GroupVersionKind::new(&case.api_version, &case.kind);
        match (decode(schema(), &kind, Format::Json, case.body.as_bytes()), case.error) {
            (Ok(body), None) => {
                let findings: Vec<_> = body.findings.iter().map(Finding::to_string).collect();
                assert_eq!(findings, case.findings, "{}", case.body);
                assert_eq!(Some(Value::Object(body.object)), case.json, "{}", case.body);
            }
            (Err(BodyError::Shape { source, .. }), Some(wanted)) => {
                // Upstream says which part of a time is at fault, this crate that the time is.
                let cut = |text: &str| text.split(": cannot parse").next().unwrap_or_default().to_owned();
                assert_eq!(cut(&source.to_string()), cut(&wanted), "{}", case.body);
            }
            (found, wanted) => panic!("{}: {found:?}, wanted {wanted:?}", case.body),
        }
    }
}

fn claim() -> GroupVersionKind {
    GroupVersionKind::new("resource.k8s.io/v1", "ResourceClaim")
}

#[track_caller]
fn check_refused(format: Format, body: &[u8], wanted: &str) {
    let error = decode(schema(), &claim(), format, body).unwrap_err().to_string();
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn bodies_of_other_types_are_refused() {
    check_refused(
        Format::Json,
        br#"{"apiVersion":"resource.k8s.io/v1beta1","kind":"ResourceClaim"}"#,
        "the API version in the data (resource.k8s.io/v1beta1) does not match the expected API version (resource.k8s.io/v1)",
    );
    check_refused(
        Format::Json,
        br#"{"apiVersion":"v1","kind":"Pod"}"#,
        r#"Pod in version "v1" cannot be handled as a ResourceClaim"#,
    );
    check_refused(
        Format::Json,
        br#"{"metadata":{"name":1}}"#,
        r#"ResourceClaim in version "v1" cannot be handled as a ResourceClaim: json: cannot unmarshal number into Go struct"#,
    );
    check_refused(
        Format::Protobuf,
        b"{}",
        "provided data does not appear to be a protobuf message",
    );
    check_refused(Format::Protobuf, b"k8s\0\x0a\xff", "unexpected end of data");
    check_refused(Format::Json, b"", "(<empty>)");
    check_refused(Format::Json, b"null", "cannot unmarshal null");
}

#[test]
fn bodies_that_are_too_rich_are_refused() {
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(tree::DEPTH_MAX), "]".repeat(tree::DEPTH_MAX));
    check_refused(Format::Json, deep.as_bytes(), "levels deep");
    check_refused(Format::Yaml, deep.as_bytes(), "levels deep");
    let many = format!(r#"{{"a":[{}{{}}]}}"#, "{},".repeat(tree::CONTAINERS_MAX));
    check_refused(Format::Json, many.as_bytes(), "objects and lists");
    check_refused(
        Format::Json,
        &vec![b' '; BODY_BYTES_MAX + 1],
        "Request entity too large: limit is 3145728",
    );
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
        + &('b'..='j')
            .zip('a'..)
            .map(|(name, last)| format!("{name}: &{name} [{}*{last}]\n", format!("*{last},").repeat(8)))
            .collect::<String>();
    assert!(decode(schema(), &claim(), Format::Yaml, bomb.as_bytes()).is_err());
}

#[test]
fn yaml_reads_as_json_does() {
    let text = "
base: &base
  a: '1'
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: c
  labels:
    <<: *base
    b: \"2\"
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: x, count: 2}
      zz: 1
---
other: document
";
    let body = decode(schema(), &claim(), Format::Yaml, text.as_bytes()).unwrap();
    let wanted = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "labels": {"a": "1", "b": "2"}},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x", "count": 2}}]}},
        "status": {}});
    assert_eq!(Value::Object(body.object.clone()), wanted);
    let found: Vec<_> = body.findings.iter().map(Finding::to_string).collect();
    assert_eq!(
        found,
        [r#"unknown field "base""#, r#"unknown field "spec.devices.requests[0].zz""#]
    );
    let text = encode(schema(), &body.object, Format::Yaml, false).unwrap();
    assert_eq!(decode(schema(), &claim(), Format::Yaml, &text).unwrap().object, body.object);
}

#[test]
fn custom_resources_keep_everything_but_wrong_metadata() {
    let kind = GroupVersionKind::new("resource.nvidia.com/v1beta1", "ComputeDomain");
    let text = br#"{"metadata":{"name":"d","bad":1},"spec":{"numNodes":2,"x":null,"x":[1.5,18446744073709551615]},"status":{}}"#;
    let body = decode(schema(), &kind, Format::Json, text).unwrap();
    let wanted = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": "d"},
        "spec": {"numNodes": 2, "x": [1.5, 18446744073709551615.0]}, "status": {}});
    assert_eq!(Value::Object(body.object.clone()), wanted);
    let found: Vec<_> = body.findings.iter().map(Finding::to_string).collect();
    assert_eq!(found, [r#"unknown field "metadata.bad""#, r#"duplicate field "spec.x""#]);
    assert!(matches!(
        encode(schema(), &body.object, Format::Protobuf, false),
        Err(EncodeError::Protobuf(WriteError::NoForm { .. }))
    ));
}

#[test]
fn of_a_key_that_stands_twice_the_last_value_counts_but_no_null_of_a_scalar() {
    let text = br#"{"metadata":{"name":"a","name":null,"labels":{"a":"1"},"labels":null,"uid":"u","uid":"v"}}"#;
    let body = decode(schema(), &claim(), Format::Json, text).unwrap();
    assert_eq!(body.object["metadata"], json!({"name": "a", "uid": "v"}));
    assert_eq!(body.findings.len(), 3);
}

#[test]
fn bytes_are_base64_or_a_list_of_numbers() {
    let kind = GroupVersionKind::new("v1", "Secret");
    let data = |text: &str| decode(schema(), &kind, Format::Json, text.as_bytes()).map(|body| body.object["data"].clone());
    assert_eq!(
        data(r#"{"data":{"a":[0,255],"b":[]}}"#).unwrap(),
        json!({"a": "AP8=", "b": ""})
    );
    assert!(data(r#"{"data":{"a":[256]}}"#).is_err());
    assert!(data(r#"{"data":{"a":"?"}}"#).is_err());
}

#[test]
fn delete_options_have_any_of_the_types_that_clients_give_them() {
    for text in [
        "",
        "{}",
        r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"resource.k8s.io/v1"}"#,
    ] {
        let body = decode_options(schema(), "resource.k8s.io/v1", "DeleteOptions", Format::Json, text.as_bytes()).unwrap();
        assert_eq!(body.object.len(), 2, "{text}");
    }
    let other = br#"{"kind":"DeleteOptions","apiVersion":"apps/v1"}"#;
    assert!(decode_options(schema(), "resource.k8s.io/v1", "DeleteOptions", Format::Json, other).is_err());
}

#[test]
fn watch_frames_hold_enveloped_objects() {
    let Value::Object(object) = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}) else {
        unreachable!()
    };
    let line = encode_watch_event(schema(), "ADDED", &object, Format::Json).unwrap();
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line, json!({"type": "ADDED", "object": object}));
    let frame = encode_watch_event(schema(), "ADDED", &object, Format::Protobuf).unwrap();
    let (length, event) = frame.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, event.len());
    let enveloped = encode(schema(), &object, Format::Protobuf, false).unwrap();
    assert!(event.starts_with(b"\x0a\x05ADDED\x12"));
    assert!(event.ends_with(&enveloped));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn objects_of_every_kind_survive_every_format(object in arbitrary::object()) {
        let kind = kind_of(&object);
        for format in [Format::Json, Format::Yaml, Format::Protobuf] {
            let bytes = match encode(schema(), &object, format, false) {
                Err(EncodeError::Protobuf(WriteError::NoForm { .. })) => continue,
                bytes => bytes.unwrap(),
            };
            let body = decode(schema(), &kind, format, &bytes).unwrap();
            prop_assert_eq!(&body.object, &object, "{:?}", format);
            prop_assert_eq!(body.findings, []);
        }
    }

    #[test]
    fn damaged_protobuf_never_panics(object in arbitrary::object(), at in any::<prop::sample::Index>(), byte: u8) {
        let Ok(mut bytes) = encode(schema(), &object, Format::Protobuf, false) else { return Ok(()) };
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let kind = kind_of(&object);
        if let Ok(body) = decode(schema(), &kind, Format::Protobuf, &bytes) {
            let again = encode(schema(), &body.object, Format::Protobuf, false).unwrap();
            prop_assert_eq!(decode(schema(), &kind, Format::Protobuf, &again).unwrap().object, body.object);
        }
        let _refused = decode(schema(), &kind, Format::Protobuf, &bytes[..at]).is_err();
    }
}
