use serde_json::json;

use super::*;
use crate::resources::{Catalog, ResourceType};

fn resource(group: &str, plural: &str) -> ResourceType {
    let catalog = Catalog::standard(|_| true);
    (**catalog.find(group, "v1", plural).expect("is served")).clone()
}

#[track_caller]
fn labels(text: &str) -> LabelSelector {
    LabelSelector::parse(text).expect("is a selector")
}

#[track_caller]
fn fields(group: &str, plural: &str, text: &str) -> FieldSelector {
    let selector = FieldSelector::parse(text).expect("is a selector");
    selector.resolve(&resource(group, plural)).expect("has the paths")
}

#[track_caller]
fn selects(selector: &str, labels_of_object: &serde_json::Value, wanted: bool) {
    let object = json!({"metadata": {"labels": labels_of_object}});
    let selection = Selection {
        labels: labels(selector),
        fields: FieldSelector::default(),
    };
    assert_eq!(selection.matches(&object), wanted, "{selector} on {labels_of_object}");
}

#[test]
fn label_selectors_of_real_clients() {
    let domain = json!({"resource.nvidia.com/computeDomain": "u", "resource.nvidia.com/computeDomainTarget": "Daemon"});
    selects("resource.nvidia.com/computeDomain", &domain, true);
    selects(
        "resource.nvidia.com/computeDomain,resource.nvidia.com/computeDomainTarget in (Daemon)",
        &domain,
        true,
    );
    selects(
        "resource.nvidia.com/computeDomain,resource.nvidia.com/computeDomainTarget in (Workload)",
        &domain,
        false,
    );
    selects("resource.nvidia.com/computeDomain in (u)", &domain, true);
    selects("app=x", &json!({"app": "x"}), true);
    selects("bogus=1", &json!({"app": "x"}), false);
    selects("kubernetes.io/cluster-service=true", &json!({}), false);
}

#[test]
fn every_operator() {
    let object = json!({"a": "1", "b": ""});
    for (text, wanted) in [
        ("", true),
        ("a", true),
        ("!a", false),
        ("!c", true),
        ("a==1", true),
        ("a!=1", false),
        ("c!=1", true),
        ("c notin (1,2)", true),
        ("a notin (1)", false),
        ("b in ()", true),
        ("b in (,x)", true),
        ("b=", true),
        ("b=,a", true),
        ("a>0", true),
        ("a>1", false),
        ("a<2", true),
        ("b<2", false),
        ("c<2", false),
        (" a = 1 , b ", true),
        ("in in (in)", false),
    ] {
        selects(text, &object, wanted);
    }
}

#[test]
fn canonical_text_is_sorted_and_parses_to_itself() {
    for (text, canonical) in [
        ("z,a==1,x in (c,a),!k", "a==1,!k,x in (a,c),z"),
        ("y notin (b,a,a)", "y notin (a,b)"),
        ("a>1,b<2,c!=3", "a>1,b<2,c!=3"),
        ("x in ()", "x in ()"),
    ] {
        assert_eq!(labels(text).to_string(), canonical);
        assert_eq!(labels(canonical), labels(text));
    }
}

#[test]
fn bad_label_selectors_have_upstreams_texts() {
    for (text, wanted) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a=1 b", "found 'b', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "a in (=",
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
        ),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!=", "found '!=', expected: !, identifier, or 'end of string'"),
        ("! = a", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        let error = LabelSelector::parse(text).map(|selector| selector.to_string());
        assert_eq!(error.map_err(|error| error.to_string()), Err(wanted.to_owned()), "{text}");
    }
    for text in ["a/b/c", "-a", "a=-", "a in (-)", "a\0b", "a=é"] {
        assert!(LabelSelector::parse(text).is_err(), "{text:?}");
    }
    assert!(LabelSelector::parse(&"a,".repeat(SELECTOR_BYTES_MAX)).is_err());
}

#[test]
fn selectors_of_objects() {
    let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]});
    assert_eq!(
        LabelSelector::from_value(&selector).map(|selector| selector.to_string()),
        Some("a in (x,y),b=1".to_owned())
    );
    let bad = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
    assert_eq!(LabelSelector::from_value(&bad), None);
}

#[test]
fn slices_without_a_node_are_those_with_an_empty_node_name() {
    let on_node = json!({"spec": {"driver": "gpu.example.com", "nodeName": "node-a", "pool": {"name": "node-a"}}});
    let network = json!({"spec": {"driver": "gpu.example.com", "allNodes": true, "pool": {"name": "mypool"}}});
    let slices = |text| fields("resource.k8s.io", "resourceslices", text);
    let selector = slices("spec.driver=gpu.example.com,spec.nodeName=");
    assert!(!selector.matches(&on_node) && selector.matches(&network));
    let selector = slices("spec.driver=gpu.example.com,spec.nodeName=node-a");
    assert!(selector.matches(&on_node) && !selector.matches(&network));
    assert_eq!(selector.exact("spec.nodeName"), Some("node-a"));
    let selector = slices("spec.driver=gpu.example.com,spec.nodeName=,spec.pool.name=mypool");
    assert!(selector.matches(&network));
}

#[test]
fn pods_of_a_node_as_describe_asks_for_them() {
    let selector = fields(
        "",
        "pods",
        "spec.nodeName=node-a,status.phase!=Succeeded,status.phase!=Failed",
    );
    let pod = |phase: &str| json!({"spec": {"nodeName": "node-a"}, "status": {"phase": phase}});
    assert!(selector.matches(&pod("Running")) && !selector.matches(&pod("Failed")));
    let pod = json!({"spec": {"hostNetwork": true}, "status": {"podIP": "::9", "podIPs": [{"ip": "10.0.0.1"}]}});
    assert!(fields("", "pods", "spec.hostNetwork=true,status.podIP=10.0.0.1").matches(&pod));
    assert!(fields("", "pods", "spec.hostNetwork=false").matches(&json!({})));
}

#[test]
fn events_of_an_object_as_describe_asks_for_them() {
    let event = json!({
        "metadata": {"name": "c1.17", "namespace": "demo"},
        "involvedObject": {"kind": "ResourceClaim", "name": "c1", "namespace": "demo", "uid": "u"},
        "reportingComponent": "drv", "source": {}
    });
    let text = "involvedObject.kind=ResourceClaim,involvedObject.name=c1,involvedObject.namespace=demo,involvedObject.uid=u";
    assert!(fields("", "events", text).matches(&event));
    assert!(fields("", "events", "source=drv,reportingComponent=drv").matches(&event));
    let event = json!({"regarding": {"name": "c1"}, "reportingController": "drv"});
    assert!(fields("events.k8s.io", "events", "regarding.name=c1,reportingController=drv").matches(&event));
}

#[test]
fn unknown_paths_have_upstreams_texts() {
    for (group, plural, text, wanted) in [
        (
            "resource.k8s.io",
            "resourceslices",
            "spec.foo=1",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.foo",
        ),
        (
            "resource.k8s.io",
            "resourceclaims",
            "spec.foo=1",
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("", "pods", "metadata.uid=1", "field label not supported: metadata.uid"),
    ] {
        let selector = FieldSelector::parse(text).expect("is a selector");
        let refused = selector.resolve(&resource(group, plural)).expect_err("has no such path");
        assert_eq!((refused.code, refused.message.as_str()), (400, wanted));
    }
}

#[test]
fn escapes_and_bad_field_selectors() {
    let selector = FieldSelector::parse(r"a=x\,y\=z\\,b!=2,,c==3").expect("is a selector");
    let terms: Vec<_> = selector
        .terms()
        .iter()
        .map(|term| (term.path.as_str(), term.is_equal, term.value.as_str()))
        .collect();
    assert_eq!(terms, [("a", true, r"x,y=z\"), ("b", false, "2"), ("c", true, "3")]);
    assert_eq!(selector.to_string(), r"a=x\,y\=z\\,b!=2,c=3");
    assert!(!selector.matches(&json!({"a": 1})), "not resolved");
    for (text, wanted) in [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        (r"a=x\", r"invalid field selector: invalid escape sequence: \"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("é!", "invalid selector: 'é!'; can't understand 'é!'"),
    ] {
        let error = FieldSelector::parse(text).map(|selector| selector.to_string());
        assert_eq!(error.map_err(|error| error.to_string()), Err(wanted.to_owned()));
    }
}
