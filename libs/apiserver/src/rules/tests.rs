use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::request::{DeleteOptions, Propagation};
use crate::resources::{Catalog, ResourceType, Scope};
use crate::schema::GroupVersionKind;

const NOW: &str = "2026-12-01T12:00:00Z";
const UID: &str = "7d3ff0ab-0f4c-4cf3-8a5c-1e0a8e1c7a55";

fn now() -> Timestamp {
    "2026-12-01T12:00:00.75Z".parse().expect("is a time")
}

fn resource(group: &str, plural: &str) -> ResourceType {
    let catalog = Catalog::standard(|_| true);
    (**catalog.find(group, "v1", plural).expect("is served")).clone()
}

fn claims() -> ResourceType {
    resource("resource.k8s.io", "resourceclaims")
}

/// A value at a path like `/metadata/name`; absent is null.
fn at<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}

// --- create ---

fn created(resource: &ResourceType, namespace: &str, mut object: Value) -> Result<Value, (u16, String)> {
    let creation = Creation {
        resource,
        namespace,
        name: None,
        uid: UID,
        now: now(),
        random: [0, 26, 27, 5, u32::MAX],
    };
    match prepare_create(&mut object, &creation) {
        Ok(()) => Ok(object),
        Err(status) => Err((status.code, status.message)),
    }
}

#[test]
fn slice_of_a_driver_gets_name_and_system_fields() {
    // As the slice controller sends it; protobuf leaves empty texts and times.
    let slice = json!({
        "kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1",
        "metadata": {
            "generateName": "00001-gpu.example.com-node-a-", "name": "", "uid": "chosen", "creationTimestamp": null,
            "deletionTimestamp": "2020-01-01T00:00:00Z", "selfLink": "/x", "labels": {}, "generation": 7,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "u", "controller": true}]
        },
        "spec": {"driver": "gpu.example.com"}
    });
    let slice = created(&resource("resource.k8s.io", "resourceslices"), "", slice).expect("is good");
    let wanted = json!({
        "generateName": "00001-gpu.example.com-node-a-", "name": "00001-gpu.example.com-node-a-b9bjl", "uid": UID,
        "creationTimestamp": NOW, "generation": 1,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "u", "controller": true}]
    });
    assert_eq!(slice["metadata"]["name"].as_str().map(str::len), Some(34));
    assert_eq!(
        slice["metadata"]["name"].as_str().map(|name| &name[..29]),
        Some("00001-gpu.example.com-node-a-")
    );
    let mut without_name = slice["metadata"].clone();
    without_name["name"] = wanted["name"].clone();
    assert_eq!(without_name, wanted);
}

#[test]
fn generated_names_fit_into_a_label() {
    assert_eq!(generated_name("g-", [0, 1, 26, 27, 28]), "g-bc9bc");
    let name = generated_name(&"a".repeat(100), [0; 5]);
    assert_eq!((name.len(), name.ends_with("abbbbb")), (63, true));
    assert_eq!(generated_name(&"é".repeat(40), [0; 5]).len(), 63);
}

#[test]
fn namespace_comes_from_the_url() {
    let claim = created(&claims(), "demo", json!({"metadata": {"name": "c1"}, "status": {"x": 1}})).expect("is good");
    assert_eq!(
        claim,
        json!({"metadata": {"name": "c1", "namespace": "demo", "uid": UID, "creationTimestamp": NOW}})
    );
    let other = created(&claims(), "demo", json!({"metadata": {"name": "c1", "namespace": "other"}}));
    let text = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(other, Err((400, text.to_owned())));
    let class = json!({"metadata": {"name": "c", "namespace": "stray"}});
    let class = created(&resource("resource.k8s.io", "deviceclasses"), "", class).expect("is good");
    assert_eq!(at(&class, "/metadata/namespace"), &Value::Null);
}

#[test]
fn names_and_versions_that_cannot_be() {
    assert_eq!(
        created(&claims(), "demo", json!({})),
        Err((
            422,
            "ResourceClaim.resource.k8s.io \"\" is invalid: metadata.name: Required value: name or generateName is required"
                .to_owned()
        ))
    );
    let (code, message) = created(&claims(), "demo", json!({"metadata": {"name": "C_1"}})).expect_err("is no subdomain");
    assert_eq!(code, 422);
    assert!(
        message
            .starts_with("ResourceClaim.resource.k8s.io \"C_1\" is invalid: metadata.name: Invalid value: \"C_1\": a lowercase")
    );
    let namespaces = resource("", "namespaces");
    assert_eq!(
        created(&namespaces, "", json!({"metadata": {"name": "a.b"}})).map_err(|(code, _)| code),
        Err(422)
    );
    assert_eq!(
        created(&claims(), "demo", json!({"metadata": {"name": "c1", "resourceVersion": "7"}})),
        Err((500, "resourceVersion should not be set on objects to be created".to_owned()))
    );
    let mut lease = json!({"metadata": {"name": "a"}});
    let creation = Creation {
        resource: &resource("coordination.k8s.io", "leases"),
        namespace: "demo",
        name: Some("b"),
        uid: UID,
        now: now(),
        random: [0; 5],
    };
    let refused = prepare_create(&mut lease, &creation).map_err(|status| status.message);
    let text = "the name of the object (a) does not match the name on the URL (b)";
    assert_eq!(refused, Err(text.to_owned()));
}

#[test]
fn kinds_with_a_life_of_their_own() {
    let namespace = json!({"metadata": {"name": "demo", "labels": null}, "spec": {"finalizers": ["x.y/z"]}});
    let namespace = created(&resource("", "namespaces"), "", namespace).expect("is good");
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    assert_eq!(namespace["spec"]["finalizers"], json!(["x.y/z", "kubernetes"]));
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "demo"})
    );
    let pod = created(&resource("", "pods"), "demo", json!({"metadata": {"name": "p"}})).expect("is good");
    assert_eq!(
        (&pod["status"], &pod["metadata"]["generation"]),
        (&json!({"phase": "Pending"}), &json!(1))
    );
    let node = json!({"metadata": {"name": "n"}, "status": {"nodeInfo": {}}});
    let node = created(&resource("", "nodes"), "", node).expect("is good");
    assert_eq!(node["status"], json!({"nodeInfo": {}}));
}

#[test]
fn metadata_rules() {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true});
    let object = json!({"metadata": {
        "name": "c1", "labels": {"-": "é"}, "annotations": {"UPPER/ok": "x", "a b": ""},
        "finalizers": ["orphan", "foregroundDeletion", "Bad Name"],
        "ownerReferences": [owner, owner, {"apiVersion": "a/b/c", "kind": "", "name": "n", "uid": "u"},
                            {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}],
        "generation": -1, "namespace": "demo"
    }});
    let mut found: Vec<(String, String)> = metadata::check_create(&object, &claims())
        .into_iter()
        .map(|error| (error.path.clone(), error.kind.cause_reason().to_owned()))
        .collect();
    found.dedup();
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    for path in [
        "metadata.labels",
        "metadata.annotations",
        "metadata.finalizers",
        "metadata.ownerReferences",
        "metadata.ownerReferences[2].kind",
        "metadata.ownerReferences[2].apiVersion",
        "metadata.ownerReferences[3]",
        "metadata.generation",
    ] {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
    let big = json!({"metadata": {"name": "c1", "namespace": "demo", "annotations": {"a": "x".repeat(262_144)}}});
    let errors = metadata::check_create(&big, &claims());
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].to_string(),
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    );
}

#[test]
fn metadata_of_the_wrong_shape() {
    for (object, wanted) in [
        (json!([]), "the body must be an object"),
        (json!({"metadata": "x"}), "metadata must be an object"),
        (json!({"metadata": {"name": 1}}), "metadata.name must be a string"),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "metadata.labels must be an object of strings",
        ),
        (
            json!({"metadata": {"finalizers": [1]}}),
            "metadata.finalizers must be a list of strings",
        ),
        (
            json!({"metadata": {"ownerReferences": ["x"]}}),
            "metadata.ownerReferences must be a list of objects",
        ),
        (
            json!({"metadata": {"generation": 1.5}}),
            "metadata.generation must be an integer",
        ),
    ] {
        let refused = metadata::check_shape(&object).map_err(|status| (status.code, status.message));
        assert_eq!(refused, Err((400, wanted.to_owned())));
    }
    assert_eq!(
        metadata::check_shape(&json!({"metadata": {"name": null, "other": 1}})),
        Ok(())
    );
}

// --- update ---

fn stored_claim() -> Value {
    json!({
        "metadata": {"name": "c1", "namespace": "demo", "uid": UID, "resourceVersion": "42", "creationTimestamp": NOW,
                     "labels": {"a": "b"}, "managedFields": [{"manager": "m", "time": NOW}]},
        "spec": {"devices": {}}, "status": {"allocation": {}}
    })
}

fn updated(resource: &ResourceType, part: Part, new: Value, old: &Value) -> Result<(UpdateOutcome, Value), (u16, String)> {
    let mut new = new;
    let update = Update {
        resource,
        part,
        origin: Origin::Put,
        namespace: object::namespace(old),
        name: object::name(old),
    };
    match prepare_update(&mut new, old, &update) {
        Ok(outcome) => Ok((outcome, new)),
        Err(status) => Err((status.code, status.message)),
    }
}

#[test]
fn writing_what_is_stored_changes_nothing() {
    let old = stored_claim();
    let mut new = old.clone();
    // What protobuf, old clients and a manager that writes the same again make of it.
    new["metadata"]["generateName"] = json!("");
    new["metadata"]["creationTimestamp"] = Value::Null;
    new["metadata"]["annotations"] = json!({});
    new["metadata"]["managedFields"][0]["time"] = json!("2026-12-01T13:00:00Z");
    new["status"] = Value::Null;
    let outcome = updated(&claims(), Part::Main, new, &old);
    assert_eq!(outcome, Ok((UpdateOutcome::Unchanged, old)));
}

#[test]
fn versions_and_incarnations() {
    let old = stored_claim();
    let with = |field: &str, value: &str| {
        let mut new = stored_claim();
        new["metadata"][field] = json!(value);
        new["metadata"]["labels"] = json!({"a": "c"});
        new
    };
    let modified = "Operation cannot be fulfilled on resourceclaims.resource.k8s.io \"c1\": the object has been modified; please \
                    apply your changes to the latest version and try again";
    assert_eq!(
        updated(&claims(), Part::Main, with("resourceVersion", "41"), &old),
        Err((409, modified.to_owned()))
    );
    assert_eq!(
        updated(&claims(), Part::Main, with("resourceVersion", "x"), &old).map_err(|(code, _)| code),
        Err(400)
    );
    assert_eq!(
        updated(&claims(), Part::Main, with("uid", "other"), &old).map_err(|(code, _)| code),
        Err(409)
    );
    assert_eq!(
        updated(&claims(), Part::Main, with("name", "c2"), &old),
        Err((
            400,
            "the name of the object (c2) does not match the name on the URL (c1)".to_owned()
        ))
    );
    let (outcome, new) = updated(&claims(), Part::Main, with("resourceVersion", ""), &old).expect("unconditional");
    assert_eq!(
        (outcome, at(&new, "/metadata/resourceVersion")),
        (UpdateOutcome::Changed, &json!("42"))
    );

    let rules = resource("resource.k8s.io", "devicetaintrules");
    let rule = json!({"metadata": {"name": "r1", "resourceVersion": "7"}});
    let text = "devicetaintrules.resource.k8s.io \"r1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                specified for an update";
    assert_eq!(
        updated(&rules, Part::Main, json!({"metadata": {"name": "r1"}}), &rule),
        Err((422, text.to_owned()))
    );
}

#[test]
fn each_path_writes_its_part() {
    let old = stored_claim();
    let new = json!({"metadata": {"name": "c1", "labels": {"x": "y"}, "finalizers": ["a/b"], "managedFields": [{"manager": "n"}]},
                     "spec": {"devices": {"requests": []}}, "status": {"devices": []}});
    let (_, main) = updated(&claims(), Part::Main, new.clone(), &old).expect("is good");
    assert_eq!(
        (&main["status"], &main["metadata"]["labels"]),
        (&old["status"], &json!({"x": "y"}))
    );
    let (outcome, status) = updated(&claims(), Part::Status, new, &old).expect("is good");
    assert_eq!(outcome, UpdateOutcome::Changed);
    let mut wanted = old.clone();
    wanted["status"] = json!({"devices": []});
    wanted["metadata"]["managedFields"] = json!([{"manager": "n"}]);
    assert_eq!(status, wanted);
    let without = json!({"metadata": {"name": "c1", "managedFields": old["metadata"]["managedFields"]}});
    let (_, status) = updated(&claims(), Part::Status, without, &old).expect("is good");
    assert_eq!(status.get("status"), None);
}

#[test]
fn status_writes_of_other_kinds_take_metadata() {
    let old = json!({"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"podCIDR": "x"}});
    let new = json!({"metadata": {"name": "n", "labels": {"c": "d"}, "annotations": {"e": "f"}}, "status": {"phase": "p"}});
    let (_, node) = updated(&resource("", "nodes"), Part::Status, new.clone(), &old).expect("is good");
    assert_eq!(
        node,
        json!({"metadata": {"name": "n", "labels": {"c": "d"}, "annotations": {"e": "f"}}, "spec": {"podCIDR": "x"},
               "status": {"phase": "p"}})
    );
    let (_, deployment) = updated(&resource("apps", "deployments"), Part::Status, new, &old).expect("is good");
    assert_eq!(deployment["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(deployment["metadata"]["annotations"], json!({"e": "f"}));
}

#[test]
fn generation_counts_what_each_kind_counts() {
    let old =
        json!({"metadata": {"name": "x", "generation": 3, "annotations": {"a": "1"}}, "spec": {"a": 1}, "status": {"s": 1}});
    let generation = |resource: &ResourceType, changes: &[(&str, Value)]| {
        let mut new = old.clone();
        new["metadata"]["generation"] = json!(99);
        for (pointer, value) in changes {
            *new.pointer_mut(pointer).expect("is there") = value.clone();
        }
        let update = Update {
            resource,
            part: Part::Main,
            origin: Origin::Put,
            namespace: "",
            name: "x",
        };
        prepare_update(&mut new, &old, &update).expect("is good");
        object::generation(&new)
    };
    let (spec, annotation, status) = (
        ("/spec/a", json!(2)),
        ("/metadata/annotations/a", json!("2")),
        ("/status/s", json!(2)),
    );
    let slices = resource("resource.k8s.io", "resourceslices");
    assert_eq!(generation(&slices, std::slice::from_ref(&spec)), 4);
    assert_eq!(generation(&slices, std::slice::from_ref(&annotation)), 3);
    assert_eq!(generation(&claims(), std::slice::from_ref(&spec)), 3);
    assert_eq!(
        generation(&resource("apps", "deployments"), std::slice::from_ref(&annotation)),
        4
    );
    let gvk = GroupVersionKind::new("example.com/v1", "Thing");
    let mut plain = ResourceType::custom(&gvk, "things", Scope::Cluster, false);
    plain.update_needs_version = false;
    assert_eq!(generation(&plain, std::slice::from_ref(&status)), 4);
    let mut with_status = ResourceType::custom(&gvk, "things", Scope::Cluster, true);
    with_status.update_needs_version = false;
    assert_eq!(generation(&with_status, &[status]), 3);
    assert_eq!(generation(&with_status, &[spec]), 4);
}

#[test]
fn finalizers_while_being_deleted() {
    let mut old = stored_claim();
    old["metadata"]["deletionTimestamp"] = json!(NOW);
    old["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    old["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    let with = |finalizers: Value| {
        let mut new = old.clone();
        new["metadata"]["finalizers"] = finalizers;
        new["metadata"]["deletionTimestamp"] = Value::Null;
        updated(&claims(), Part::Main, new, &old)
    };
    let (outcome, new) = with(json!(["a/b"])).expect("may be removed");
    assert_eq!(
        (outcome, at(&new, "/metadata/deletionTimestamp")),
        (UpdateOutcome::Changed, &json!(NOW))
    );
    let (code, message) = with(json!(["a/b", "e/f"])).expect_err("may not be added");
    assert_eq!(code, 422);
    assert!(message.contains("metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"));
    let (outcome, gone) = with(Value::Null).expect("may be removed");
    assert_eq!(
        (outcome, at(&gone, "/metadata/finalizers")),
        (UpdateOutcome::Removed, &Value::Null)
    );
    assert_eq!(
        with(json!(["a/b", "c/d"])).map(|(outcome, _)| outcome),
        Ok(UpdateOutcome::Unchanged)
    );
}

#[test]
fn deletion_cannot_be_begun_by_an_update() {
    let old = stored_claim();
    let mut new = old.clone();
    new["metadata"]["deletionTimestamp"] = json!(NOW);
    let (code, message) = updated(&claims(), Part::Main, new, &old).expect_err("is immutable");
    assert_eq!(code, 422);
    assert!(message.ends_with("metadata.deletionTimestamp: Invalid value: \"2026-12-01T12:00:00Z\": field is immutable"));
}

#[test]
fn namespaces_are_finalized_on_a_path_of_their_own() {
    let namespaces = resource("", "namespaces");
    let old = json!({"metadata": {"name": "x", "deletionTimestamp": NOW}, "spec": {"finalizers": ["kubernetes"]},
                     "status": {"phase": "Terminating"}});
    let new = json!({"metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Active"}});
    let main = updated(&namespaces, Part::Main, new.clone(), &old);
    assert_eq!(
        main.map(|(outcome, new)| (outcome, new["spec"].clone())),
        Ok((UpdateOutcome::Unchanged, old["spec"].clone()))
    );
    let (outcome, last) = updated(&namespaces, Part::Finalize, new, &old).expect("is good");
    assert_eq!(
        (outcome, &last["status"]["phase"]),
        (UpdateOutcome::Removed, &json!("Terminating"))
    );
}

// --- delete ---

fn deleted(resource: &ResourceType, stored: &Value, options: &DeleteOptions) -> DeleteStep {
    decide_delete(resource, stored, options, now()).expect("preconditions hold")
}

#[test]
fn objects_that_nothing_keeps_go_at_once() {
    let claim = stored_claim();
    let background = DeleteOptions {
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    };
    for options in [DeleteOptions::default(), background] {
        let step = deleted(&claims(), &claim, &options);
        assert_eq!(step, DeleteStep::Remove { last: claim.clone() });
        assert_eq!(delete_answer(&claims(), &step, &claim), claim);
    }
    let rules = resource("resource.k8s.io", "devicetaintrules");
    let rule = json!({"metadata": {"name": "r1", "uid": UID}});
    let step = deleted(&rules, &rule, &DeleteOptions::default());
    let answer = delete_answer(&rules, &step, &rule);
    let details = json!({"name": "r1", "group": "resource.k8s.io", "kind": "devicetaintrules", "uid": UID});
    assert_eq!((&answer["status"], &answer["details"]), (&json!("Success"), &details));
}

#[test]
fn finalizers_keep_the_object() {
    let slices = resource("resource.k8s.io", "resourceslices");
    let slice = json!({"metadata": {"name": "s", "generation": 1, "finalizers": ["a/b"]}});
    let DeleteStep::Mark { marked } = deleted(&slices, &slice, &DeleteOptions::default()) else {
        panic!()
    };
    let wanted = json!({"metadata": {"name": "s", "generation": 2, "finalizers": ["a/b"], "deletionTimestamp": NOW,
                                     "deletionGracePeriodSeconds": 0}});
    assert_eq!(marked, wanted);
    assert_eq!(deleted(&slices, &marked, &DeleteOptions::default()), DeleteStep::Wait);
}

#[test]
fn propagation_policies_leave_work_for_the_collector() {
    let claim = stored_claim();
    let with = |propagation| DeleteOptions {
        propagation: Some(propagation),
        ..DeleteOptions::default()
    };
    let finalizers = |step: DeleteStep| match step {
        DeleteStep::Mark { marked } => object::finalizers(&marked).join(","),
        other => format!("{other:?}"),
    };
    assert_eq!(finalizers(deleted(&claims(), &claim, &with(Propagation::Orphan))), "orphan");
    let DeleteStep::Mark { marked } = deleted(&claims(), &claim, &with(Propagation::Foreground)) else {
        panic!()
    };
    assert_eq!(object::finalizers(&marked), ["foregroundDeletion"]);
    assert_eq!(deleted(&claims(), &marked, &DeleteOptions::default()), DeleteStep::Wait);
    assert_eq!(finalizers(deleted(&claims(), &marked, &with(Propagation::Orphan))), "orphan");
    assert!(matches!(
        deleted(&claims(), &marked, &with(Propagation::Background)),
        DeleteStep::Remove { .. }
    ));
    let event = json!({"metadata": {"name": "e"}});
    let step = deleted(&resource("", "events"), &event, &with(Propagation::Orphan));
    assert!(matches!(step, DeleteStep::Remove { .. }));
}

#[test]
fn preconditions() {
    let options = |uid: Option<&str>, version: Option<&str>| DeleteOptions {
        uid: uid.map(str::to_owned),
        resource_version: version.map(str::to_owned),
        ..DeleteOptions::default()
    };
    let check = |options: &DeleteOptions| decide_delete(&claims(), &stored_claim(), options, now());
    assert!(check(&options(Some(UID), Some("42"))).is_ok());
    let status = check(&options(Some("other"), None)).expect_err("another incarnation");
    assert_eq!(status.code, 409);
    assert_eq!(
        status.message,
        format!(
            "Operation cannot be fulfilled on ResourceClaim.resource.k8s.io \"c1\": the UID in the precondition (other) does not \
             match the UID in record ({UID}). The object might have been deleted and then recreated"
        )
    );
    assert_eq!(status.details.map(|details| details.kind), Some("ResourceClaim".to_owned()));
    let status = check(&options(None, Some("41"))).expect_err("another version");
    assert!(
        status
            .message
            .contains("the ResourceVersion in the precondition (41) does not match the ResourceVersion in record (42)")
    );
}

#[test]
fn pods_get_time_to_stop() {
    let pods = resource("", "pods");
    let pod = |node: &str, phase: &str| {
        json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30},
               "status": {"phase": phase}})
    };
    let grace = |seconds| DeleteOptions {
        grace_period_seconds: Some(seconds),
        ..DeleteOptions::default()
    };
    let DeleteStep::Mark { marked } = deleted(&pods, &pod("n", "Running"), &DeleteOptions::default()) else {
        panic!()
    };
    assert_eq!(
        marked["metadata"],
        json!({"name": "p", "generation": 2, "deletionTimestamp": "2026-12-01T12:00:30Z", "deletionGracePeriodSeconds": 30})
    );
    assert_eq!(deleted(&pods, &marked, &DeleteOptions::default()), DeleteStep::Wait);
    assert_eq!(deleted(&pods, &marked, &grace(60)), DeleteStep::Wait);
    let DeleteStep::Mark { marked: shorter } = deleted(&pods, &marked, &grace(10)) else {
        panic!()
    };
    assert_eq!(
        shorter["metadata"],
        json!({"name": "p", "generation": 2, "deletionTimestamp": "2026-12-01T12:00:10Z", "deletionGracePeriodSeconds": 10})
    );
    let DeleteStep::Remove { last } = deleted(&pods, &shorter, &grace(0)) else {
        panic!()
    };
    assert_eq!(at(&last, "/metadata/deletionGracePeriodSeconds"), &json!(0));
    let DeleteStep::Mark { marked } = deleted(&pods, &pod("n", "Running"), &grace(-7)) else {
        panic!()
    };
    assert_eq!(at(&marked, "/metadata/deletionGracePeriodSeconds"), &json!(1));
    for stored in [pod("", "Pending"), pod("n", "Succeeded")] {
        let DeleteStep::Remove { last } = deleted(&pods, &stored, &grace(30)) else {
            panic!()
        };
        assert_eq!(at(&last, "/metadata/deletionTimestamp"), &json!(NOW));
    }
    let mut kept = pod("", "Pending");
    kept["metadata"]["finalizers"] = json!(["a/b"]);
    let DeleteStep::Mark { marked } = deleted(&pods, &kept, &DeleteOptions::default()) else {
        panic!()
    };
    assert_eq!(deleted(&pods, &marked, &grace(0)), DeleteStep::Wait);
    assert!(matches!(
        deleted(&pods, &pod("n", "Running"), &grace(i64::MAX)),
        DeleteStep::Mark { .. }
    ));
}

#[test]
fn namespaces_end_after_their_content() {
    let namespaces = resource("", "namespaces");
    let stored = json!({"metadata": {"name": "x"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    let DeleteStep::Mark { mut marked } = deleted(&namespaces, &stored, &DeleteOptions::default()) else {
        panic!()
    };
    assert_eq!(marked["metadata"], json!({"name": "x", "deletionTimestamp": NOW}));
    assert_eq!(marked["status"], json!({"phase": "Terminating"}));
    assert_eq!(deleted(&namespaces, &marked, &DeleteOptions::default()), DeleteStep::Wait);
    marked["spec"] = json!({});
    assert!(matches!(
        deleted(&namespaces, &marked, &DeleteOptions::default()),
        DeleteStep::Remove { .. }
    ));
}

#[test]
fn answers_to_deleted_collections() {
    let slice = json!({"metadata": {"name": "s"}});
    let metadata = json!({"resourceVersion": "9"});
    let answer = collection_answer(&resource("resource.k8s.io", "resourceslices"), vec![slice], metadata.clone());
    assert_eq!(
        (&answer["kind"], &answer["items"][0]["metadata"]["name"]),
        (&json!("ResourceSliceList"), &json!("s"))
    );
    let answer = collection_answer(&resource("", "events"), vec![json!({})], metadata);
    assert_eq!(
        answer,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
    );
}

#[test]
fn a_patch_cannot_change_the_uid() {
    let old = stored_claim();
    let mut new = old.clone();
    new["metadata"]["uid"] = json!("other");
    let update = Update {
        resource: &claims(),
        part: Part::Main,
        origin: Origin::Patch,
        namespace: "demo",
        name: "c1",
    };
    let refused = prepare_update(&mut new, &old, &update).map_err(|status| (status.code, status.message));
    let text = "ResourceClaim.resource.k8s.io \"c1\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable";
    assert_eq!(refused, Err((422, text.to_owned())));
}

#[test]
fn namespaces_that_take_no_objects() {
    let check = |stored: Option<Value>| {
        let checked = check_namespace(&claims(), "c1", ("demo", stored.as_ref()));
        checked.map_err(|status| (status.code, status.message))
    };
    assert_eq!(check(Some(json!({"status": {"phase": "Active"}}))), Ok(()));
    assert_eq!(check(None), Err((404, "namespaces \"demo\" not found".to_owned())));
    let (code, message) = check(Some(json!({"status": {"phase": "Terminating"}}))).expect_err("is ending");
    assert_eq!(code, 403);
    assert!(message.ends_with("unable to create new content in namespace demo because it is being terminated"));
}

#[test]
fn names_that_are_taken() {
    let message = |is_generated, existing: Option<Value>| name_taken(&claims(), "c1", is_generated, existing.as_ref()).message;
    let plain = "resourceclaims.resource.k8s.io \"c1\" already exists";
    assert_eq!(message(false, Some(json!({}))), plain);
    assert_eq!(message(false, None), plain);
    let deleted = json!({"metadata": {"deletionTimestamp": NOW}});
    assert_eq!(message(false, Some(deleted)), format!("object is being deleted: {plain}"));
    assert!(message(true, None).ends_with("the server was not able to generate a unique name for the object"));
}
