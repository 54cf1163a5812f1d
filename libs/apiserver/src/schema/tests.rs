//! The tables themselves, and how tables are read.

use super::*;
use crate::schema::table::parse;

fn claim() -> &'static Message {
    let kind = GroupVersionKind::new("resource.k8s.io/v1", "ResourceClaim");
    Schema::builtin().of_kind(&kind).unwrap()
}

#[test]
fn the_tables_are_well_formed() {
    let schema = table::builtin().unwrap();
    assert!(schema.messages().count() > 300);
    for message in schema.messages() {
        let mut numbers: Vec<_> = message.fields.iter().filter_map(|field| field.number).collect();
        let all = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "{} has a number twice", message.model);
        assert!(
            all == 0 || all == message.fields.len(),
            "{} has fields without number",
            message.model
        );
        for field in &message.fields {
            let keys = match &field.list {
                ListKind::Map(keys) => keys.as_slice(),
                ListKind::Atomic | ListKind::Set => &[],
            };
            let keys = keys.iter().chain(&field.patch.merge_key);
            let Type::List(element) = &field.ty else {
                assert_eq!(keys.count(), 0, "{}.{}", message.model, field.name);
                continue;
            };
            for key in keys {
                let Type::Message(id) = **element else {
                    panic!("{}.{}", message.model, field.name)
                };
                assert!(
                    schema.field(schema.message(id), key).is_some(),
                    "{}.{}: {key}",
                    message.model,
                    field.name
                );
            }
        }
    }
}

#[test]
fn inlined_fields_are_found_by_their_name() {
    let schema = Schema::builtin();
    let probe = schema.named("core/Probe").unwrap();
    assert!(schema.field(probe, "handler").is_none());
    let field = schema.field(probe, "httpGet").unwrap();
    assert_eq!((field.number, field.optional), (Some(2), true));
    assert_eq!(schema.inlined_from(probe, "httpGet").unwrap().name, "ProbeHandler");
    assert!(schema.json_fields(probe).any(|field| field.name == "periodSeconds"));
}

#[test]
fn list_rules_are_those_of_the_api() {
    let schema = Schema::builtin();
    let status = schema.named("resource/ResourceClaimStatus").unwrap();
    let devices = schema.field(status, "devices").unwrap();
    let keys = ["driver", "device", "pool", "shareID"].map(str::to_owned).to_vec();
    assert_eq!(devices.list, ListKind::Map(keys));
    assert_eq!(devices.patch, PatchStrategy::default());
    let reserved = schema.field(status, "reservedFor").unwrap();
    assert_eq!(reserved.patch.merge_key.as_deref(), Some("uid"));
    let finalizers = schema.field(schema.named("meta/ObjectMeta").unwrap(), "finalizers").unwrap();
    assert_eq!(finalizers.list, ListKind::Set);
    assert!(finalizers.patch.merge);
}

#[test]
fn descriptions_reach_every_version() {
    let schema = Schema::builtin();
    for name in [
        "resource/ResourceClaimSpec",
        "resource-v1beta1/ResourceClaimSpec",
        "resource-v1beta2/ResourceClaimSpec",
    ] {
        let message = schema.named(name).unwrap();
        assert!(message.description.is_some(), "{name}");
        assert!(message.fields[0].description.is_some(), "{name}");
    }
    assert!(claim().description.is_some());
    // The claim of a container has the same name and another meaning.
    assert!(schema.named("core/ResourceClaim").unwrap().description.is_none());
}

#[test]
fn kinds_without_a_schema_are_custom() {
    let schema = Schema::builtin();
    let kind = GroupVersionKind::new("resource.nvidia.com/v1beta1", "ComputeDomain");
    assert!(schema.of_kind(&kind).is_none());
    assert!(schema.of_kind_or_custom(&kind).open);
    let options = GroupVersionKind::new("apps/v1", "DeleteOptions");
    assert_eq!(schema.of_kind(&options).unwrap().name, "DeleteOptions");
}

#[track_caller]
fn check_fault(lines: &str, wanted: &str) {
    let custom = "package meta m\nmessage Custom open\n";
    let table = format!("{custom}{lines}");
    let error = parse(&[&table], "").unwrap_err().to_string();
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn faults_in_tables_are_named() {
    check_fault("message A\n  1 a B\n", r#"message "meta/B" is not defined"#);
    check_fault("message A\nmessage A\n", r#""meta/A" is defined twice"#);
    check_fault("message A\n  x a string\n", "not a field number");
    check_fault("message A\n  1 a\n", "a field is `number name type`");
    check_fault("message A\n  1 a string huh\n", "unknown flag of a field");
    check_fault("message A\n  1 a string patch=glue\n", "unknown patch strategy");
    check_fault("message A huh\n", "unknown flag of a message");
    check_fault("huh\n", "neither package, message nor field");
    check_fault(
        "message A\n  1 a string\n  2 b B inline\nmessage B\n  1 a string\n",
        r#""a" is defined twice"#,
    );
    let table = "package meta m\nmessage Custom open\n";
    let error = parse(&[table], "meta/Custom.x: text").unwrap_err();
    assert_eq!(
        error,
        TableError::Description {
            name: "meta/Custom.x".to_owned()
        }
    );
}
