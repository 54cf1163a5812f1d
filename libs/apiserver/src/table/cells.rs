//! The columns of each kind and what its objects show in them. Times are ages.
//!
//! Texts and rules are those that `kubectl get` shows for a Kubernetes v1.37; descriptions are our own.

mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{self, age};
use crate::object::{at, deletion_timestamp, meta_text, name, text_at};
use crate::resources::{CustomColumn, Printer};
use crate::selectors::LabelSelector;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `boolean`, or what a custom resource says.
    pub kind: String,
    /// `name` for the column that identifies the object.
    pub format: String,
    pub description: String,
    /// Above 0: shown in wide output only.
    pub priority: i32,
}

const NONE: &str = "<none>";

/// The columns, in order; [`cells`] has one cell for each.
pub fn columns(printer: &Printer) -> Vec<Column> {
    match printer {
        Printer::NameAge => vec![name_column(), age_column()],
        Printer::ResourceClaim => around(vec![text(
            "State",
            "Whether the claim is pending, allocated, reserved or deleted.",
        )]),
        Printer::ResourceSlice => around(vec![
            text("Node", "Node to which the devices belong, if it is one."),
            text("Driver", "Driver that published the devices."),
            text("Pool", "Pool to which the devices belong."),
        ]),
        Printer::DeviceTaintRule => around(vec![
            text("Key", "Key of the taint."),
            text("Value", "Value of the taint."),
            text("Effect", "What the taint does to claims that do not tolerate it."),
            text("TimeAdded", "Time since the taint was added."),
        ]),
        Printer::ResourcePoolStatusRequest => vec![
            name_column(),
            text("Driver", "Driver whose pools are asked for."),
            text("Total", "Devices in all pools."),
            text("Available", "Devices that can be allocated."),
            text("Allocated", "Devices that are allocated."),
            text("Unavailable", "Devices that cannot be allocated."),
            text("Errors", "Pools that are not valid."),
            integer("Pools", "Pools that match."),
            text("Status", "How far the answer is."),
            text("Completed", "Time since the answer was complete."),
        ],
        Printer::Lease => around(vec![text("Holder", "Who holds the lease.")]),
        Printer::Namespace => around(vec![text("Status", "Whether the namespace is in use or being deleted.")]),
        Printer::Node => node_columns(),
        Printer::Pod => pod_columns(),
        Printer::Event => event_columns(),
        Printer::DaemonSet => vec![
            name_column(),
            integer("Desired", "Nodes that should run the pod."),
            integer("Current", "Nodes that run the pod and should."),
            integer("Ready", "Nodes on which the pod is ready."),
            integer("Up-to-date", "Nodes that run the newest pod."),
            integer("Available", "Nodes on which the pod is available."),
            text("Node Selector", "Labels of the nodes that should run the pod."),
            age_column(),
            wide("Containers", "Names of the containers."),
            wide("Images", "Images of the containers."),
            wide("Selector", "Labels of the pods."),
        ],
        Printer::Deployment => vec![
            name_column(),
            text("Ready", "Pods that are ready, of those wanted."),
            text("Up-to-date", "Pods of the newest kind."),
            text("Available", "Pods that are available."),
            age_column(),
            wide("Containers", "Names of the containers."),
            wide("Images", "Images of the containers."),
            wide("Selector", "Labels of the pods."),
        ],
        Printer::ConfigMap => around(vec![text("Data", "Number of entries.")]),
        Printer::Secret => around(vec![
            text("Type", "What the secret is for."),
            text("Data", "Number of entries."),
        ]),
        Printer::ResourceQuota => around(vec![
            text("Request", "Amounts in use and allowed."),
            text("Limit", "Limits in use and allowed."),
        ]),
        Printer::PriorityClass => vec![
            name_column(),
            integer("Value", "The priority of pods of this class."),
            Column {
                kind: "boolean".to_owned(),
                ..text("Global-Default", "Whether pods without a class have this one.")
            },
            age_column(),
            text("PreemptionPolicy", "Whether pods of this class push others out."),
        ],
        Printer::Columns(custom) => custom_columns(custom),
    }
}

/// The cells of an object, one for each of the [`columns`].
pub fn cells(printer: &Printer, object: &Value, now: Timestamp) -> Vec<Value> {
    let created = json!(age(Some(meta_text(object, "creationTimestamp")), now));
    let name = json!(name(object));
    let texts = |path: &[&str]| json!(text_at(object, path));
    match printer {
        Printer::NameAge => vec![name, created],
        Printer::ResourceClaim => vec![name, json!(claim_state(object)), created],
        Printer::ResourceSlice => vec![
            name,
            texts(&["spec", "nodeName"]),
            texts(&["spec", "driver"]),
            texts(&["spec", "pool", "name"]),
            created,
        ],
        Printer::DeviceTaintRule => {
            let added = at(object, &["spec", "taint", "timeAdded"]).and_then(Value::as_str);
            vec![
                name,
                texts(&["spec", "taint", "key"]),
                texts(&["spec", "taint", "value"]),
                texts(&["spec", "taint", "effect"]),
                json!(added.map_or_else(String::new, |added| age(Some(added), now))),
                created,
            ]
        }
        Printer::ResourcePoolStatusRequest => pool_status_cells(object, now),
        Printer::Lease => vec![name, texts(&["spec", "holderIdentity"]), created],
        Printer::Namespace => vec![name, texts(&["status", "phase"]), created],
        Printer::Node => node_cells(object, created),
        Printer::Pod => pod::cells(object, created, now),
        Printer::Event => event_cells(object, now),
        Printer::DaemonSet => daemon_set_cells(object, created),
        Printer::Deployment => deployment_cells(object, created),
        Printer::ConfigMap => vec![name, json!(entries(object, "data") + entries(object, "binaryData")), created],
        Printer::Secret => vec![name, texts(&["type"]), json!(entries(object, "data")), created],
        Printer::ResourceQuota => {
            let (requests, limits) = quota(object);
            vec![name, json!(requests), json!(limits), created]
        }
        Printer::PriorityClass => vec![
            name,
            json!(number(object, &["value"])),
            json!(at(object, &["globalDefault"]).and_then(Value::as_bool).unwrap_or_default()),
            created,
            texts(&["preemptionPolicy"]),
        ],
        Printer::Columns(custom) => custom_cells(custom, object, name, created, now),
    }
}

fn text(name: &str, description: &str) -> Column {
    Column {
        name: name.to_owned(),
        kind: "string".to_owned(),
        format: String::new(),
        description: description.to_owned(),
        priority: 0,
    }
}

fn integer(name: &str, description: &str) -> Column {
    Column {
        kind: "integer".to_owned(),
        ..text(name, description)
    }
}

fn wide(name: &str, description: &str) -> Column {
    Column {
        priority: 1,
        ..text(name, description)
    }
}

fn name_column() -> Column {
    Column {
        format: "name".to_owned(),
        ..text("Name", "Name of the object, unique in its namespace.")
    }
}

fn age_column() -> Column {
    text("Age", "Time since the object was created.")
}

/// Name, then the kind's own columns, then age.
fn around(own: Vec<Column>) -> Vec<Column> {
    let mut columns = vec![name_column()];
    columns.extend(own);
    columns.push(age_column());
    columns
}

fn node_columns() -> Vec<Column> {
    vec![
        name_column(),
        text("Status", "Whether the node is ready and takes pods."),
        text("Roles", "Roles of the node, from its labels."),
        age_column(),
        text("Version", "Version of the node's agent."),
        wide("Internal-IP", "First address inside of the cluster."),
        wide("External-IP", "First address outside of the cluster."),
        wide("OS-Image", "Operating system of the node."),
        wide("Kernel-Version", "Kernel of the node."),
        wide("Container-Runtime", "What runs containers on the node."),
    ]
}

fn pod_columns() -> Vec<Column> {
    vec![
        name_column(),
        text("Ready", "Containers that are ready, of all."),
        text("Status", "What the pod does, or why it does not."),
        text("Restarts", "How often containers were restarted, and when last."),
        age_column(),
        wide("IP", "First address of the pod."),
        wide("Node", "Node of the pod."),
        wide("Nominated Node", "Node on which room is being made for the pod."),
        wide("Readiness Gates", "Further conditions of readiness that hold, of all."),
    ]
}

fn event_columns() -> Vec<Column> {
    vec![
        text("Last Seen", "Time since the event happened last."),
        text("Type", "Whether the event is normal or a warning."),
        text("Reason", "A word for what happened."),
        text("Object", "What the event is about."),
        wide("Subobject", "Part of the object that the event is about."),
        wide("Source", "Who reported the event."),
        text("Message", "What happened."),
        wide("First Seen", "Time since the event happened first."),
        wide("Count", "How often the event happened."),
        Column {
            priority: 1,
            ..name_column()
        },
    ]
}

fn number(object: &Value, path: &[&str]) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn entries(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

fn claim_state(claim: &Value) -> String {
    let is_deleted = deletion_timestamp(claim).is_some();
    let is_allocated = at(claim, &["status", "allocation"]).is_some_and(|allocation| !allocation.is_null());
    let is_reserved = !list(claim, &["status", "reservedFor"]).is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_deleted && !is_allocated, "pending"),
        (is_allocated, "allocated"),
        (is_allocated && is_reserved, "reserved"),
    ];
    let states: Vec<&str> = states
        .into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, state)| state)
        .collect();
    states.join(",")
}

fn pool_status_cells(request: &Value, now: Timestamp) -> Vec<Value> {
    let conditions = list(request, &["status", "conditions"]);
    let decisive = conditions.iter().find(|condition| {
        matches!(text_at(condition, &["type"]), "Complete" | "Failed") && text_at(condition, &["status"]) == "True"
    });
    let mut status = decisive
        .map_or("Pending", |condition| text_at(condition, &["type"]))
        .to_owned();
    let completed = match (status.as_str(), decisive) {
        ("Complete", Some(condition)) => age(Some(text_at(condition, &["lastTransitionTime"])), now),
        _ => NONE.to_owned(),
    };
    let pools = list(request, &["status", "pools"]);
    let pool_count = number(request, &["status", "poolCount"]);
    let shown = i64::try_from(pools.len()).unwrap_or(i64::MAX);
    let has_counts = status != "Failed" && request.get("status").is_some_and(Value::is_object);
    if status == "Complete" && pool_count > shown {
        status = format!("Complete ({shown}/{pool_count} pools)");
    }
    let sum = |field: &str| {
        let total = pools
            .iter()
            .fold(0_i64, |sum, pool| sum.saturating_add(number(pool, &[field])));
        if has_counts { total.to_string() } else { "-".to_owned() }
    };
    let errors = pools
        .iter()
        .filter(|pool| pool.get("validationError").is_some_and(|error| !error.is_null()));
    let errors = if has_counts {
        errors.count().to_string()
    } else {
        "-".to_owned()
    };
    vec![
        json!(name(request)),
        json!(text_at(request, &["spec", "driver"])),
        json!(sum("totalDevices")),
        json!(sum("availableDevices")),
        json!(sum("allocatedDevices")),
        json!(sum("unavailableDevices")),
        json!(errors),
        json!(pool_count),
        json!(status),
        json!(completed),
    ]
}

fn node_cells(node: &Value, created: Value) -> Vec<Value> {
    let info = |field: &str| text_at(node, &["status", "nodeInfo", field]);
    let ready = list(node, &["status", "conditions"])
        .iter()
        .rfind(|condition| text_at(condition, &["type"]) == "Ready");
    let mut status = match ready.map(|condition| text_at(condition, &["status"])) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if at(node, &["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let mut addresses = list(node, &["status", "addresses"]).iter();
        let found = addresses.find(|address| text_at(address, &["type"]) == kind);
        found.map_or(NONE, |address| text_at(address, &["address"]))
    };
    let mut kernel = or(info("kernelVersion"), age::UNKNOWN).to_owned();
    let architecture = info("architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        json!(name(node)),
        json!(status),
        json!(or(&node_roles(node), NONE)),
        created,
        json!(info("kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(or(info("osImage"), age::UNKNOWN)),
        json!(kernel),
        json!(or(info("containerRuntimeVersion"), age::UNKNOWN)),
    ]
}

fn node_roles(node: &Value) -> String {
    let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object);
    let roles = labels.into_iter().flatten().filter_map(|(key, value)| {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str()?,
            None => return None,
        };
        (!role.is_empty()).then_some(role)
    });
    let roles: std::collections::BTreeSet<&str> = roles.collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

/// Fields of core/v1 events, and of events.k8s.io/v1, which calls some of them otherwise.
fn event_cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let time = |fields: &[&str]| {
        let texts = fields.iter().map(|field| text_at(event, &[*field]));
        texts.into_iter().find(|text| !text.is_empty())
    };
    let first = age(time(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]), now);
    let mut last = match time(&["lastTimestamp", "deprecatedLastTimestamp"]) {
        None => first.clone(),
        Some(last) => age(Some(last), now),
    };
    let mut count = number(event, &["count"]).max(number(event, &["deprecatedCount"])).max(1);
    if let Some(series) = event.get("series").filter(|series| series.is_object()) {
        last = age(Some(text_at(series, &["lastObservedTime"])), now);
        count = number(series, &["count"]);
    }
    let about = event
        .get("involvedObject")
        .or_else(|| event.get("regarding"))
        .unwrap_or(&Value::Null);
    let mut target = text_at(about, &["kind"]).to_lowercase();
    let about_name = text_at(about, &["name"]);
    if !about_name.is_empty() {
        target = format!("{target}/{about_name}");
    }
    let of_source = |field: &str| {
        let sources = ["source", "deprecatedSource"];
        let texts = sources.into_iter().map(|source| text_at(event, &[source, field]));
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    };
    let reporter = time(&["reportingComponent", "reportingController"]).unwrap_or_default();
    let component = or(of_source("component"), reporter);
    let instance = or(of_source("host"), text_at(event, &["reportingInstance"]));
    let source = if instance.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {instance}")
    };
    let message = or(text_at(event, &["message"]), text_at(event, &["note"]));
    vec![
        json!(last),
        json!(text_at(event, &["type"])),
        json!(text_at(event, &["reason"])),
        json!(target),
        json!(text_at(about, &["fieldPath"])),
        json!(source),
        json!(message.trim()),
        json!(first),
        json!(count),
        json!(name(event)),
    ]
}

/// Names, images and selector of a workload.
fn container_cells(workload: &Value) -> [Value; 2] {
    let containers = list(workload, &["spec", "template", "spec", "containers"]);
    let joined = |field: &str| {
        let texts: Vec<&str> = containers.iter().map(|container| text_at(container, &[field])).collect();
        json!(texts.join(","))
    };
    [joined("name"), joined("image")]
}

fn daemon_set_cells(set: &Value, created: Value) -> Vec<Value> {
    let status = |field: &str| json!(number(set, &["status", field]));
    let node_selector = at(set, &["spec", "template", "spec", "nodeSelector"]).and_then(Value::as_object);
    let pairs = node_selector.into_iter().flatten();
    let mut pairs: Vec<String> = pairs
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    let node_selector = pairs.join(",");
    let [containers, images] = container_cells(set);
    let selector = match set.get("spec").and_then(|spec| spec.get("selector")) {
        None => NONE.to_owned(),
        Some(selector) => match LabelSelector::from_value(selector) {
            None => "<error>".to_owned(),
            Some(selector) => or(&selector.to_string(), NONE).to_owned(),
        },
    };
    vec![
        json!(name(set)),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        json!(or(&node_selector, NONE)),
        created,
        containers,
        images,
        json!(selector),
    ]
}

fn deployment_cells(deployment: &Value, created: Value) -> Vec<Value> {
    let status = |field: &str| number(deployment, &["status", field]);
    let [containers, images] = container_cells(deployment);
    let selector = at(deployment, &["spec", "selector"]).map(LabelSelector::from_value);
    let selector = match selector {
        None => String::new(),
        Some(None) => "<invalid>".to_owned(),
        Some(Some(selector)) => selector.to_string(),
    };
    vec![
        json!(name(deployment)),
        json!(format!(
            "{}/{}",
            status("readyReplicas"),
            number(deployment, &["spec", "replicas"])
        )),
        json!(status("updatedReplicas")),
        json!(status("availableReplicas")),
        created,
        containers,
        images,
        json!(selector),
    ]
}

/// Requests and limits: `name: used/hard`, joined.
fn quota(quota: &Value) -> (String, String) {
    let hard = at(quota, &["status", "hard"]).and_then(Value::as_object);
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut hard: Vec<(&String, &Value)> = hard.into_iter().flatten().collect();
    hard.sort_unstable_by_key(|(resource, _)| *resource);
    for (resource, hard) in hard {
        let used = at(quota, &["status", "used", resource]).map_or_else(|| "0".to_owned(), shown);
        let text = format!("{resource}: {used}/{}", shown(hard));
        if resource.starts_with("limits.") {
            limits.push(text);
        } else {
            requests.push(text);
        }
    }
    (requests.join(", "), limits.join(", "))
}

/// A value as text, without quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn custom_columns(custom: &[CustomColumn]) -> Vec<Column> {
    let mut columns = vec![name_column()];
    columns.extend(custom.iter().map(|column| Column {
        name: column.name.clone(),
        kind: column.kind.clone(),
        format: String::new(),
        description: column.description.clone(),
        priority: column.priority,
    }));
    // A custom resource that defines columns shows its age only if it says so.
    if custom.is_empty() {
        columns.push(age_column());
    }
    columns
}

fn custom_cells(custom: &[CustomColumn], object: &Value, name: Value, created: Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![name];
    cells.extend(custom.iter().map(|column| {
        let value = at(object, &column.path).unwrap_or(&Value::Null);
        match column.kind.as_str() {
            "date" => json!(age(value.as_str(), now)),
            "string" if !value.is_null() => json!(shown(value)),
            _ => value.clone(),
        }
    }));
    if custom.is_empty() {
        cells.push(created);
    }
    cells
}
