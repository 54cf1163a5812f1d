//! What recorded bytes do not show: other encodings of the same, and damage.

use serde_json::json;

use super::*;
use crate::schema::GroupVersionKind;

fn message(name: &str) -> &'static Message {
    Schema::builtin().named(name).unwrap()
}

#[track_caller]
fn check_read(name: &str, bytes: &[u8], wanted: Value) {
    let tree = read(Schema::builtin(), message(name), bytes, &Budget::default()).unwrap();
    assert_eq!(tree, Tree::from(wanted));
}

#[track_caller]
fn check_fault(name: &str, bytes: &[u8], wanted: &str) {
    let error = read(Schema::builtin(), message(name), bytes, &Budget::default()).unwrap_err();
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn packed_and_single_scalars_of_lists_are_the_same() {
    // ContainerRestartRuleOnExitCodes.values, field 2.
    let wanted = json!({"values": [1, 2, -1]});
    let minus_one = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    check_read(
        "core/ContainerRestartRuleOnExitCodes",
        &[b"\x10\x01\x10\x02\x10".as_slice(), minus_one].concat(),
        wanted.clone(),
    );
    check_read(
        "core/ContainerRestartRuleOnExitCodes",
        &[b"\x12\x0c\x01\x02".as_slice(), minus_one].concat(),
        wanted,
    );
}

#[test]
fn unknown_fields_and_other_wire_types_are_skipped() {
    // Field 15 in each wire type, then DeviceTaint.key as a number, then as text.
    let bytes = b"\x78\x05\x79\0\0\0\0\0\0\0\0\x7a\x01x\x7d\0\0\0\0\x08\x07\x0a\x01k";
    check_read("resource/DeviceTaint", bytes, json!({"key": "k"}));
}

#[test]
fn the_last_of_several_values_counts() {
    check_read("resource/DeviceTaint", b"\x0a\x01a\x0a\x01b", json!({"key": "b"}));
}

#[test]
fn map_entries_without_a_value_have_the_empty_one() {
    // A map is field 2 of Secret (bytes), 4 of UserInfo (wrapped lists) and 11 of ObjectMeta (text).
    check_read("core/Secret", b"\x12\x03\x0a\x01k", json!({"data": {"k": ""}}));
    check_read("authentication/UserInfo", b"\x22\x03\x0a\x01k", json!({"extra": {"k": []}}));
    check_read("meta/ObjectMeta", b"\x5a\x03\x0a\x01k", json!({"labels": {"k": null}}));
}

#[test]
fn empty_times_are_null() {
    check_read("resource/DeviceTaint", b"\x22\0", json!({"timeAdded": null}));
}

#[test]
fn damage_is_named() {
    check_fault("resource/DeviceTaint", b"\x0a\x05abc", "unexpected end of data");
    check_fault(
        "resource/DeviceTaint",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
        "out of range",
    );
    check_fault("resource/DeviceTaint", b"\x02\x00", "out of range");
    check_fault("resource/DeviceTaint", b"\x0b", "wire type 3 of field 1");
    check_fault("resource/DeviceTaint", b"\x0a\x01\xff", "not UTF-8");
    check_fault(
        "resource/DeviceTaint",
        b"\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",
        "",
    );
    check_fault(
        "resource/OpaqueDeviceConfiguration",
        b"\x12\x03\x0a\x01{",
        "EOF while parsing",
    );
    check_fault("meta/Table", b"", "Table has no protobuf form");
}

#[test]
fn embedded_json_is_as_limited_as_the_rest() {
    let deep = "[".repeat(crate::body::tree::DEPTH_MAX);
    let mut raw = vec![0x0a, u8::try_from(deep.len()).unwrap()];
    raw.extend(deep.as_bytes());
    let mut bytes = vec![0x12, u8::try_from(raw.len()).unwrap()];
    bytes.extend(raw);
    check_fault("resource/OpaqueDeviceConfiguration", &bytes, "levels deep");
}

#[test]
fn empty_messages_are_counted() {
    // DeviceClaim.requests, field 1, each of two bytes.
    let bytes = b"\x0a\x00".repeat(crate::body::tree::CONTAINERS_MAX + 1);
    check_fault("resource/DeviceClaim", &bytes, "objects and lists");
}

#[test]
fn content_of_other_types_is_refused() {
    let error = Envelope::open(b"k8s\0\x22\x10application/json").unwrap_err();
    assert!(error.to_string().contains("application/json"), "{error}");
    assert!(matches!(Envelope::open(b"{}"), Err(ReadError::NoMagic)));
}

#[test]
fn values_that_do_not_fit_are_located() {
    let kind = GroupVersionKind::new("resource.k8s.io/v1", "ResourceSlice");
    let Value::Object(object) = json!({"spec": {"pool": {"generation": "x"}}}) else {
        unreachable!()
    };
    let error = write_enveloped(Schema::builtin(), &kind, &object, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "ResourceSlice.spec.pool.generation is not a whole number");
}
