//! What clients do to one object after the other, through all parts of the crate and a store that is a map: that the parts fit
//! together, and that answers are those that a real API server gave.

use std::collections::BTreeMap;

use apiserver::body::{self, Format};
use apiserver::faults::{self, Source};
use apiserver::negotiate::{self, Answer, Offer};
use apiserver::patch;
use apiserver::request::{self, DeleteOptions, Incoming, Operation, Refusal, Request, ResourceRequest, Target};
use apiserver::resources::Catalog;
use apiserver::rules::{self, Creation, DeleteStep, Origin, Part, Update, UpdateOutcome};
use apiserver::schema::Schema;
use apiserver::status::Status;
use serde_json::{Map, Value, json};

/// Objects by plural, namespace and name; every write takes the next version.
#[derive(Default)]
struct Server {
    objects: BTreeMap<(String, String, String), Value>,
    version: u64,
    /// Word and name of each event.
    events: Vec<String>,
}

struct Answered {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Server {
    /// `line`: method and URL.
    fn ask(&mut self, line: &str, content_type: &str, body: &str) -> Answered {
        let (method, url) = line.split_once(' ').expect("method and URL");
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let answered = Target::parse(method, path, query).map_err(Refusal::from).and_then(|target| {
            let incoming = Incoming {
                method,
                path,
                query,
                content_type: Some(content_type),
                user_agent: Some("kubectl/v1.37.2 (linux/amd64)"),
            };
            match request::resolve(&target, &incoming, &Catalog::standard(|_| true))? {
                Request::Resource(request) => Ok(self.carry_out(&request, content_type, body)?),
                Request::Document(document) => panic!("{document:?}"),
            }
        });
        match answered {
            Ok(answered) => answered,
            Err(Refusal::Status(status)) => Answered {
                code: status.code,
                body: status.to_value(),
                warnings: Vec::new(),
            },
            Err(Refusal::PageNotFound) => panic!("{line}"),
        }
    }

    fn carry_out(&mut self, request: &ResourceRequest, content_type: &str, body: &str) -> Result<Answered, Status> {
        let resource = &request.resource;
        let key = |name: &str| (resource.plural.clone(), request.namespace.clone(), name.to_owned());
        let stored = self.objects.get(&key(&request.name)).cloned();
        let missing = || Status::not_found(resource.group_resource(), &request.name);
        let part = if request.subresource.is_some() {
            Part::Status
        } else {
            Part::Main
        };
        let mut warnings = Vec::new();
        let (code, body) = match &request.operation {
            Operation::Get { .. } => (200, stored.ok_or_else(missing)?),
            Operation::Create(options) => {
                let decoded = decode(request, content_type, body)?;
                warnings = faults::judge_findings(&decoded.findings, options.field_validation, resource, Source::Body)?;
                let mut object = Value::Object(decoded.object);
                let creation = Creation {
                    resource,
                    namespace: &request.namespace,
                    name: None,
                    uid: "7d3ff0ab-0f4c-4cf3-8a5c-1e0a8e1c7a55",
                    now: now(),
                    random: [1, 2, 3, 4, 5],
                };
                rules::prepare_create(&mut object, &creation)?;
                let object = canonical(request, object)?;
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if self.objects.contains_key(&key(&name)) {
                    return Err(rules::name_taken(resource, &name, false, self.objects.get(&key(&name))));
                }
                (201, self.store("ADDED", key(&name), object))
            }
            Operation::Update(_) => {
                let decoded = decode(request, content_type, body)?;
                let new = Value::Object(decoded.object);
                (
                    200,
                    self.write(request, part, Origin::Put, new, &stored.ok_or_else(missing)?)?,
                )
            }
            Operation::Patch(options) => {
                let stored = stored.ok_or_else(missing)?;
                let object = stored.as_object().cloned().unwrap_or_default();
                let change = options.patch_type.change().expect("is no apply");
                let schema = Schema::builtin();
                let patched = patch::apply(schema, &resource.gvk(), change, &object, body.as_bytes())
                    .map_err(|error| faults::patch_status(&error, resource, &request.name))?;
                let source = Source::Patch { name: &request.name };
                warnings = faults::judge_findings(&patched.findings, options.write.field_validation, resource, source)?;
                let new = Value::Object(patched.object);
                (200, self.write(request, part, Origin::Patch, new, &stored)?)
            }
            Operation::Delete(options) => {
                let stored = stored.ok_or_else(missing)?;
                let options = match body {
                    "" => options.clone(),
                    body => {
                        let group_version = resource.api_version();
                        let decoded = body::decode_options(
                            Schema::builtin(),
                            &group_version,
                            "DeleteOptions",
                            Format::Json,
                            body.as_bytes(),
                        )
                        .map_err(|error| faults::body_status(&error))?;
                        DeleteOptions::from_body(&Value::Object(decoded.object))?
                    }
                };
                let step = rules::decide_delete(resource, &stored, &options, now())?;
                let shown = match &step {
                    DeleteStep::Wait => stored,
                    DeleteStep::Mark { marked } => self.store("MODIFIED", key(&request.name), marked.clone()),
                    DeleteStep::Remove { last } => self.remove(key(&request.name), last.clone()),
                };
                (200, rules::delete_answer(resource, &step, &shown))
            }
            other => panic!("{other:?}"),
        };
        Ok(Answered { code, body, warnings })
    }

    fn write(
        &mut self,
        request: &ResourceRequest,
        part: Part,
        origin: Origin,
        mut new: Value,
        old: &Value,
    ) -> Result<Value, Status> {
        let update = Update {
            resource: &request.resource,
            part,
            origin,
            namespace: &request.namespace,
            name: &request.name,
        };
        let outcome = rules::prepare_update(&mut new, old, &update)?;
        let key = (
            request.resource.plural.clone(),
            request.namespace.clone(),
            request.name.clone(),
        );
        Ok(match outcome {
            UpdateOutcome::Unchanged => old.clone(),
            UpdateOutcome::Changed => self.store("MODIFIED", key, canonical(request, new)?),
            UpdateOutcome::Removed => self.remove(key, new),
        })
    }

    fn store(&mut self, event: &str, key: (String, String, String), mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.events.push(format!("{event} {}", key.2));
        self.objects.insert(key, object.clone());
        object
    }

    fn remove(&mut self, key: (String, String, String), mut last: Value) -> Value {
        self.version += 1;
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.events.push(format!("DELETED {}", key.2));
        self.objects.remove(&key);
        last
    }
}

fn now() -> jiff::Timestamp {
    "2026-12-01T12:00:00Z".parse().expect("is a time")
}

fn decode(request: &ResourceRequest, content_type: &str, text: &str) -> Result<body::Body, Status> {
    let format = negotiate::body_format(Some(content_type), !request.resource.is_custom)?;
    body::decode(Schema::builtin(), &request.resource.gvk(), format, text.as_bytes()).map_err(|error| faults::body_status(&error))
}

/// As objects are stored: in the shape of their kind.
fn canonical(request: &ResourceRequest, object: Value) -> Result<Value, Status> {
    let fields: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    let conformed = body::conform(Schema::builtin(), &request.resource.gvk(), fields);
    conformed
        .map(|body| Value::Object(body.object))
        .map_err(|error| faults::body_status(&error))
}

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaims";
const JSON: &str = negotiate::JSON;

fn claim() -> String {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c1", "labels": {"app": "x"}},
           "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}})
    .to_string()
}

fn with_claim() -> Server {
    let mut server = Server::default();
    let line = format!("POST {CLAIMS}?fieldManager=kubectl-client-side-apply&fieldValidation=Strict");
    let created = server.ask(&line, JSON, &claim());
    assert_eq!(
        (created.code, &created.body["metadata"]["resourceVersion"]),
        (201, &json!("1"))
    );
    server
}

#[test]
fn claim_is_applied_labelled_and_deleted() {
    let mut server = with_claim();
    assert_eq!(server.ask(&format!("POST {CLAIMS}"), JSON, &claim()).code, 409);

    // Applied again without a change: the same version, no event.
    let again = r#"{"spec":{"devices":{"requests":[{"exactly":{"deviceClassName":"gpu.example.com"},"name":"gpu"}]}}}"#;
    let line = format!("PATCH {CLAIMS}/c1?fieldManager=kubectl-client-side-apply&fieldValidation=Strict");
    let unchanged = server.ask(&line, negotiate::STRATEGIC_PATCH, again);
    assert_eq!(
        (unchanged.code, &unchanged.body["metadata"]["resourceVersion"]),
        (200, &json!("1"))
    );

    let line = format!("PATCH {CLAIMS}/c1?fieldManager=kubectl-label");
    let labelled = server.ask(&line, negotiate::MERGE_PATCH, r#"{"metadata":{"labels":{"a":"b"}}}"#);
    assert_eq!(labelled.body["metadata"]["labels"], json!({"a": "b", "app": "x"}));

    let status = r#"{"status":{"allocation":{"devices":{"results":[{"request":"gpu","driver":"d","pool":"p","device":"0"}]}}},
                     "metadata":{"labels":{"dropped":"y"}}}"#;
    let allocated = server.ask(&format!("PATCH {CLAIMS}/c1/status"), negotiate::MERGE_PATCH, status);
    assert_eq!(allocated.body["status"]["allocation"]["devices"]["results"][0]["pool"], "p");
    assert_eq!(allocated.body["metadata"]["labels"], labelled.body["metadata"]["labels"]);

    // A stale PUT loses; one that is not keeps the status.
    assert_eq!(
        server.ask(&format!("PUT {CLAIMS}/c1"), JSON, &labelled.body.to_string()).code,
        409
    );
    let mut put = allocated.body.clone();
    put["status"] = Value::Null;
    put["metadata"]["finalizers"] = json!(["example.com/x"]);
    let put = server.ask(&format!("PUT {CLAIMS}/c1"), JSON, &put.to_string());
    assert_eq!((put.code, &put.body["status"]), (200, &allocated.body["status"]));

    let line = format!("DELETE {CLAIMS}/c1");
    let marked = server.ask(&line, JSON, r#"{"propagationPolicy":"Background"}"#);
    assert_eq!(marked.body["metadata"]["deletionTimestamp"], "2026-12-01T12:00:00Z");
    let conflict = server.ask(&format!("POST {CLAIMS}"), JSON, &claim());
    assert!(
        conflict.body["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("object is being deleted: "))
    );
    let line = format!("PATCH {CLAIMS}/c1?fieldManager=kubectl-patch");
    assert_eq!(
        server
            .ask(&line, negotiate::MERGE_PATCH, r#"{"metadata":{"finalizers":null}}"#)
            .code,
        200
    );
    let gone = server.ask(&format!("GET {CLAIMS}/c1"), JSON, "");
    assert_eq!(gone.body["message"], "resourceclaims.resource.k8s.io \"c1\" not found");
    assert_eq!(
        server.events,
        [
            "ADDED c1",
            "MODIFIED c1",
            "MODIFIED c1",
            "MODIFIED c1",
            "MODIFIED c1",
            "DELETED c1"
        ]
    );
}

#[test]
fn unknown_fields_are_refused_warned_of_or_ignored() {
    let bad = claim().replace("\"deviceClassName\"", "\"bogus\":1,\"deviceClassName\"");
    let mut server = Server::default();
    let strict = server.ask(&format!("POST {CLAIMS}?fieldValidation=Strict"), JSON, &bad);
    let text = "ResourceClaim in version \"v1\" cannot be handled as a ResourceClaim: strict decoding error: unknown field \
                \"spec.devices.requests[0].exactly.bogus\"";
    assert_eq!((strict.code, &strict.body["message"]), (400, &json!(text)));
    // The size that a real server answered with.
    assert_eq!(strict.body.to_string().len() + 1, 264);
    let warned = server.ask(&format!("POST {CLAIMS}?fieldValidation=Warn"), JSON, &bad);
    assert_eq!(warned.code, 201);
    let wanted = r#"299 - "unknown field \"spec.devices.requests[0].exactly.bogus\"""#;
    assert_eq!(warned.warnings, [wanted]);
    let ignored = server.ask(
        &format!("PATCH {CLAIMS}/c1?fieldValidation=Ignore"),
        negotiate::MERGE_PATCH,
        r#"{"spec":{"zz":1}}"#,
    );
    assert_eq!((ignored.code, ignored.warnings.len()), (200, 0));
}

#[test]
fn slices_of_a_driver_come_and_go() {
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let mut server = Server::default();
    let slice = json!({"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1",
                       "metadata": {"generateName": "00001-gpu.example.com-node-a-"},
                       "spec": {"driver": "gpu.example.com", "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
                                "nodeName": "node-a"}});
    let created = server.ask(&format!("POST {slices}"), JSON, &slice.to_string());
    assert_eq!(created.body["metadata"]["generation"], 1);
    let name = created.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    assert!(name.starts_with("00001-gpu.example.com-node-a-") && name.len() == 34);
    let mut changed = created.body.clone();
    changed["spec"]["pool"]["generation"] = json!(2);
    let changed = server.ask(&format!("PUT {slices}/{name}"), JSON, &changed.to_string());
    assert_eq!((changed.code, &changed.body["metadata"]["generation"]), (200, &json!(2)));

    let delete = |version: &Value| {
        let uid = &created.body["metadata"]["uid"];
        let preconditions = json!({"uid": uid, "resourceVersion": version});
        json!({"kind": "DeleteOptions", "apiVersion": "resource.k8s.io/v1", "preconditions": preconditions}).to_string()
    };
    let line = format!("DELETE {slices}/{name}");
    assert_eq!(server.ask(&line, JSON, &delete(&json!("1"))).code, 409);
    let deleted = server.ask(&line, JSON, &delete(&changed.body["metadata"]["resourceVersion"]));
    assert_eq!((deleted.code, &deleted.body["kind"]), (200, &json!("ResourceSlice")));
    assert_eq!(server.ask(&line, JSON, &delete(&json!("2"))).code, 404);
}

#[test]
fn wrong_media_types() {
    let mut server = Server::default();
    assert_eq!(server.ask(&format!("POST {CLAIMS}"), "text/plain", &claim()).code, 415);
    let offer = Offer {
        answer: Answer::Object,
        has_protobuf: true,
    };
    assert_eq!(
        negotiate::accept(Some("application/xml"), offer).map_err(|status| status.code),
        Err(406)
    );
}
