//! The kinds of Kubernetes that are served, as data. Order is the order of preference in discovery.
//!
//! Facts about each kind (verbs, generation, what an update may do, what a deletion answers) are those of Kubernetes v1.37.

use super::{
    DeleteAnswer, Deletion, Generation, NameRule, Printer, Reading, ResourceType, Scope, SelectableField, SelectorTable,
    StatusMetadata, Subresource, Verb,
};

use crate::schema::GroupVersionKind;

const ALL_VERBS: [Verb; 8] = [
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

const RESOURCE: &str = "resource.k8s.io";
const COMMON_FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Every kind, in order of preference.
pub fn all() -> Vec<ResourceType> {
    let mut all = core();
    all.extend(apps());
    all.push(events("events.k8s.io", "v1", "regarding", "reportingController"));
    all.extend(reviews());
    all.push(priority_classes());
    all.push(leases());
    for version in ["v1", "v1beta2", "v1beta1", "v1alpha3"] {
        all.extend(resource_group(version));
    }
    all
}

fn core() -> Vec<ResourceType> {
    vec![
        namespaces(),
        nodes(),
        pods(),
        events("", "v1", "involvedObject", "reportingComponent"),
        config_maps(),
        secrets(),
        service_accounts(),
        resource_quotas(),
        create_only("", "v1", "bindings", "Binding", Scope::Namespaced),
    ]
}

fn namespaces() -> ResourceType {
    let mut made = named(
        plain("", "v1", "namespaces", "Namespace", Scope::Cluster),
        &["ns"],
        Printer::Namespace,
    );
    made.verbs.retain(|verb| *verb != Verb::DeleteCollection);
    made.subresources = vec![below("finalize", &[Verb::Update]), status()];
    selectable(&mut made, SelectorTable::Own, &["metadata.name", "status.phase"], Vec::new());
    made.deletion = Deletion::Namespace;
    made.name_rule = NameRule::Label;
    made
}

fn nodes() -> ResourceType {
    let mut made = named(plain("", "v1", "nodes", "Node", Scope::Cluster), &["no"], Printer::Node);
    made.subresources = vec![status()];
    let unschedulable = field("spec.unschedulable", Reading::Flag(path("spec.unschedulable")));
    selectable(&mut made, SelectorTable::Own, &["metadata.name"], vec![unschedulable]);
    // Nodes register themselves together with what they are.
    made.create_takes_status = true;
    made.delete_answer = DeleteAnswer::Status;
    made
}

fn pods() -> ResourceType {
    let mut made = named(plain("", "v1", "pods", "Pod", Scope::Namespaced), &["po"], Printer::Pod);
    made.categories = vec!["all".to_owned()];
    let binding = Subresource {
        body: Some(GroupVersionKind::new("v1", "Binding")),
        ..below("binding", &[Verb::Create])
    };
    made.subresources = vec![binding, status()];
    let texts = [
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIPs",
        "status.nominatedNodeName",
    ];
    let first_address = Reading::FirstItem {
        list: path("status.podIPs"),
        field: "ip".to_owned(),
    };
    let others = vec![
        field("spec.hostNetwork", Reading::Flag(path("spec.hostNetwork"))),
        field("status.podIP", first_address),
        // The field's name in the first versions of the API.
        field("spec.host", Reading::Path(path("spec.nodeName"))),
    ];
    selectable(&mut made, SelectorTable::Own, &texts, others);
    made.generation = Generation::Spec;
    made.deletion = Deletion::Graceful;
    made
}

/// Events are the same objects in two groups, whose fields have different names.
fn events(group: &str, version: &str, about: &str, reporter: &str) -> ResourceType {
    let mut made = named(
        plain(group, version, "events", "Event", Scope::Namespaced),
        &["ev"],
        Printer::Event,
    );
    let parts = [
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    ];
    let mut texts: Vec<String> = parts.iter().map(|part| format!("{about}.{part}")).collect();
    texts.extend(["metadata.name", "metadata.namespace", "reason", "type", reporter].map(str::to_owned));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let source = Reading::FirstOf(vec![path("source.component"), path("reportingComponent")]);
    let others = if group.is_empty() {
        vec![field("source", source)]
    } else {
        Vec::new()
    };
    selectable(&mut made, SelectorTable::Own, &texts, others);
    made.update_creates = true;
    made.delete_answer = DeleteAnswer::Status;
    made.deletion = Deletion::Uncollected;
    made
}

fn config_maps() -> ResourceType {
    let made = plain("", "v1", "configmaps", "ConfigMap", Scope::Namespaced);
    let mut made = named(made, &["cm"], Printer::ConfigMap);
    made.delete_answer = DeleteAnswer::Status;
    made
}

fn secrets() -> ResourceType {
    let mut made = named(plain("", "v1", "secrets", "Secret", Scope::Namespaced), &[], Printer::Secret);
    selectable(
        &mut made,
        SelectorTable::Own,
        &["metadata.name", "metadata.namespace", "type"],
        Vec::new(),
    );
    made.delete_answer = DeleteAnswer::Status;
    made
}

fn service_accounts() -> ResourceType {
    let made = plain("", "v1", "serviceaccounts", "ServiceAccount", Scope::Namespaced);
    let mut made = named(made, &["sa"], Printer::NameAge);
    made.subresources = vec![Subresource {
        body: Some(GroupVersionKind::new("authentication.k8s.io/v1", "TokenRequest")),
        ..below("token", &[Verb::Create])
    }];
    made
}

fn resource_quotas() -> ResourceType {
    let made = plain("", "v1", "resourcequotas", "ResourceQuota", Scope::Namespaced);
    let mut made = named(made, &["quota"], Printer::ResourceQuota);
    made.subresources = vec![status()];
    made
}

fn apps() -> Vec<ResourceType> {
    let workload = |plural, kind, short: &str, printer, generation, status_metadata| {
        let mut made = named(plain("apps", "v1", plural, kind, Scope::Namespaced), &[short], printer);
        made.categories = vec!["all".to_owned()];
        made.subresources = vec![status()];
        made.generation = generation;
        made.status_metadata = status_metadata;
        made.delete_answer = DeleteAnswer::Status;
        made
    };
    vec![
        workload(
            "daemonsets",
            "DaemonSet",
            "ds",
            Printer::DaemonSet,
            Generation::Spec,
            StatusMetadata::Written,
        ),
        workload(
            "deployments",
            "Deployment",
            "deploy",
            Printer::Deployment,
            Generation::SpecAndAnnotations,
            StatusMetadata::WrittenButLabels,
        ),
    ]
}

fn reviews() -> Vec<ResourceType> {
    let authentication = |plural, kind| create_only("authentication.k8s.io", "v1", plural, kind, Scope::Cluster);
    let authorization = |plural, kind, scope| create_only("authorization.k8s.io", "v1", plural, kind, scope);
    vec![
        authentication("selfsubjectreviews", "SelfSubjectReview"),
        authentication("tokenreviews", "TokenReview"),
        authorization("localsubjectaccessreviews", "LocalSubjectAccessReview", Scope::Namespaced),
        authorization("selfsubjectaccessreviews", "SelfSubjectAccessReview", Scope::Cluster),
        authorization("selfsubjectrulesreviews", "SelfSubjectRulesReview", Scope::Cluster),
        authorization("subjectaccessreviews", "SubjectAccessReview", Scope::Cluster),
    ]
}

fn priority_classes() -> ResourceType {
    let made = plain("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", Scope::Cluster);
    let mut made = named(made, &["pc"], Printer::PriorityClass);
    made.generation = Generation::One;
    made.delete_answer = DeleteAnswer::Status;
    made
}

fn leases() -> ResourceType {
    let made = plain("coordination.k8s.io", "v1", "leases", "Lease", Scope::Namespaced);
    let mut made = named(made, &[], Printer::Lease);
    made.update_creates = true;
    made.update_needs_version = true;
    made.delete_answer = DeleteAnswer::Status;
    made
}

/// The kinds of one version of `resource.k8s.io`: v1beta1 has no taint rules, v1alpha3 nothing else that is older.
fn resource_group(version: &str) -> Vec<ResourceType> {
    let cluster = |plural, kind, printer| named(plain(RESOURCE, version, plural, kind, Scope::Cluster), &[], printer);
    let namespaced = |plural, kind, printer| named(plain(RESOURCE, version, plural, kind, Scope::Namespaced), &[], printer);
    let mut made = Vec::new();
    if version != "v1alpha3" {
        let mut classes = cluster("deviceclasses", "DeviceClass", Printer::NameAge);
        classes.generation = Generation::Spec;
        let mut claims = namespaced("resourceclaims", "ResourceClaim", Printer::ResourceClaim);
        claims.subresources = vec![status()];
        claims.status_metadata = StatusMetadata::Kept;
        let templates = namespaced("resourceclaimtemplates", "ResourceClaimTemplate", Printer::NameAge);
        let mut slices = cluster("resourceslices", "ResourceSlice", Printer::ResourceSlice);
        slices.generation = Generation::Spec;
        let texts = ["metadata.name", "spec.driver", "spec.nodeName", "spec.pool.name"];
        selectable(&mut slices, SelectorTable::OwnWithKind, &texts, Vec::new());
        made.extend([classes, claims, templates, slices]);
    }
    if version != "v1beta1" {
        let mut rules = cluster("devicetaintrules", "DeviceTaintRule", Printer::DeviceTaintRule);
        rules.generation = Generation::Spec;
        rules.subresources = vec![status()];
        rules.status_metadata = StatusMetadata::Kept;
        // v1 is stricter than the versions before it.
        rules.update_needs_version = version == "v1";
        rules.delete_answer = if version == "v1" {
            DeleteAnswer::Status
        } else {
            DeleteAnswer::Object
        };
        made.push(rules);
    }
    if version == "v1alpha3" {
        let printer = Printer::ResourcePoolStatusRequest;
        let mut requests = cluster("resourcepoolstatusrequests", "ResourcePoolStatusRequest", printer);
        requests.subresources = vec![status()];
        requests.status_metadata = StatusMetadata::Kept;
        made.push(requests);
    }
    made
}

/// A resource with every verb, the defaults of most kinds and no subresource.
pub(super) fn plain(group: &str, version: &str, plural: &str, kind: &str, scope: Scope) -> ResourceType {
    let mut made = ResourceType {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_ascii_lowercase(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        scope,
        verbs: ALL_VERBS.to_vec(),
        subresources: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        printer: Printer::NameAge,
        selectable: Vec::new(),
        selector_table: SelectorTable::Common,
        generation: Generation::Unmanaged,
        status_metadata: StatusMetadata::Written,
        create_takes_status: false,
        update_creates: false,
        update_needs_version: false,
        delete_answer: DeleteAnswer::Object,
        deletion: Deletion::Plain,
        name_rule: NameRule::Subdomain,
        is_custom: false,
    };
    selectable(&mut made, SelectorTable::Common, &COMMON_FIELDS, Vec::new());
    made
}

/// The `status` subresource, in the type of the object.
pub(super) fn status() -> Subresource {
    below("status", &[Verb::Get, Verb::Patch, Verb::Update])
}

fn create_only(group: &str, version: &str, plural: &str, kind: &str, scope: Scope) -> ResourceType {
    let mut made = plain(group, version, plural, kind, scope);
    made.verbs = vec![Verb::Create];
    made.list_kind = String::new();
    made
}

fn named(mut made: ResourceType, short_names: &[&str], printer: Printer) -> ResourceType {
    made.short_names = short_names.iter().map(|name| (*name).to_owned()).collect();
    made.printer = printer;
    made
}

fn below(name: &str, verbs: &[Verb]) -> Subresource {
    Subresource {
        name: name.to_owned(),
        body: None,
        verbs: verbs.to_vec(),
    }
}

/// Replaces the selectable fields: `texts` are paths that selectors and objects spell alike.
fn selectable(made: &mut ResourceType, table: SelectorTable, texts: &[&str], others: Vec<SelectableField>) {
    made.selector_table = table;
    made.selectable = texts.iter().map(|label| field(label, Reading::Path(path(label)))).collect();
    made.selectable.extend(others);
}

fn field(label: &str, reading: Reading) -> SelectableField {
    SelectableField {
        label: label.to_owned(),
        reading,
    }
}

fn path(dotted: &str) -> Vec<String> {
    dotted.split('.').map(str::to_owned).collect()
}
