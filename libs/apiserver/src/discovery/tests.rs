use super::*;

fn catalog() -> Catalog {
    Catalog::standard(|_| true)
}

fn item(document: &Value, name: &str) -> Value {
    let mut items = document["items"].as_array().into_iter().flatten();
    items
        .find(|item| item["metadata"]["name"] == name)
        .cloned()
        .expect("has the group")
}

#[test]
fn aggregated_document_of_the_resource_group() {
    let served = Catalog::standard(|resource| resource.group == "resource.k8s.io" && resource.version == "v1");
    let document = aggregated(&served, Root::Groups, DiscoveryVersion::V2);
    let group = item(&document, "resource.k8s.io");
    assert_eq!(group["versions"][0]["freshness"], "Current");
    let claims = json!({
        "resource": "resourceclaims", "responseKind": {"group": "", "version": "", "kind": "ResourceClaim"},
        "scope": "Namespaced", "singularResource": "resourceclaim",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "subresources": [{"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "ResourceClaim"},
                          "verbs": ["get", "patch", "update"]}]
    });
    assert_eq!(group["versions"][0]["resources"][2], claims);
    assert_eq!(aggregated(&served, Root::Core, DiscoveryVersion::V2)["items"], json!([]));
}

#[test]
fn core_item_has_no_name() {
    let document = aggregated(&catalog(), Root::Core, DiscoveryVersion::V2Beta1);
    assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    assert_eq!(document["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(document["items"][0]["metadata"], json!({}));
    let resources = document["items"][0]["versions"][0]["resources"]
        .as_array()
        .expect("is a list");
    let pods = resources
        .iter()
        .find(|resource| resource["resource"] == "pods")
        .expect("are served");
    assert_eq!((&pods["shortNames"], &pods["categories"]), (&json!(["po"]), &json!(["all"])));
    let accounts = resources
        .iter()
        .find(|resource| resource["resource"] == "serviceaccounts")
        .expect("are served");
    assert_eq!(
        accounts["subresources"][0]["responseKind"],
        json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"})
    );
}

#[test]
fn documents_for_older_clients() {
    let catalog = catalog();
    let core = core_versions(&catalog, "10.0.0.1:6443");
    assert_eq!((&core["kind"], &core["versions"]), (&json!("APIVersions"), &json!(["v1"])));
    let groups = groups(&catalog);
    assert_eq!(groups["groups"][0]["name"], "apps");
    let resource = group(&catalog, "resource.k8s.io").expect("is served");
    assert_eq!(resource["kind"], "APIGroup");
    assert_eq!(
        resource["preferredVersion"],
        json!({"groupVersion": "resource.k8s.io/v1", "version": "v1"})
    );
    assert_eq!(resource["versions"].as_array().map(Vec::len), Some(4));
    assert_eq!(group(&catalog, "nope"), None);
    assert_eq!(group(&catalog, ""), None);
}

#[test]
fn resources_of_a_version() {
    let list = resources(&catalog(), "resource.k8s.io", "v1");
    assert_eq!(list["groupVersion"], "resource.k8s.io/v1");
    let names: Vec<&str> = list["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    let wanted = [
        "deviceclasses",
        "devicetaintrules",
        "devicetaintrules/status",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "resourceslices",
    ];
    assert_eq!(names, wanted);
    let status = json!({"name": "resourceclaims/status", "singularName": "", "namespaced": true, "kind": "ResourceClaim",
                        "verbs": ["get", "patch", "update"]});
    assert_eq!(list["resources"][4], status);
    let core = resources(&catalog(), "", "v1");
    let mut resources = core["resources"].as_array().into_iter().flatten();
    let token = resources
        .find(|resource| resource["name"] == "serviceaccounts/token")
        .cloned()
        .expect("is served");
    let wanted = json!({"name": "serviceaccounts/token", "singularName": "", "namespaced": true, "kind": "TokenRequest",
                        "group": "authentication.k8s.io", "version": "v1", "verbs": ["create"]});
    assert_eq!(token, wanted);
}

#[test]
fn index_lists_each_path_once() {
    let index = index(&catalog(), &["/metrics"]);
    let paths: Vec<&str> = index["paths"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for path in [
        "/api/v1",
        "/apis",
        "/apis/resource.k8s.io/v1beta1",
        "/metrics",
        "/openapi/v3/api/v1",
        "/version",
    ] {
        assert_eq!(paths.iter().filter(|known| **known == path).count(), 1, "{path}");
    }
}

#[test]
fn server_version() {
    let version = ServerVersion {
        major: 1,
        minor: 37,
        git_version: "v1.37.2".to_owned(),
        git_commit: "0123".to_owned(),
        build_date: "2026-12-01T00:00:00Z".to_owned(),
        compiler_version: "rust 1.95".to_owned(),
        platform: "linux/amd64".to_owned(),
    };
    let shown = version.to_value();
    assert_eq!(
        (&shown["minor"], &shown["minCompatibilityMinor"]),
        (&json!("37"), &json!("36"))
    );
    assert_eq!(shown["gitVersion"], "v1.37.2");
}

#[test]
fn known_documents_are_not_sent_again() {
    let tag = etag(b"x");
    assert_eq!(tag.len(), 130);
    assert!(tag.starts_with("\"A4ABD4448C49562D"));
    assert!(is_known(Some(&tag), &tag));
    assert!(is_known(Some(&format!("\"old\", W/{tag}")), &tag));
    assert!(is_known(Some("*"), &tag));
    assert!(!is_known(Some("\"old\""), &tag));
    assert!(!is_known(None, &tag));
}
