//! What is served, in which versions, of which shape: discovery, OpenAPI, version, health.

use apiserver::discovery::{self, Root, ServerVersion};
use apiserver::negotiate::{self, Accepted, Answer, Offer, Representation};
use apiserver::openapi;
use apiserver::request::Document;
use apiserver::status::Status;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::respond;
use super::serve::Body;
use super::{Call, Parts};

/// What the server says that it is: the version of Kubernetes whose API this is.
fn version() -> ServerVersion {
    ServerVersion {
        major: 1,
        minor: 37,
        git_version: "v1.37.2".to_owned(),
        git_commit: String::new(),
        build_date: "2026-01-01T00:00:00Z".to_owned(),
        compiler_version: format!("dray-{}", env!("CARGO_PKG_VERSION")),
        platform: format!("{}/{}", std::env::consts::OS, platform()),
    }
}

/// The architecture, by the names that clients know.
fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn answer(parts: &Parts, document: &Document, call: &Call) -> Result<Response<Body>, Status> {
    let catalog = &parts.catalog;
    let root = |root: Root, legacy: Value| {
        let accepted = accept(call, Answer::Groups)?;
        let shown = match accepted.representation {
            Representation::Discovery(version) => discovery::aggregated(catalog, root, version),
            _ => legacy,
        };
        tagged(shown, accepted, call)
    };
    let plain = |shown: Value| tagged(shown, accept(call, Answer::Document)?, call);
    match document {
        Document::Index => plain(discovery::index(catalog, &[])),
        Document::Version => plain(version().to_value()),
        Document::Health { .. } => Ok(respond::text(StatusCode::OK, "ok")),
        Document::CoreVersions => root(Root::Core, discovery::core_versions(catalog, "")),
        Document::Groups => root(Root::Groups, discovery::groups(catalog)),
        Document::Group(name) => plain(discovery::group(catalog, name).ok_or_else(Status::no_such_resource)?),
        Document::Resources { group, version } => plain(discovery::resources(catalog, group, version)),
        Document::OpenApiV2 => Err(Status::no_such_resource()),
        Document::OpenApiIndex => plain(openapi::index(parts.openapi()?)),
        Document::OpenApi { group, version, hash } => {
            let name = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            let found = parts.openapi()?.iter().find(|document| document.name == name);
            let found = found.ok_or_else(Status::no_such_resource)?;
            if hash.as_ref().is_some_and(|hash| *hash != found.hash) {
                let mut moved = respond::text(StatusCode::MOVED_PERMANENTLY, "the document has changed\n");
                if let Ok(url) = HeaderValue::from_str(&found.url()) {
                    moved.headers_mut().insert(header::LOCATION, url);
                }
                return Ok(moved);
            }
            let mut response = respond::whole(StatusCode::OK, negotiate::JSON, found.json.clone());
            if hash.is_some() {
                let for_ever = HeaderValue::from_static("public, immutable, max-age=31536000");
                response.headers_mut().insert(header::CACHE_CONTROL, for_ever);
            }
            Ok(response)
        }
    }
}

fn accept(call: &Call, answer: Answer) -> Result<Accepted, Status> {
    let offer = Offer {
        answer,
        has_protobuf: false,
    };
    negotiate::accept(call.accept.as_deref(), offer)
}

/// With a tag, so that a client that has the document is told that it did not change.
fn tagged(shown: Value, accepted: Accepted, call: &Call) -> Result<Response<Body>, Status> {
    let Value::Object(object) = shown else {
        return Err(Status::internal("a document is no object"));
    };
    let tag = discovery::etag(Value::Object(object.clone()).to_string().as_bytes());
    let mut response = if discovery::is_known(call.if_none_match.as_deref(), &tag) {
        respond::whole(StatusCode::NOT_MODIFIED, accepted.content_type(), "")
    } else {
        respond::encoded(StatusCode::OK, &object, accepted)
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}
