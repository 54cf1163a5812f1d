use super::review::{AccessAnswer, NonResourceRule, ResourceRule, Review, RulesAnswer, TokenAnswer};
use super::*;
use crate::resources::{Catalog, ResourceType};

fn alice() -> User {
    User {
        name: "alice".to_owned(),
        groups: vec![AUTHENTICATED.to_owned()],
        ..User::default()
    }
}

fn asked(line: &str) -> Attributes {
    let (method, url) = line.split_once(' ').expect("method and URL");
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    Attributes::of(&Target::parse(method, path, query).expect("is well-formed"))
}

#[track_caller]
fn refused(line: &str, wanted: &str) {
    let status = asked(line).forbidden(&alice(), "");
    assert_eq!((status.code, status.message.as_str()), (403, wanted));
}

#[test]
fn refusals_in_the_words_that_clients_know() {
    refused(
        "GET /apis/resource.k8s.io/v1/namespaces/demo/resourceclaims/c9",
        "resourceclaims.resource.k8s.io \"c9\" is forbidden: User \"alice\" cannot get resource \"resourceclaims\" in API group \
         \"resource.k8s.io\" in the namespace \"demo\"",
    );
    refused(
        "PUT /apis/resource.k8s.io/v1/namespaces/demo/resourceclaims/c9/status",
        "resourceclaims.resource.k8s.io \"c9\" is forbidden: User \"alice\" cannot update resource \"resourceclaims/status\" in \
         API group \"resource.k8s.io\" in the namespace \"demo\"",
    );
    refused(
        "GET /api/v1/nodes?watch=true",
        "nodes is forbidden: User \"alice\" cannot watch resource \"nodes\" in API group \"\" at the cluster scope",
    );
    refused("GET /metrics", "forbidden: User \"alice\" cannot get path \"/metrics\"");
    refused(
        "GET /x<script>",
        "forbidden: User \"alice\" cannot get path \"/x&lt;script&gt;\"",
    );
    let status = asked("DELETE /api/v1/nodes").forbidden(&User::anonymous(), "no rule fits");
    let wanted = "nodes is forbidden: User \"system:anonymous\" cannot deletecollection resource \"nodes\" in API group \"\" at \
                  the cluster scope: no rule fits";
    assert_eq!(status.message, wanted);
    assert!(User::anonymous().is_in(UNAUTHENTICATED));
}

#[test]
fn a_selected_name_is_asked_for() {
    let Attributes::Resource(asked) = asked("GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name=p") else {
        panic!()
    };
    assert_eq!(
        (asked.verb.as_str(), asked.name.as_str(), asked.namespace.as_str()),
        ("list", "p", "a")
    );
}

fn kind(name: &str) -> ResourceType {
    let catalog = Catalog::standard(|_| true);
    let found = catalog.resources().find(|resource| resource.kind == name).expect("is served");
    (**found).clone()
}

fn read(kind_name: &str, body: Value) -> Result<Review, (u16, String)> {
    review::read(&kind(kind_name), "demo", &alice(), &body).map_err(|status| (status.code, status.message))
}

#[test]
fn can_i() {
    // As `kubectl auth can-i update resourceclaims --subresource=status -n demo` asks.
    let asked = json!({"namespace": "demo", "verb": "update", "group": "resource.k8s.io", "version": "*",
                       "resource": "resourceclaims", "subresource": "status"});
    let body = json!({"spec": {"resourceAttributes": asked}});
    let Ok(Review::Access { user, attributes }) = read("SelfSubjectAccessReview", body.clone()) else {
        panic!()
    };
    let wanted = ResourceAttributes {
        verb: "update".to_owned(),
        group: "resource.k8s.io".to_owned(),
        version: "*".to_owned(),
        resource: "resourceclaims".to_owned(),
        subresource: "status".to_owned(),
        namespace: "demo".to_owned(),
        name: String::new(),
    };
    assert_eq!((user, attributes), (alice(), Attributes::Resource(wanted)));
    let answer = AccessAnswer {
        is_allowed: true,
        reason: "allowed".to_owned(),
        ..AccessAnswer::default()
    };
    assert_eq!(
        review::answered(&kind("SelfSubjectAccessReview"), &body, review::access_status(&answer)),
        json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": body["spec"],
               "status": {"allowed": true, "reason": "allowed"}})
    );
}

#[test]
fn reviews_for_others() {
    let path = json!({"path": "/metrics", "verb": "get"});
    let body =
        json!({"spec": {"user": "bob", "groups": ["g"], "uid": "u", "extra": {"k": ["v"]}, "nonResourceAttributes": path}});
    let Ok(Review::Access { user, attributes }) = read("SubjectAccessReview", body) else {
        panic!()
    };
    assert_eq!(
        user.to_value(),
        json!({"username": "bob", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}})
    );
    let (path, verb) = ("/metrics".to_owned(), "get".to_owned());
    assert_eq!(attributes, Attributes::Path { path, verb });

    let nobody = json!({"spec": {"resourceAttributes": {}}});
    let (code, message) = read("SubjectAccessReview", nobody).expect_err("has no user");
    assert_eq!(code, 422);
    assert!(message.ends_with("spec.user: Invalid value: \"\": at least one of user or group must be specified"));
    let elsewhere = json!({"spec": {"user": "bob", "resourceAttributes": {"namespace": "other"}}});
    let (_, message) = read("LocalSubjectAccessReview", elsewhere).expect_err("is elsewhere");
    assert!(message.contains("must match the namespace on the request: demo"));
    assert!(
        read(
            "LocalSubjectAccessReview",
            json!({"spec": {"user": "bob", "resourceAttributes": {"namespace": "demo"}}})
        )
        .is_ok()
    );
    for body in [
        json!({}),
        json!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}}),
    ] {
        assert_eq!(read("SelfSubjectAccessReview", body).map_err(|(code, _)| code), Err(422));
    }
    let bad = json!({"spec": {"user": "bob", "groups": "g"}});
    assert_eq!(read("SubjectAccessReview", bad).map_err(|(code, _)| code), Err(400));
}

#[test]
fn rules_of_a_namespace() {
    let body = json!({"spec": {"namespace": "demo"}});
    let namespace = "demo".to_owned();
    assert_eq!(read("SelfSubjectRulesReview", body), Ok(Review::Rules { namespace }));
    assert_eq!(
        read("SelfSubjectRulesReview", json!({})),
        Err((400, "no namespace on request".to_owned()))
    );
    let star = || vec!["*".to_owned()];
    let answer = RulesAnswer {
        resource_rules: vec![ResourceRule {
            verbs: star(),
            groups: star(),
            resources: star(),
            names: Vec::new(),
        }],
        non_resource_rules: vec![NonResourceRule {
            verbs: star(),
            paths: star(),
        }],
        ..RulesAnswer::default()
    };
    assert_eq!(
        review::rules_status(&answer),
        json!({"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
               "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": false})
    );
}

#[test]
fn who_am_i_and_whose_token() {
    assert_eq!(read("SelfSubjectReview", json!({})), Ok(Review::Caller { user: alice() }));
    assert_eq!(
        review::caller_status(&alice()),
        json!({"userInfo": {"username": "alice", "groups": ["system:authenticated"]}})
    );
    let body = json!({"metadata": {"name": "x"}, "spec": {"token": "secret", "audiences": ["a"]}});
    let (token, audiences) = ("secret".to_owned(), vec!["a".to_owned()]);
    assert_eq!(read("TokenReview", body.clone()), Ok(Review::Token { token, audiences }));
    assert_eq!(read("TokenReview", json!({})).map_err(|(code, _)| code), Err(400));
    let known = TokenAnswer::Known {
        user: alice(),
        audiences: vec!["a".to_owned()],
    };
    let answer = review::answered(&kind("TokenReview"), &body, review::token_status(&known));
    assert_eq!(
        (&answer["spec"], &answer["status"]["authenticated"]),
        (&json!({"audiences": ["a"]}), &json!(true))
    );
    let unknown = TokenAnswer::Unknown {
        error: "expired".to_owned(),
    };
    assert_eq!(review::token_status(&unknown), json!({"user": {}, "error": "expired"}));
    assert_eq!(read("Pod", json!({})).map_err(|(code, _)| code), Err(404));
}

#[test]
fn users_of_the_system() {
    let driver = User::service_account("gpu", "plugin", "u1", Some(("node-a", "u2")));
    assert_eq!(
        driver.to_value(),
        json!({"username": "system:serviceaccount:gpu:plugin", "uid": "u1",
               "groups": ["system:serviceaccounts", "system:serviceaccounts:gpu", "system:authenticated"],
               "extra": {"authentication.kubernetes.io/node-name": ["node-a"], "authentication.kubernetes.io/node-uid": ["u2"]}})
    );
    assert!(User::node("node-a").is_in("system:nodes"));
}
