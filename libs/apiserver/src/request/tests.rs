use serde_json::json;

use super::options::{FIELD_MANAGER_BYTES_MAX, field_manager};
use super::*;
use crate::schema::GroupVersionKind;

fn catalog() -> Catalog {
    let mut catalog = Catalog::standard(|_| true);
    let gvk = GroupVersionKind::new("resource.nvidia.com/v1beta1", "ComputeDomain");
    let domains = ResourceType::custom(&gvk, "computedomains", Scope::Namespaced, true);
    catalog.add(domains).expect("is new");
    catalog
}

/// `line`: method and URL as `observed-requests.md` has them.
fn ask_typed(line: &str, content_type: Option<&str>) -> (Target, Result<Request, Refusal>) {
    let (method, url) = line.split_once(' ').expect("method and URL");
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let target = Target::parse(method, path, query).expect("is well-formed");
    let incoming = Incoming {
        method,
        path,
        query,
        content_type,
        user_agent: None,
    };
    let request = resolve(&target, &incoming, &catalog());
    (target, request)
}

#[track_caller]
fn resource(line: &str) -> ResourceRequest {
    match ask_typed(line, None).1 {
        Ok(Request::Resource(request)) => *request,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn document(line: &str) -> Document {
    match ask_typed(line, None).1 {
        Ok(Request::Document(document)) => document,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn refused(line: &str, code: u16, message: &str) {
    match ask_typed(line, None).1 {
        Err(Refusal::Status(status)) => assert_eq!((status.code, status.message.as_str()), (code, message), "{line}"),
        other => panic!("{line}: {other:?}"),
    }
}

/// Verb, plural, namespace, name and subresource.
#[track_caller]
fn check(line: &str, wanted: (&str, &str, &str, &str, &str)) {
    let content_type = line.starts_with("PATCH").then_some("application/merge-patch+json");
    let (target, request) = ask_typed(line, content_type);
    let Ok(Request::Resource(request)) = request else {
        panic!("{line}: {request:?}")
    };
    let found = (
        request.operation.verb().text(),
        request.resource.plural.as_str(),
        request.namespace.as_str(),
        request.name.as_str(),
        request.subresource.as_deref().unwrap_or_default(),
    );
    assert_eq!(found, wanted, "{line}");
    assert_eq!(target.verb, wanted.0, "{line}");
}

#[test]
fn requests_of_real_clients() {
    let claims = "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaims";
    check("GET /api/v1/namespaces/demo", ("get", "namespaces", "", "demo", ""));
    check(
        "POST /api/v1/namespaces?fieldManager=kubectl-client-side-apply&fieldValidation=Strict",
        ("create", "namespaces", "", "", ""),
    );
    check(&format!("GET {claims}/c1"), ("get", "resourceclaims", "demo", "c1", ""));
    check(&format!("GET {claims}?limit=500"), ("list", "resourceclaims", "demo", "", ""));
    check(
        "GET /apis/resource.k8s.io/v1/resourceclaims?limit=500",
        ("list", "resourceclaims", "", "", ""),
    );
    check(
        &format!("PATCH {claims}/c1?fieldManager=kubectl-client-side-apply&fieldValidation=Strict"),
        ("patch", "resourceclaims", "demo", "c1", ""),
    );
    check(
        &format!("PUT {claims}/c1/status"),
        ("update", "resourceclaims", "demo", "c1", "status"),
    );
    check(
        &format!("GET {claims}/c1/status"),
        ("get", "resourceclaims", "demo", "c1", "status"),
    );
    check(&format!("DELETE {claims}/c1"), ("delete", "resourceclaims", "demo", "c1", ""));
    check(
        "DELETE /apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName=node-a",
        ("deletecollection", "resourceslices", "", "", ""),
    );
    check(
        "GET /apis/resource.k8s.io/v1/resourceslices?allowWatchBookmarks=true&fieldSelector=spec.driver=net.example.com,\
         spec.nodeName=&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=7m30s&timeoutSeconds=450&watch=true",
        ("watch", "resourceslices", "", "", ""),
    );
    check(
        "POST /api/v1/namespaces/demo/serviceaccounts/default/token",
        ("create", "serviceaccounts", "demo", "default", "token"),
    );
    check(
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        ("create", "selfsubjectaccessreviews", "", "", ""),
    );
    check(
        "PUT /apis/coordination.k8s.io/v1/namespaces/demo/leases/drv",
        ("update", "leases", "demo", "drv", ""),
    );
    check(
        "GET /apis/resource.nvidia.com/v1beta1/computedomains?watch=true",
        ("watch", "computedomains", "", "", ""),
    );
    check(
        "PUT /api/v1/namespaces/demo/finalize",
        ("update", "namespaces", "", "demo", "finalize"),
    );
    check("GET /api/v1/nodes/node-a/", ("get", "nodes", "", "node-a", ""));
    check("GET /api/v1/nodes/a%2Db?watch=true", ("get", "nodes", "", "a-b", ""));
}

#[test]
fn documents() {
    let text = |text: &str| text.to_owned();
    assert_eq!(document("GET /"), Document::Index);
    assert_eq!(document("GET /version?timeout=32s"), Document::Version);
    assert_eq!(document("GET /api?timeout=32s"), Document::CoreVersions);
    assert_eq!(document("GET /apis"), Document::Groups);
    assert_eq!(document("GET /apis/apps"), Document::Group(text("apps")));
    let resources = |group: &str, version: &str| Document::Resources {
        group: group.to_owned(),
        version: version.to_owned(),
    };
    assert_eq!(document("GET /apis/resource.k8s.io/v1"), resources("resource.k8s.io", "v1"));
    assert_eq!(document("GET /api/v1"), resources("", "v1"));
    let (check, part) = (text("readyz"), text("ping/x"));
    assert_eq!(document("GET /readyz/ping/x?verbose"), Document::Health { check, part });
    assert_eq!(document("GET /openapi/v3?timeout=32s"), Document::OpenApiIndex);
    let openapi = Document::OpenApi {
        group: text("resource.k8s.io"),
        version: text("v1"),
        hash: Some(text("AB")),
    };
    let line = "GET /openapi/v3/apis/resource.k8s.io/v1?hash=AB&timeout=32s";
    assert_eq!(document(line), openapi);
    refused(
        "POST /api",
        405,
        "the server does not allow this method on the requested resource",
    );
    for line in [
        "GET /apis/nope",
        "GET /apis/apps/v9",
        "GET /api/v2",
        "GET /metrics",
        "GET /openapi/v3/api/v9",
        "GET /apis/",
    ] {
        let found = ask_typed(line, None).1;
        let is_groups = line == "GET /apis/" && found == Ok(Request::Document(Document::Groups));
        assert!(is_groups || found == Err(Refusal::PageNotFound), "{line}: {found:?}");
    }
}

#[test]
fn paths_and_methods_that_are_not_there() {
    let missing = "the server could not find the requested resource";
    let not_allowed = "the server does not allow this method on the requested resource";
    for line in [
        "GET /apis/resource.k8s.io/v1/foobars",
        "GET /api/v1/namespaces/demo/pods/p1/log",
        "GET /api/v1/namespaces/demo/pods/p1/status/more",
        "GET /apis/resource.k8s.io/v1/resourceclaims/c1",
        "GET /apis/resource.k8s.io/v1/namespaces/demo/deviceclasses",
        "GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x",
        "GET /api/v1/watch",
        "GET /api/v1/proxy/nodes/a",
    ] {
        refused(line, 404, missing);
    }
    for line in [
        "POST /apis/resource.k8s.io/v1/resourceclaims",
        "DELETE /apis/resource.k8s.io/v1/resourceclaims",
        "POST /api/v1/nodes/node-a",
        "PUT /api/v1/nodes",
        "PATCH /api/v1/nodes",
        "HEAD /api/v1/nodes/node-a",
        "OPTIONS /api/v1/nodes",
        "DELETE /api/v1/namespaces",
        "DELETE /apis/resource.k8s.io/v1/devicetaintrules/r1/status",
        "GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "POST /api/v1/watch/nodes",
    ] {
        refused(line, 405, not_allowed);
    }
    assert_eq!(ask_typed("GET /apis/nope/v1/things", None).1, Err(Refusal::PageNotFound));
    refused("PATCH /api/v1/nodes/node-a", 415, "415: Unsupported Media Type");
}

#[test]
fn old_watch_paths() {
    let named = resource("GET /api/v1/watch/namespaces/demo/pods/p1?fieldSelector=spec.nodeName=a&resourceVersion=7");
    let Operation::Watch(options) = &named.operation else {
        panic!("{named:?}")
    };
    assert_eq!(options.selection.fields.to_string(), "metadata.name=p1,spec.nodeName=a");
    assert_eq!((options.version, named.name.as_str()), (Some(7), ""));
    check("GET /api/v1/watch/pods", ("watch", "pods", "", "", ""));
    check("GET /api/v1/watch/namespaces", ("watch", "namespaces", "", "", ""));
}

#[test]
fn authorization_knows_the_selected_name() {
    let (target, _) = ask_typed(
        "GET /api/v1/namespaces/demo/pods?fieldSelector=metadata.name%3Dp1&watch=1",
        None,
    );
    let addressed = target.resource.expect("are objects");
    assert_eq!(
        (addressed.selected_name.as_str(), addressed.namespace.as_str()),
        ("p1", "demo")
    );
    let (target, _) = ask_typed("GET /api/v1/namespaces/demo", None);
    assert_eq!(target.resource.map(|addressed| addressed.namespace), Some("demo".to_owned()));
    let (target, _) = ask_typed("GET /metrics", None);
    assert_eq!(
        (target.verb.as_str(), target.path.as_str(), target.resource),
        ("get", "/metrics", None)
    );
}

#[test]
fn list_options() {
    let request = resource("GET /api/v1/pods?labelSelector=app+in+(a,b)&limit=500&resourceVersion=0&timeoutSeconds=9&continue=");
    let Operation::List(options) = request.operation else {
        panic!()
    };
    assert_eq!(options.selection.labels.to_string(), "app in (a,b)");
    assert_eq!(
        (
            options.limit,
            options.version,
            options.timeout_seconds,
            options.continue_token
        ),
        (Some(500), Some(0), Some(9), None)
    );
    let request = resource("GET /api/v1/pods?limit=-1&resourceVersion=7&resourceVersionMatch=Exact");
    let Operation::List(options) = request.operation else {
        panic!()
    };
    assert_eq!(
        (options.limit, options.version, options.version_match),
        (None, Some(7), Some(VersionMatch::Exact))
    );
    refused(
        "GET /api/v1/pods?limit=abc",
        400,
        "strconv.ParseInt: parsing \"abc\": invalid syntax",
    );
    refused(
        "GET /api/v1/pods?resourceVersion=-1",
        400,
        "invalid resource version: strconv.ParseUint: parsing \"-1\": invalid syntax",
    );
    refused(
        "GET /apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.foo=1&limit=500",
        400,
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.foo",
    );
    refused(
        "GET /api/v1/pods?labelSelector=a%20in",
        400,
        "unable to parse requirement: found '' expected: '('",
    );
    for (query, wanted) in [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            "resourceVersionMatch=Newest&resourceVersion=1",
            "resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
    ] {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {wanted}");
        refused(&format!("GET /api/v1/pods?{query}"), 422, &message);
    }
}

#[test]
fn watch_options() {
    let line = "GET /api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
    let Operation::Watch(options) = resource(line).operation else {
        panic!()
    };
    assert!(options.allows_bookmarks && options.send_initial_events == Some(true) && options.version.is_none());
    for (query, wanted) in [
        (
            "sendInitialEvents=true",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {wanted}");
        refused(&format!("GET /api/v1/pods?watch=1&{query}"), 422, &message);
    }
}

#[test]
fn write_options() {
    let request = resource("POST /api/v1/nodes?dryRun=All&fieldManager=kubectl-create&fieldValidation=Strict&pretty=true");
    assert!(request.is_pretty && request.operation.is_dry_run());
    let Operation::Create(options) = request.operation else {
        panic!()
    };
    assert_eq!(options.field_validation, FieldValidation::Strict);
    assert_eq!(field_manager(&options, Some("x/1")), "kubectl-create");
    let Operation::Create(options) = resource("POST /api/v1/nodes").operation else {
        panic!()
    };
    assert_eq!(options.field_validation, FieldValidation::Warn);
    assert_eq!(
        field_manager(&options, Some("dra-example\u{7}-driver/v0.0.0 (linux/amd64)")),
        "dra-example-driver"
    );
    assert_eq!(field_manager(&options, Some(&"é".repeat(100))).len(), FIELD_MANAGER_BYTES_MAX);
    let line = format!(
        "POST /api/v1/nodes?dryRun=Some&dryRun=All&fieldValidation=Maybe&fieldManager={}%0A",
        "m".repeat(128)
    );
    let Err(Refusal::Status(status)) = ask_typed(&line, None).1 else {
        panic!()
    };
    let fields: Vec<String> = status
        .details
        .into_iter()
        .flat_map(|details| details.causes)
        .map(|cause| cause.field)
        .collect();
    assert_eq!(fields, ["fieldManager", "fieldManager", "dryRun", "fieldValidation"]);
    assert!(status.message.starts_with("CreateOptions.meta.k8s.io \"\" is invalid: ["));
    assert!(
        status
            .message
            .contains("dryRun: Unsupported value: \"Some,All\": supported values: \"All\"")
    );
}

#[test]
fn patch_options() {
    let line =
        "PATCH /apis/resource.k8s.io/v1/namespaces/demo/resourceclaims/c1?fieldManager=kubectl&fieldValidation=Strict&force=true";
    let Ok(Request::Resource(request)) = ask_typed(line, Some("application/apply-patch+yaml")).1 else {
        panic!()
    };
    assert!(
        matches!(&request.operation, Operation::Patch(options) if options.is_forced && options.patch_type == PatchType::Apply)
    );
    let message = |line: &str, content_type: &str| match ask_typed(line, Some(content_type)).1 {
        Err(Refusal::Status(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        message("PATCH /api/v1/nodes/a", "application/apply-patch+yaml"),
        (
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch".to_owned()
        )
    );
    assert_eq!(
        message("PATCH /api/v1/nodes/a?force=false", "application/merge-patch+json"),
        (
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch".to_owned()
        )
    );
    let domain = "PATCH /apis/resource.nvidia.com/v1beta1/namespaces/a/computedomains/b";
    assert_eq!(message(domain, "application/strategic-merge-patch+json").0, 415);
}

#[test]
fn delete_options_of_real_clients() {
    let body = json!({"kind": "DeleteOptions", "apiVersion": "resource.k8s.io/v1",
                      "preconditions": {"uid": "7d3ff0ab", "resourceVersion": "17"}});
    let options = DeleteOptions::from_body(&body).expect("is well-formed");
    assert_eq!(
        (
            options.uid.as_deref(),
            options.resource_version.as_deref(),
            options.propagation
        ),
        (Some("7d3ff0ab"), Some("17"), None)
    );
    let body = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0});
    let options = DeleteOptions::from_body(&body).expect("is well-formed");
    assert_eq!(
        (options.propagation, options.grace_period_seconds),
        (Some(Propagation::Background), Some(0))
    );
    assert_eq!(
        DeleteOptions::from_body(&json!({"dryRun": null})),
        Ok(DeleteOptions::default())
    );

    let line = "DELETE /api/v1/namespaces/a/pods/p?gracePeriodSeconds=-3&orphanDependents=true&dryRun=All&uid=u";
    let Operation::Delete(options) = resource(line).operation else {
        panic!()
    };
    let wanted = DeleteOptions {
        grace_period_seconds: Some(-3),
        uid: Some("u".to_owned()),
        propagation: Some(Propagation::Orphan),
        is_dry_run: true,
        ..DeleteOptions::default()
    };
    assert_eq!(options, wanted);
}

#[test]
fn bad_delete_options() {
    let status = DeleteOptions::from_body(&json!({"propagationPolicy": "Forget"})).expect_err("no such policy");
    assert_eq!(
        (status.code, status.message.as_str()),
        (
            422,
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Forget\": supported values: \
             \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        )
    );
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    assert_eq!(DeleteOptions::from_body(&both).map_err(|status| status.code), Err(422));
    for body in [
        json!({"dryRun": "All"}),
        json!({"gracePeriodSeconds": "1"}),
        json!({"preconditions": {"uid": 1}}),
    ] {
        assert_eq!(
            DeleteOptions::from_body(&body).map_err(|status| status.code),
            Err(400),
            "{body}"
        );
    }
}

#[test]
fn urls_from_hell() {
    let long = "a".repeat(query::URL_PART_BYTES_MAX + 1);
    assert_eq!(Target::parse("GET", &long, "").map_err(|status| status.code), Err(400));
    assert_eq!(Target::parse("GET", "/", &long).map_err(|status| status.code), Err(400));
    assert_eq!(
        Target::parse("GET", "/api/v1/%ff", "").map_err(|status| status.code),
        Err(400)
    );
    assert_eq!(Target::parse("GET", "/api/v1/%4", "").map_err(|status| status.code), Err(400));
    let query = Query::parse("a=%zz&b;c=1&&d=+%2B&=&e").expect("is short");
    assert_eq!(
        (query.first("a"), query.first("d"), query.first("e")),
        (None, Some(" +"), Some(""))
    );
    refused("GET /api/v1//pods", 404, "the server could not find the requested resource");
    refused(
        "GET /api/v1/namespaces//pods/x",
        404,
        "the server could not find the requested resource",
    );
}
