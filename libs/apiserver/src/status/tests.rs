use resource_api::field_path::{FieldErrors, FieldPath};
use serde_json::json;

use super::*;

const CLAIMS: GroupResource<'static> = GroupResource::new("resource.k8s.io", "resourceclaims");
const PODS: GroupResource<'static> = GroupResource::new("", "pods");

#[track_caller]
fn check(status: &Status, code: u16, reason: &str, message: &str) {
    assert_eq!(
        (status.code, status.reason.text(), status.message.as_str()),
        (code, reason, message)
    );
    assert_eq!(status.to_value()["code"], json!(code));
}

#[test]
fn missing_object_is_told_as_clients_know_it() {
    let status = Status::not_found(CLAIMS, "nope");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "resourceclaims.resource.k8s.io \"nope\" not found", "reason": "NotFound",
        "details": {"name": "nope", "group": "resource.k8s.io", "kind": "resourceclaims"}, "code": 404
    });
    assert_eq!(status.to_value(), body);
    // The sizes that a real server answered with, newline included.
    assert_eq!(status.to_value().to_string().len() + 1, 238);
    assert_eq!(Status::not_found(PODS, "p1").to_value().to_string().len() + 1, 172);
}

#[test]
fn core_group_has_no_suffix() {
    check(&Status::not_found(PODS, "p1"), 404, "NotFound", "pods \"p1\" not found");
    check(
        &Status::already_exists(PODS, "p1"),
        409,
        "AlreadyExists",
        "pods \"p1\" already exists",
    );
}

#[test]
fn fixed_answers() {
    check(&Status::unauthorized(), 401, "Unauthorized", "Unauthorized");
    check(
        &Status::no_such_resource(),
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
    assert_eq!(Status::no_such_resource().to_value()["details"], json!({}));
    check(
        &Status::method_not_allowed(),
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    check(
        &Status::too_large(3_145_728),
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
    check(
        &Status::unsupported_patch_type(),
        415,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
    );
    check(
        &Status::internal("boom"),
        500,
        "InternalError",
        "Internal error occurred: boom",
    );
    check(&Status::too_old(5, 377), 410, "Expired", "too old resource version: 5 (377)");
    check(
        &Status::resource_version_on_create(),
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    );
    assert_eq!(Status::unauthorized().to_value().get("details"), None);
    assert_eq!(Status::resource_version_on_create().to_value().get("reason"), None);
}

#[test]
fn conflicts() {
    check(
        &Status::object_modified(CLAIMS, "c9"),
        409,
        "Conflict",
        "Operation cannot be fulfilled on resourceclaims.resource.k8s.io \"c9\": the object has been modified; please apply your \
         changes to the latest version and try again",
    );
    check(
        &Status::still_being_deleted(CLAIMS, "c9"),
        409,
        "AlreadyExists",
        "object is being deleted: resourceclaims.resource.k8s.io \"c9\" already exists",
    );
    assert_eq!(Status::generated_name_taken(CLAIMS, "c-abcde").retry_after(), Some(1));
}

#[test]
fn forbidden_texts() {
    let why = "User \"alice\" cannot get resource \"resourceclaims\" in API group \"resource.k8s.io\" in the namespace \"demo\"";
    let status = Status::forbidden(CLAIMS, "c9", why);
    check(
        &status,
        403,
        "Forbidden",
        &format!("resourceclaims.resource.k8s.io \"c9\" is forbidden: {why}"),
    );
    let status = Status::forbidden(GroupResource::new("", ""), "", "User \"x\" cannot get path \"/metrics\"");
    check(
        &status,
        403,
        "Forbidden",
        "forbidden: User \"x\" cannot get path \"/metrics\"",
    );
    let status = Status::namespace_terminating(CLAIMS, "c9", "demo");
    assert_eq!(status.to_value()["details"]["causes"][0]["reason"], "NamespaceTerminating");
}

#[test]
fn one_broken_rule_has_no_brackets_several_have() {
    let mut errors = FieldErrors::new();
    let spec = FieldPath::root("spec");
    errors.required(&spec.child("driver"), "");
    let one = errors.into_vec();
    let kind = GroupResource::new("resource.k8s.io", "ResourceSlice");
    let status = Status::invalid(kind, "x", &one);
    check(
        &status,
        422,
        "Invalid",
        "ResourceSlice.resource.k8s.io \"x\" is invalid: spec.driver: Required value",
    );

    let mut errors = FieldErrors::new();
    errors.required(&spec.child("driver"), "");
    errors.required(&spec.child("driver"), "");
    errors.not_supported(&spec.child("mode"), "All", &["A", "B"]);
    let status = Status::invalid(kind, "x", &errors.into_vec());
    let text = "ResourceSlice.resource.k8s.io \"x\" is invalid: [spec.driver: Required value, spec.mode: Unsupported value: \
                \"All\": supported values: \"A\", \"B\"]";
    check(&status, 422, "Invalid", text);
    let causes = &status.to_value()["details"]["causes"];
    assert_eq!(causes.as_array().map(Vec::len), Some(3));
    assert_eq!(
        causes[2],
        json!({"reason": "FieldValueNotSupported", "message": "Unsupported value: \"All\": supported values: \"A\", \"B\"",
               "field": "spec.mode"})
    );
    check(
        &Status::invalid(kind, "x", &[]),
        422,
        "Invalid",
        "ResourceSlice.resource.k8s.io \"x\" is invalid",
    );
}

#[test]
fn many_or_huge_errors_stay_small() {
    let mut errors = FieldErrors::new();
    for at in 0..4000 {
        errors.invalid(&FieldPath::root("spec").index(at), "é".repeat(10_000), "is wrong");
    }
    let status = Status::invalid(GroupResource::new("", "Pod"), "p", &errors.into_vec());
    assert!(status.to_value().to_string().len() < 3 * 1024 * 1024);
    assert!(status.message.len() <= MESSAGE_BYTES_MAX + 3);
    assert_eq!(status.details.map(|details| details.causes.len()), Some(CAUSES_MAX));
}

#[test]
fn future_version_may_be_asked_for_again() {
    let status = Status::version_too_large(900, 300);
    check(
        &status,
        504,
        "Timeout",
        "Timeout: Too large resource version: 900, current: 300",
    );
    assert_eq!(status.retry_after(), Some(1));
    assert_eq!(
        status.to_value()["details"],
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1})
    );
    assert_eq!(Status::timeout("request did not complete", None).retry_after(), None);
}

#[test]
fn success_of_a_deletion() {
    let rules = GroupResource::new("resource.k8s.io", "devicetaintrules");
    let status = Status::success(rules, "r1", "7d3ff0ab-0f4c-4cf3-8a5c-1e0a8e1c7a55");
    assert_eq!(
        status.to_value(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
               "details": {"name": "r1", "group": "resource.k8s.io", "kind": "devicetaintrules",
                           "uid": "7d3ff0ab-0f4c-4cf3-8a5c-1e0a8e1c7a55"}})
    );
    // The size that a real server answered with.
    assert_eq!(status.to_value().to_string().len() + 1, 190);
}
