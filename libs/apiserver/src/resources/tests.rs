use super::*;

fn standard() -> Catalog {
    Catalog::standard(|_| true)
}

#[test]
fn table_has_each_plural_and_kind_once_per_version() {
    let kinds = kinds::all();
    let mut catalog = Catalog::new();
    for resource in kinds.clone() {
        assert_eq!(catalog.add(resource), Ok(()));
    }
    assert_eq!(catalog.resources().count(), kinds.len());
}

#[test]
fn groups_and_versions_are_in_order_of_preference() {
    let catalog = standard();
    let groups: Vec<&str> = catalog.groups().into_iter().map(|(group, _)| group).collect();
    let wanted = [
        "",
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "resource.k8s.io",
    ];
    assert_eq!(groups, wanted);
    let versions = catalog.groups().pop().map(|(_, versions)| versions);
    assert_eq!(versions, Some(vec!["v1", "v1beta2", "v1beta1", "v1alpha3"]));
}

#[test]
fn versions_of_the_resource_group_have_their_own_kinds() {
    let catalog = standard();
    let plurals = |version| -> Vec<String> {
        let resources = catalog.in_version("resource.k8s.io", version);
        resources.map(|resource| resource.plural.clone()).collect()
    };
    let all = [
        "deviceclasses",
        "devicetaintrules",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourceslices",
    ];
    assert_eq!(plurals("v1"), all);
    assert_eq!(plurals("v1beta2"), all);
    assert!(!plurals("v1beta1").contains(&"devicetaintrules".to_owned()));
    assert_eq!(plurals("v1alpha3"), ["devicetaintrules", "resourcepoolstatusrequests"]);
    assert_eq!(plurals("v2"), Vec::<String>::new());
}

#[test]
fn rules_that_differ_between_kinds() {
    let catalog = standard();
    let find = |group: &str, plural: &str| catalog.find(group, "v1", plural).expect("is served");
    let rules = find("resource.k8s.io", "devicetaintrules");
    assert!(rules.update_needs_version && rules.delete_answer == DeleteAnswer::Status && rules.has_status());
    let old_rules = catalog
        .find("resource.k8s.io", "v1beta2", "devicetaintrules")
        .expect("is served");
    assert!(!old_rules.update_needs_version && old_rules.delete_answer == DeleteAnswer::Object);
    assert!(find("coordination.k8s.io", "leases").update_creates);
    assert!(find("", "events").update_creates);
    assert!(!find("", "namespaces").allows(Verb::DeleteCollection));
    assert_eq!(find("", "pods").deletion, Deletion::Graceful);
    assert_eq!(find("resource.k8s.io", "resourceclaims").generation, Generation::Unmanaged);
    assert_eq!(find("authorization.k8s.io", "selfsubjectaccessreviews").verbs, [Verb::Create]);
    let token = find("", "serviceaccounts")
        .subresource("token")
        .and_then(|sub| sub.body.as_ref());
    assert_eq!(
        token.map(|body| body.api_version()),
        Some("authentication.k8s.io/v1".to_owned())
    );
}

#[test]
fn custom_resources_come_and_go() {
    let mut catalog = standard();
    let gvk = GroupVersionKind::new("resource.nvidia.com/v1beta1", "ComputeDomain");
    let domains = ResourceType::custom(&gvk, "computedomains", Scope::Namespaced, true);
    assert_eq!(domains.singular, "computedomain");
    assert_eq!(catalog.add(domains.clone()), Ok(()));
    assert!(catalog.serves("resource.nvidia.com", "v1beta1"));
    assert_eq!(
        catalog.find_kind(&gvk).map(|found| found.plural.as_str()),
        Some("computedomains")
    );
    assert_eq!(
        catalog.add(domains.clone()).map_err(|error| error.to_string()),
        Err("computedomains is served in resource.nvidia.com/v1beta1 already".to_owned())
    );
    let other = ResourceType::custom(&gvk, "computedomainz", Scope::Namespaced, true);
    assert!(matches!(catalog.add(other), Err(CatalogError::KindTaken { .. })));
    let removed = catalog.remove("resource.nvidia.com", "v1beta1", "computedomains");
    assert_eq!(
        removed.map(|resource| resource.map(|resource| (*resource).clone())),
        Ok(Some(domains))
    );
    assert!(!catalog.serves("resource.nvidia.com", "v1beta1"));
    assert_eq!(catalog.remove("", "v1", "pods"), Err(CatalogError::NotCustom));
    assert_eq!(catalog.remove("", "v1", "nope"), Ok(None));
}

#[test]
fn a_second_version_of_a_custom_group_follows_the_first() {
    let mut catalog = Catalog::new();
    for (group, version) in [("a.example.com", "v1"), ("b.example.com", "v1"), ("a.example.com", "v1beta1")] {
        let gvk = GroupVersionKind::new(&api_version(group, version), "Thing");
        assert_eq!(
            catalog.add(ResourceType::custom(&gvk, "things", Scope::Cluster, false)),
            Ok(())
        );
    }
    assert_eq!(
        catalog.groups(),
        [("a.example.com", vec!["v1", "v1beta1"]), ("b.example.com", vec!["v1"])]
    );
}
