//! Schemas against those that upstream publishes (`testdata`, descriptions left out), and what kubectl looks for.

use std::collections::BTreeMap;

use super::*;
use crate::resources::Scope;

fn catalog() -> Catalog {
    Catalog::standard(|_| true)
}

fn documents_by_name() -> BTreeMap<String, Value> {
    let documents = documents(Schema::builtin(), &catalog()).unwrap();
    let parsed = |document: Document| (document.name, serde_json::from_slice(&document.json).unwrap());
    documents.into_iter().map(parsed).collect()
}

/// Without texts, and without what says the same as saying nothing.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let kept = entries.iter().filter(|(key, value)| match key.as_str() {
                "description" => !value.is_string(),
                "x-kubernetes-list-type" => *value != "atomic",
                // Upstream's say in which groups the kinds that exist everywhere are.
                "x-kubernetes-group-version-kind" => false,
                _ => true,
            });
            Value::Object(kept.map(|(key, value)| (key.clone(), bare(value))).collect())
        }
        Value::Array(items) => {
            let mut items: Vec<_> = items.iter().map(bare).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        scalar => scalar.clone(),
    }
}

#[test]
fn schemas_are_those_of_upstream() {
    let upstream: BTreeMap<String, Map<String, Value>> =
        serde_json::from_str(include_str!("../../testdata/openapi.json")).unwrap();
    let documents = documents_by_name();
    for (document, schemas) in upstream {
        for (name, wanted) in schemas {
            let found = &documents[&document]["components"]["schemas"][&name];
            if name.ends_with(".WatchEvent")
                || name.ends_with(".Patch")
                || name.ends_with(".APIResource")
                || name.ends_with(".APIResourceList")
            {
                continue; // Nothing refers to these here.
            }
            let (found, wanted) = (bare(found), bare(&wanted));
            for (property, wanted) in wanted["properties"].as_object().into_iter().flatten() {
                assert_eq!(&found["properties"][property], wanted, "{name}.{property}");
            }
            assert_eq!(found, wanted, "{name}");
        }
    }
}

#[test]
fn every_reference_has_its_schema() {
    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(entries) => {
                found.extend(entries.get("$ref").and_then(Value::as_str));
                entries.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    for (name, document) in documents_by_name() {
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let model = reference.trim_start_matches("#/components/schemas/");
            assert!(document["components"]["schemas"][model].is_object(), "{name}: {reference}");
        }
    }
}

#[test]
fn every_kind_has_a_patch_with_field_validation() {
    let documents = documents_by_name();
    for resource in catalog().resources().filter(|resource| resource.allows(Verb::Patch)) {
        let document = documents.values().find(|document| {
            let paths = document["paths"].as_object().unwrap();
            paths.values().any(|path| {
                let operation = &path["patch"];
                operation["x-kubernetes-group-version-kind"] == kind_value(&resource.gvk())
                    && operation["parameters"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .any(|parameter| parameter["name"] == "fieldValidation")
                    && operation["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object()
            })
        });
        assert!(document.is_some(), "{}", resource.kind);
    }
}

#[test]
fn kinds_are_found_from_their_schemas() {
    let documents = documents_by_name();
    let schemas = &documents["apis/resource.k8s.io/v1"]["components"]["schemas"];
    let claim = &schemas["io.k8s.api.resource.v1.ResourceClaim"];
    let kind = json!([{"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}]);
    assert_eq!(claim["x-kubernetes-group-version-kind"], kind);
    assert!(claim["properties"]["spec"]["description"].is_string());
    let options = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
    let kind = json!([{"group": "resource.k8s.io", "version": "v1", "kind": "DeleteOptions"}]);
    assert_eq!(options["x-kubernetes-group-version-kind"], kind);
}

#[test]
fn the_index_names_documents_with_their_hashes() {
    let documents = documents(Schema::builtin(), &catalog()).unwrap();
    let again = super::documents(Schema::builtin(), &catalog()).unwrap();
    assert_eq!(documents, again);
    let index = index(&documents);
    let document = documents.iter().find(|document| document.name == "api/v1").unwrap();
    let url = format!("/openapi/v3/api/v1?hash={}", document.hash);
    assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], url.as_str());
    assert_eq!(document.hash.len(), 64);
}

#[test]
fn custom_resources_are_open_and_have_no_strategic_merge_patch() {
    let mut catalog = Catalog::new();
    let kind = GroupVersionKind::new("resource.nvidia.com/v1beta1", "ComputeDomain");
    let before = documents(Schema::builtin(), &catalog).unwrap().len();
    catalog
        .add(ResourceType::custom(&kind, "computedomains", Scope::Namespaced, true))
        .unwrap();
    let documents = documents(Schema::builtin(), &catalog).unwrap();
    assert_eq!(documents.len(), before + 1);
    let document: Value = serde_json::from_slice(&documents.last().unwrap().json).unwrap();
    let schema = &document["components"]["schemas"]["com.nvidia.resource.v1beta1.ComputeDomain"];
    assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true);
    let path = "/apis/resource.nvidia.com/v1beta1/namespaces/{namespace}/computedomains/{name}";
    let content = &document["paths"][path]["patch"]["requestBody"]["content"];
    assert!(content["application/merge-patch+json"].is_object());
    assert!(content["application/strategic-merge-patch+json"].is_null());
    assert!(document["paths"][format!("{path}/status")]["put"].is_object());
}
