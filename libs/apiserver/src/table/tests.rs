use super::*;
use crate::resources::{Catalog, CustomColumn, Printer, Scope};
use crate::schema::GroupVersionKind;

const NOW: &str = "2026-12-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("is a time")
}

fn style() -> TableStyle {
    TableStyle {
        version: MetaVersion::V1,
        include_object: IncludeObject::Metadata,
        now: now(),
    }
}

fn resource(group: &str, plural: &str) -> ResourceType {
    let catalog = Catalog::standard(|_| true);
    (**catalog.find(group, "v1", plural).expect("is served")).clone()
}

/// Cells of one object, with as many as there are columns.
#[track_caller]
fn check(group: &str, plural: &str, object: Value, wanted: Value) {
    let table = object_table(&resource(group, plural), &object, style(), Header::Shown);
    let columns = table["columnDefinitions"].as_array().map(Vec::len);
    assert_eq!(table["rows"][0]["cells"].as_array().map(Vec::len), columns);
    assert_eq!(table["rows"][0]["cells"], wanted);
}

#[test]
fn ages() {
    for (seconds, wanted) in [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86_400, "8d"),
        (2 * 365 * 86_400 - 1, "729d"),
        (2 * 365 * 86_400, "2y"),
        (3 * 365 * 86_400 + 86_400, "3y1d"),
        (8 * 365 * 86_400, "8y"),
    ] {
        let since = now() - jiff::SignedDuration::from_secs(seconds);
        assert_eq!(age::duration(since, now()), wanted, "{seconds}");
    }
    assert_eq!(age::age(None, now()), "<unknown>");
    assert_eq!(age::age(Some(""), now()), "<unknown>");
    assert_eq!(age::age(Some("2026-12-01T11:59:55.123456Z"), now()), "4s");
    assert_eq!(age::age(Some("0001-01-01T00:00:00Z"), now()), "2027y");
}

#[test]
fn table_of_a_list() {
    let claim = json!({"metadata": {"name": "c1", "namespace": "demo", "creationTimestamp": "2026-12-01T11:59:54Z",
                                    "labels": {"a": "b"}}, "spec": {}});
    let metadata = json!({"resourceVersion": "240", "continue": "x", "remainingItemCount": 1});
    let claims = resource("resource.k8s.io", "resourceclaims");
    let table = list_table(&claims, std::slice::from_ref(&claim), &metadata, style());
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(table["metadata"], metadata);
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(names, ["Name", "State", "Age"]);
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(
        table["rows"],
        json!([{"cells": ["c1", "pending", "6s"], "object": {
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": claim["metadata"]}}])
    );
}

#[test]
fn watches_name_columns_once_and_rows_carry_what_is_asked_for() {
    let slice = json!({"metadata": {"name": "s1", "resourceVersion": "7"}, "spec": {"driver": "d"}});
    let slices = resource("resource.k8s.io", "resourceslices");
    let full = TableStyle {
        include_object: IncludeObject::Object,
        version: MetaVersion::V1Beta1,
        ..style()
    };
    let table = object_table(&slices, &slice, full, Header::Omitted);
    assert_eq!(table["columnDefinitions"], Value::Null);
    assert_eq!(
        (&table["apiVersion"], &table["metadata"]),
        (&json!("meta.k8s.io/v1beta1"), &json!({"resourceVersion": "7"}))
    );
    let wanted = json!({"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1",
                        "metadata": slice["metadata"], "spec": slice["spec"]});
    assert_eq!(table["rows"][0]["object"], wanted);
    let none = TableStyle {
        include_object: IncludeObject::None,
        ..style()
    };
    assert_eq!(
        object_table(&slices, &slice, none, Header::Shown)["rows"][0]["object"],
        Value::Null
    );
    let query = |text| Query::parse(text).expect("is short");
    assert_eq!(IncludeObject::read(&query("includeObject=Object")), Ok(IncludeObject::Object));
    assert_eq!(IncludeObject::read(&query("limit=1")), Ok(IncludeObject::Metadata));
    let refused = IncludeObject::read(&query("includeObject=All")).map_err(|status| (status.code, status.message));
    let text = "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', \
                'None', or empty";
    assert_eq!(refused, Err((400, text.to_owned())));
}

#[test]
fn states_of_claims() {
    for (claim, wanted) in [
        (json!({}), "pending"),
        (json!({"metadata": {"deletionTimestamp": NOW}}), "deleted"),
        (json!({"status": {"allocation": {}, "reservedFor": []}}), "allocated"),
        (
            json!({"status": {"allocation": {}, "reservedFor": [{}]}}),
            "allocated,reserved",
        ),
        (
            json!({"metadata": {"deletionTimestamp": NOW}, "status": {"allocation": {}, "reservedFor": [{}]}}),
            "deleted,allocated,reserved",
        ),
    ] {
        check("resource.k8s.io", "resourceclaims", claim, json!(["", wanted, "<unknown>"]));
    }
}

#[test]
fn small_kinds() {
    let metadata = json!({"name": "x", "creationTimestamp": "2026-12-01T10:00:00Z"});
    let with = |mut object: Value| {
        object["metadata"] = metadata.clone();
        object
    };
    check("resource.k8s.io", "deviceclasses", with(json!({})), json!(["x", "120m"]));
    let slice = with(json!({"spec": {"nodeName": "node-a", "driver": "gpu.example.com", "pool": {"name": "p"}}}));
    check(
        "resource.k8s.io",
        "resourceslices",
        slice,
        json!(["x", "node-a", "gpu.example.com", "p", "120m"]),
    );
    let taint = json!({"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-12-01T11:59:00Z"});
    let rule = with(json!({"spec": {"taint": taint}}));
    check(
        "resource.k8s.io",
        "devicetaintrules",
        rule,
        json!(["x", "k", "v", "NoExecute", "60s", "120m"]),
    );
    let lease = with(json!({"spec": {"holderIdentity": "me"}}));
    check("coordination.k8s.io", "leases", lease, json!(["x", "me", "120m"]));
    check(
        "",
        "namespaces",
        with(json!({"status": {"phase": "Active"}})),
        json!(["x", "Active", "120m"]),
    );
    check(
        "",
        "configmaps",
        with(json!({"data": {"a": "", "b": ""}, "binaryData": {"c": ""}})),
        json!(["x", 3, "120m"]),
    );
    check(
        "",
        "secrets",
        with(json!({"type": "Opaque", "data": {"a": ""}})),
        json!(["x", "Opaque", 1, "120m"]),
    );
    let quota = with(json!({"status": {"hard": {"pods": "4", "limits.cpu": "2"}, "used": {"pods": "1"}}}));
    check(
        "",
        "resourcequotas",
        quota,
        json!(["x", "pods: 1/4", "limits.cpu: 0/2", "120m"]),
    );
    let class = with(json!({"value": 7, "globalDefault": true, "preemptionPolicy": "Never"}));
    check(
        "scheduling.k8s.io",
        "priorityclasses",
        class,
        json!(["x", 7, true, "120m", "Never"]),
    );
    let template = json!({"spec": {"nodeSelector": {"b": "2", "a": "1"},
                                   "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}});
    let set = with(
        json!({"spec": {"template": template, "selector": {"matchLabels": {"app": "x"}}},
                          "status": {"desiredNumberScheduled": 3, "numberReady": 2}}),
    );
    check(
        "apps",
        "daemonsets",
        set,
        json!(["x", 3, 0, 2, 0, 0, "a=1,b=2", "120m", "c,d", "i,j", "app=x"]),
    );
    let deployment = with(
        json!({"spec": {"replicas": 3, "template": template, "selector": {"matchLabels": {"app": "x"}}},
                                 "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
    );
    check(
        "apps",
        "deployments",
        deployment,
        json!(["x", "1/3", 2, 0, "120m", "c,d", "i,j", "app=x"]),
    );
}

#[test]
fn nodes() {
    let node = json!({
        "metadata": {"name": "node-a", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.37.2", "kernelVersion": "6.1", "architecture": "amd64"}
        }
    });
    let wanted = json!([
        "node-a",
        "Ready,SchedulingDisabled",
        "edge,worker",
        "<unknown>",
        "v1.37.2",
        "10.0.0.1",
        "<none>",
        "<unknown>",
        "6.1 (amd64)",
        "<unknown>"
    ]);
    check("", "nodes", node, wanted);
    let wanted = json!([
        "",
        "Unknown",
        "<none>",
        "<unknown>",
        "",
        "<none>",
        "<none>",
        "<unknown>",
        "<unknown>",
        "<unknown>"
    ]);
    check("", "nodes", json!({}), wanted);
}

#[test]
fn events() {
    let event = json!({
        "metadata": {"name": "c1.17"}, "type": "Normal", "reason": "Allocated", "message": " done\n", "count": 2,
        "involvedObject": {"kind": "ResourceClaim", "name": "c1", "fieldPath": "spec"},
        "firstTimestamp": "2026-12-01T11:50:00Z", "lastTimestamp": "2026-12-01T11:59:00Z",
        "source": {"component": "drv", "host": "node-a"}
    });
    let wanted = json!([
        "60s",
        "Normal",
        "Allocated",
        "resourceclaim/c1",
        "spec",
        "drv, node-a",
        "done",
        "10m",
        2,
        "c1.17"
    ]);
    check("", "events", event, wanted);
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-12-01T11:59:00.000000Z", "reportingController": "drv",
                       "regarding": {"kind": "Node"}, "note": "n",
                       "series": {"count": 5, "lastObservedTime": "2026-12-01T11:59:59.5Z"}});
    let wanted = json!(["0s", "", "", "node", "", "drv", "n", "60s", 5, "e"]);
    check("events.k8s.io", "events", event, wanted);
}

#[track_caller]
fn check_pod(pod: Value, ready: &str, status: &str, restarts: &str) {
    let table = object_table(&resource("", "pods"), &pod, style(), Header::Shown);
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        (&cells[1], &cells[2], &cells[3]),
        (&json!(ready), &json!(status), &json!(restarts))
    );
}

#[test]
fn pods() {
    let containers = json!([{"name": "a"}, {"name": "b"}]);
    let running = json!({"ready": true, "state": {"running": {}}});
    let completed = json!({"ready": false, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let failed = json!({"ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-12-01T11:58:00Z"}}});
    let pod = |status: Value| json!({"metadata": {"name": "p"}, "spec": {"containers": containers}, "status": status});
    check_pod(pod(json!({"phase": "Pending"})), "0/2", "Pending", "0");
    check_pod(
        pod(json!({"phase": "Running", "containerStatuses": [running, running]})),
        "2/2",
        "Running",
        "0",
    );
    check_pod(
        pod(json!({"phase": "Running", "containerStatuses": [running, failed]})),
        "1/2",
        "CrashLoopBackOff",
        "3 (2m ago)",
    );
    let ready = json!([{"type": "Ready", "status": "True"}]);
    check_pod(
        pod(json!({"phase": "Running", "containerStatuses": [completed, running], "conditions": ready})),
        "1/2",
        "Running",
        "0",
    );
    check_pod(
        pod(json!({"phase": "Running", "containerStatuses": [completed, running]})),
        "1/2",
        "NotReady",
        "0",
    );
    check_pod(pod(json!({"phase": "Failed", "reason": "Evicted"})), "0/2", "Evicted", "0");
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    check_pod(
        pod(json!({"phase": "Pending", "conditions": gated})),
        "0/2",
        "SchedulingGated",
        "0",
    );
    let mut deleted = pod(json!({"phase": "Running"}));
    deleted["metadata"]["deletionTimestamp"] = json!(NOW);
    check_pod(deleted.clone(), "0/2", "Terminating", "0");
    deleted["status"]["phase"] = json!("Succeeded");
    check_pod(deleted, "0/2", "Succeeded", "0");
}

#[test]
fn init_containers_and_sidecars() {
    let spec =
        json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
    let pod = |status: Value| json!({"spec": spec, "status": status});
    let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    let sidecar = json!({"name": "s", "started": true, "ready": true, "restartCount": 2, "state": {"running": {}}});
    check_pod(
        pod(json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]})),
        "0/2",
        "Init:0/2",
        "0",
    );
    let broken = json!({"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 3}}});
    check_pod(
        pod(json!({"phase": "Pending", "initContainerStatuses": [broken]})),
        "0/2",
        "Init:ExitCode:3",
        "1",
    );
    let waiting = json!({"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}});
    check_pod(
        pod(json!({"phase": "Pending", "initContainerStatuses": [waiting]})),
        "0/2",
        "Init:ErrImagePull",
        "0",
    );
    let main = json!({"name": "a", "ready": true, "restartCount": 1, "state": {"running": {}}});
    check_pod(
        pod(json!({"phase": "Running", "initContainerStatuses": [done, sidecar], "containerStatuses": [main]})),
        "2/2",
        "Running",
        "3",
    );
}

#[test]
fn wide_cells_of_pods() {
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}]},
        "status": {"podIPs": [{"ip": "10.0.0.9"}], "conditions": [{"type": "g", "status": "True"}]}
    });
    check(
        "",
        "pods",
        pod,
        json!(["p", "0/0", "", "0", "<unknown>", "10.0.0.9", "n", "<none>", "1/2"]),
    );
}

#[test]
fn answers_about_pools() {
    let mut requests = resource("resource.k8s.io", "deviceclasses");
    requests.printer = Printer::ResourcePoolStatusRequest;
    let cells = |object: Value| object_table(&requests, &object, style(), Header::Shown)["rows"][0]["cells"].clone();
    let spec = json!({"driver": "d"});
    assert_eq!(
        cells(json!({"metadata": {"name": "r"}, "spec": spec})),
        json!(["r", "d", "-", "-", "-", "-", "-", 0, "Pending", "<none>"])
    );
    let complete = json!([{"type": "Complete", "status": "True", "lastTransitionTime": "2026-12-01T11:59:00Z"}]);
    let pools = json!([{"totalDevices": 4, "availableDevices": 1, "allocatedDevices": 3}, {"validationError": "x"}]);
    assert_eq!(
        cells(json!({"spec": spec, "status": {"conditions": complete, "pools": pools, "poolCount": 3}})),
        json!(["", "d", "4", "1", "3", "0", "1", 3, "Complete (2/3 pools)", "60s"])
    );
}

#[test]
fn custom_resources() {
    let gvk = GroupVersionKind::new("example.com/v1", "Thing");
    let mut things = ResourceType::custom(&gvk, "things", Scope::Cluster, false);
    let object = json!({"metadata": {"name": "t"}, "spec": {"size": 3, "since": "2026-12-01T11:59:00Z", "on": true}});
    let cells = |things: &ResourceType| object_table(things, &object, style(), Header::Shown)["rows"][0]["cells"].clone();
    assert_eq!(cells(&things), json!(["t", "<unknown>"]));
    let column = |kind: &str, path: &str| CustomColumn {
        name: path.to_owned(),
        kind: kind.to_owned(),
        description: String::new(),
        priority: 0,
        path: vec!["spec".to_owned(), path.to_owned()],
    };
    let columns = vec![
        column("integer", "size"),
        column("string", "size"),
        column("date", "since"),
        column("boolean", "nope"),
    ];
    things.printer = Printer::Columns(columns);
    assert_eq!(cells(&things), json!(["t", 3, "3", "60s", null]));
}

#[test]
fn metadata_alone() {
    let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {}});
    let metadata = json!({"resourceVersion": "9"});
    assert_eq!(
        metadata_list(&[object], &metadata, MetaVersion::V1),
        json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "9"},
               "items": [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "p"}}]})
    );
}
