use super::*;

const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const DISCOVERY_BOTH: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                              application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

fn offer(answer: Answer) -> Offer {
    Offer {
        answer,
        has_protobuf: false,
    }
}

#[track_caller]
fn check(header: &str, offer: Offer, format: Format, representation: Representation) {
    let accepted = accept(Some(header), offer).expect("is acceptable");
    assert_eq!((accepted.format, accepted.representation), (format, representation));
}

#[track_caller]
fn refused(header: &str, offer: Offer, wanted: &str) {
    let status = accept(Some(header), offer).expect_err("is not acceptable");
    assert_eq!((status.code, status.message.as_str()), (406, wanted));
}

#[test]
fn what_real_clients_send() {
    let object = Representation::Object;
    let with_protobuf = Offer {
        answer: Answer::Object,
        has_protobuf: true,
    };
    let typed = "application/vnd.kubernetes.protobuf,application/json";
    check(typed, offer(Answer::Object), Format::Json, object);
    check(typed, with_protobuf, Format::Protobuf, object);
    check(typed, offer(Answer::Watch), Format::Json, object);
    check(
        "application/vnd.kubernetes.protobuf, */*",
        offer(Answer::List),
        Format::Json,
        object,
    );
    check("application/json, */*", with_protobuf, Format::Json, object);
    check("application/json", offer(Answer::Document), Format::Json, object);
    check(
        "application/cbor, application/json",
        offer(Answer::Object),
        Format::Json,
        object,
    );
    for answer in [Answer::Object, Answer::List, Answer::Watch] {
        check(TABLE, offer(answer), Format::Json, Representation::Table(MetaVersion::V1));
    }
    let metadata = Representation::Metadata(MetaVersion::V1);
    check(METADATA, offer(Answer::Watch), Format::Json, metadata);
    check(METADATA, with_protobuf, Format::Protobuf, metadata);
    check(METADATA_LIST, offer(Answer::List), Format::Json, metadata);
    for header in [DISCOVERY, DISCOVERY_BOTH] {
        let v2 = Representation::Discovery(DiscoveryVersion::V2);
        check(header, offer(Answer::Groups), Format::Json, v2);
        check(header, offer(Answer::Object), Format::Json, object);
    }
    assert_eq!(accept(None, offer(Answer::Object)), Ok(Accepted::JSON));
}

#[test]
fn content_types() {
    let accepted = accept(Some(DISCOVERY), offer(Answer::Groups)).expect("is acceptable");
    assert_eq!(
        accepted.content_type(),
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let accepted = accept(Some(old), offer(Answer::Groups)).expect("is acceptable");
    assert_eq!(accepted.content_type(), old);
    assert_eq!(Accepted::JSON.content_type(), "application/json");
    assert_eq!(stream_content_type(Format::Json), "application/json");
    assert_eq!(
        stream_content_type(Format::Protobuf),
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
}

#[test]
fn quality_then_specificity_then_order() {
    let object = Representation::Object;
    let any = offer(Answer::Object);
    check("application/json;q=0.5, application/yaml", any, Format::Yaml, object);
    check("application/yaml;q=0.5, application/json;q=0.75", any, Format::Json, object);
    check("*/*, application/yaml", any, Format::Yaml, object);
    check("application/*, application/yaml;q=0.9", any, Format::Json, object);
    check("application/yaml;q=0, */*;q=0.1", any, Format::Json, object);
    check("*", any, Format::Json, object);
    check("text/html, ,application/JSON", any, Format::Json, object);
}

#[test]
fn nothing_that_fits() {
    let types = "only the following media types are accepted: application/json, application/yaml";
    refused("application/xml", offer(Answer::Object), types);
    refused("text/*", offer(Answer::Object), types);
    refused("application/json;stream=x", offer(Answer::Object), types);
    refused("application/json;as=Chart;g=meta.k8s.io;v=v1", offer(Answer::Object), types);
    refused("application/json;as=Table;g=meta.k8s.io;v=v2", offer(Answer::Object), types);
    refused("application/json;as=Table;g=meta.k8s.io;v=v1", offer(Answer::Document), types);
    let both = Offer {
        answer: Answer::Watch,
        has_protobuf: true,
    };
    refused(
        "application/yaml",
        both,
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch",
    );
    refused(
        METADATA_LIST,
        offer(Answer::Object),
        "you requested PartialObjectMetadataList, but the requested object is not a list",
    );
    refused(
        METADATA,
        offer(Answer::List),
        "you requested PartialObjectMetadata, but the requested object is a list",
    );
    assert_eq!(accept_error(Some("application/xml"), true), Accepted::JSON);
}

#[test]
fn parameters_of_a_clause() {
    let accepted = accept(Some("application/json; pretty=1;stream=watch"), offer(Answer::Watch)).expect("is acceptable");
    assert!(accepted.is_pretty);
    let quoted = "application/json;as=\"Table\";v=v1;g=meta.k8s.io";
    check(
        quoted,
        offer(Answer::List),
        Format::Json,
        Representation::Table(MetaVersion::V1),
    );
    let huge = "application/xml,".repeat(100_000) + "application/json";
    assert!(
        accept(Some(&huge), offer(Answer::List)).is_err(),
        "only the first clauses count"
    );
}

#[test]
fn bodies() {
    for (header, wanted) in [
        (None, Format::Json),
        (Some("application/json; charset=utf-8"), Format::Json),
        (Some("application/yaml"), Format::Yaml),
        (Some("application/vnd.kubernetes.protobuf"), Format::Protobuf),
    ] {
        assert_eq!(body_format(header, true), Ok(wanted));
    }
    let status = body_format(Some("text/plain"), true).expect_err("is no type of bodies");
    assert_eq!(
        (status.code, status.message.as_str()),
        (
            415,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf"
        )
    );
    assert!(body_format(Some(PROTOBUF), false).is_err());
}

#[test]
fn patches() {
    for (header, wanted) in [
        (JSON_PATCH, PatchType::Json),
        (MERGE_PATCH, PatchType::Merge),
        (STRATEGIC_PATCH, PatchType::Strategic),
        ("application/apply-patch+yaml; charset=utf-8", PatchType::Apply),
    ] {
        assert_eq!(patch_type(Some(header), false), Ok(wanted));
        assert_eq!(PatchType::media_type(wanted), bare(Some(header)));
    }
    for header in [None, Some(JSON), Some("text/plain")] {
        let status = patch_type(header, false).expect_err("is no patch");
        assert_eq!((status.code, status.message.as_str()), (415, "415: Unsupported Media Type"));
    }
    let status = patch_type(Some(STRATEGIC_PATCH), true).expect_err("custom resources have none");
    assert_eq!(
        status.message,
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/apply-patch+yaml"
    );
}
