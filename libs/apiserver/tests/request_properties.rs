//! Whatever a client sends, the parts that read it neither panic nor forget; what they write, they read again.

use apiserver::list::{self, Horizon, Listed, NextPage, Position};
use apiserver::negotiate::{self, Answer, Offer};
use apiserver::request::{self, DeleteOptions, Incoming, ListOptions, Target};
use apiserver::resources::{Catalog, ResourceType};
use apiserver::rules::{self, Creation, Origin, Part, Update};
use apiserver::selectors::{FieldSelector, LabelSelector};
use apiserver::table::{self, Header, IncludeObject, TableStyle};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn catalog() -> Catalog {
    Catalog::standard(|_| true)
}

fn now() -> jiff::Timestamp {
    "2026-12-01T12:00:00Z".parse().expect("is a time")
}

/// JSON with the names that objects have, so that something is found at the paths that are looked at.
fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z0-9./-]{0,8}",
        Just("2026-12-01T11:00:00Z".to_owned()),
        Just("True".to_owned()),
        Just("Ready".to_owned()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "conditions",
        "type",
        "phase",
        "containers",
        "initContainers",
        "containerStatuses",
        "initContainerStatuses",
        "state",
        "terminated",
        "waiting",
        "running",
        "exitCode",
        "restartCount",
        "lastState",
        "finishedAt",
        "nodeName",
        "pools",
        "poolCount",
        "totalDevices",
        "series",
        "count",
        "selector",
        "matchLabels",
        "matchExpressions",
        "operator",
        "values",
        "key",
        "template",
        "time",
        "terminationGracePeriodSeconds",
        "hard",
        "used",
        "preconditions",
        "dryRun",
        "reason",
        "allocation",
        "reservedFor",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// An object that has a name, and whatever else.
fn object() -> impl Strategy<Value = Value> {
    (json_value(), json_value(), json_value(), json_value()).prop_map(|(metadata, spec, status, other)| {
        let fields = |value: Value| value.as_object().cloned().unwrap_or_default();
        let mut metadata = fields(metadata);
        for field in ["namespace", "resourceVersion", "ownerReferences", "labels", "uid"] {
            metadata.remove(field);
        }
        metadata.insert("name".to_owned(), Value::from("x"));
        let mut object = fields(other);
        object.insert("metadata".to_owned(), Value::Object(metadata));
        object.insert("spec".to_owned(), spec);
        object.insert("status".to_owned(), status);
        Value::Object(object)
    })
}

fn a_resource() -> impl Strategy<Value = ResourceType> {
    let all: Vec<ResourceType> = catalog().resources().map(|resource| (**resource).clone()).collect();
    prop::sample::select(all)
}

proptest! {
    #[test]
    fn label_selectors_print_what_they_parse(text in "[ a-c,=!()<>1/.inot]{0,40}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn field_selectors_print_what_they_parse(text in r"[a-c,=!\\é. ]{0,40}") {
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn selectors_of_any_text(text in any::<String>()) {
        let labels = LabelSelector::parse(&text).map(|selector| selector.requirements().len());
        let fields = FieldSelector::parse(&text).map(|selector| selector.terms().len());
        prop_assert!(labels.unwrap_or_default() <= text.len() && fields.unwrap_or_default() <= text.len());
    }

    #[test]
    fn urls_of_any_text(
        method in "(GET|PUT|POST|PATCH|DELETE|HEAD|x)",
        path in "(/api/v1|/apis/resource.k8s.io/v1|/apis|)(/(watch|namespaces|pods|status|resourceclaims|a|%2f|%zz|é)){0,6}/?",
        query in "((watch|limit|fieldSelector|continue|dryRun|resourceVersion)=[a-z0-9=%,-]{0,5}&?){0,4}",
    ) {
        if let Ok(target) = Target::parse(&method, &path, &query) {
            let incoming = Incoming { method: &method, path: &path, query: &query, ..Incoming::default() };
            if let Ok(request::Request::Resource(found)) = request::resolve(&target, &incoming, &catalog()) {
                // What authorization decided on is what is done.
                prop_assert_eq!(found.operation.verb().text(), target.verb);
                let addressed = target.resource.expect("objects are addressed");
                prop_assert_eq!(&found.resource.plural, &addressed.plural);
                prop_assert_eq!(found.subresource.unwrap_or_default(), addressed.subresource);
                if !found.namespace.is_empty() {
                    prop_assert_eq!(found.namespace, addressed.namespace);
                }
                if !found.name.is_empty() {
                    prop_assert_eq!(found.name, addressed.name);
                }
            }
        }
    }

    #[test]
    fn accept_headers_of_any_text(
        header in "([a-z*]{0,12}/?[a-z*.+]{0,10}(;(q|as|g|v)=[0-9a-zA-Z.]{0,6}){0,3},?){0,5}",
        has_protobuf: bool,
    ) {
        for answer in [Answer::Object, Answer::List, Answer::Watch, Answer::Groups, Answer::Document] {
            if let Err(status) = negotiate::accept(Some(&header), Offer { answer, has_protobuf }) {
                prop_assert_eq!(status.code, 406);
            }
        }
    }

    #[test]
    fn tokens_of_any_text_and_of_any_position(
        text in "[A-Za-z0-9_-]{0,80}",
        namespace in any::<String>(),
        name in ".{1,20}",
        version in 1_u64..1000,
    ) {
        let pods = catalog().find("", "v1", "pods").cloned().expect("is served");
        let listed = Listed { resource: &pods, namespace: "" };
        let horizon = Horizon { oldest: 1, current: 1000 };
        let continued = |token: String| ListOptions { continue_token: Some(token), ..ListOptions::default() };
        prop_assert!(list::decide(&continued(text), listed, horizon).is_err());
        let after = Position { namespace, name };
        let next = NextPage { after: after.clone(), remaining: None };
        let token = list::metadata(listed, version, Some(next))["continue"].as_str().unwrap_or_default().to_owned();
        let plan = list::decide(&continued(token), listed, horizon).map_err(|status| status.message);
        // A token may be too long to be taken back, for names that no object has.
        if after.namespace.len() + after.name.len() < 500 {
            prop_assert_eq!(plan.map(|plan| plan.after), Ok(Some(after)));
        }
    }

    #[test]
    fn rules_on_any_object(resource in a_resource(), new in object(), old in object(), options in json_value()) {
        let creation = Creation {
            resource: &resource,
            namespace: if resource.is_namespaced() { "demo" } else { "" },
            name: None,
            uid: "7d3ff0ab-0f4c-4cf3-8a5c-1e0a8e1c7a55",
            now: now(),
            random: [1; 5],
        };
        let mut created = new.clone();
        let is_created = rules::prepare_create(&mut created, &creation).is_ok();
        if is_created {
            prop_assert_eq!(rules::metadata::check_create(&created, &resource), vec![]);
            // What is stored can be written again, and then nothing changes.
            created["metadata"]["resourceVersion"] = Value::from("7");
            for part in [Part::Main, Part::Status] {
                let update = Update {
                    resource: &resource,
                    part,
                    origin: Origin::Put,
                    namespace: creation.namespace,
                    name: created["metadata"]["name"].as_str().unwrap_or_default(),
                };
                let mut again = created.clone();
                let outcome = rules::prepare_update(&mut again, &created, &update).map_err(|status| status.message);
                prop_assert_eq!(outcome, Ok(rules::UpdateOutcome::Unchanged));
            }
            // Deleting ends: what is only marked and then let go of is removed.
            let step = rules::decide_delete(&resource, &created, &DeleteOptions::default(), now())?;
            if let rules::DeleteStep::Mark { marked } = step {
                prop_assert!(marked["metadata"]["deletionTimestamp"].is_string());
                let again = rules::decide_delete(&resource, &marked, &DeleteOptions::default(), now());
                prop_assert_eq!(again, Ok(rules::DeleteStep::Wait));
            }
        }
        let update = Update { resource: &resource, part: Part::Main, origin: Origin::Put, namespace: "", name: "x" };
        let mut updated = new.clone();
        let _outcome = rules::prepare_update(&mut updated, &old, &update);
        if let Ok(options) = DeleteOptions::from_body(&options) {
            let _step = rules::decide_delete(&resource, &old, &options, now());
        }
    }

    #[test]
    fn rows_of_any_object(resource in a_resource(), object in object()) {
        let style = TableStyle { version: negotiate::MetaVersion::V1, include_object: IncludeObject::None, now: now() };
        let shown = table::object_table(&resource, &object, style, Header::Shown);
        let count = |list: &Value| list.as_array().map(Vec::len);
        prop_assert_eq!(count(&shown["columnDefinitions"]), count(&shown["rows"][0]["cells"]));
        let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
        for (column, cell) in items(&shown["columnDefinitions"]).iter().zip(&items(&shown["rows"][0]["cells"])) {
            let fits = match column["type"].as_str() {
                Some("integer") => cell.is_i64() || cell.is_u64(),
                Some("boolean") => cell.is_boolean(),
                _ => cell.is_string() || cell.is_i64() || cell.is_u64(),
            };
            prop_assert!(fits, "{} shows {}", column["name"], cell);
        }
    }
}
