//! The Kubernetes REST API, for clients that know nothing of Dray. What is decided is in `apiserver`; here is what it takes to
//! carry it out: connections, credentials, the store, caches.

mod cache;
mod documents;
mod kinds;
mod object;
mod read;
mod respond;
mod reviews;
mod serve;
mod watch;
mod write;

use std::sync::{Arc, OnceLock};

use apiserver::authz::{Attributes, User};
use apiserver::negotiate::{self, Accepted, Answer, Offer};
use apiserver::openapi;
use apiserver::request::{self, Incoming, Operation, Refusal, ResourceRequest, Target};
use apiserver::resources::{Catalog, ResourceType};
use apiserver::schema::Schema;
use apiserver::status::Status;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming as IncomingBody};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::auth::credentials::Access;
use crate::auth::roles::{self, Decision};
use crate::grpc::Context;

pub(crate) use cache::Caches;
use respond::header_text;
use serve::{Body, Peer};

/// Groups that are served.
const GROUPS: [&str; 5] = [
    "",
    "resource.k8s.io",
    "coordination.k8s.io",
    "scheduling.k8s.io",
    "authorization.k8s.io",
];
/// Of these groups, what is not.
const LEFT_OUT: [&str; 3] = ["secrets", "bindings", "resourceclaims/binding"];

/// Namespaces that are there from the start.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-node-lease", "kube-public"];

/// Serves requests; cheap to clone.
#[derive(Clone)]
pub(crate) struct Rest(Arc<Parts>);

struct Parts {
    context: Context,
    caches: Caches,
    catalog: Catalog,
    /// The documents of the catalog; made when they are first asked for.
    openapi: OnceLock<Vec<openapi::Document>>,
    access: Access,
    /// Plain HTTP: clients show no credentials there, so everybody may do everything.
    is_open: bool,
}

/// One request, read.
struct Call {
    user: User,
    decision: Decision,
    accept: Option<String>,
    content_type: Option<String>,
    if_none_match: Option<String>,
    trace: Option<Arc<str>>,
    body: Bytes,
}

impl Parts {
    /// The OpenAPI documents of what is served.
    fn openapi(&self) -> Result<&[openapi::Document], Status> {
        if let Some(known) = self.openapi.get() {
            return Ok(known);
        }
        let made = openapi::documents(Schema::builtin(), &self.catalog).map_err(|error| Status::internal(error.to_string()))?;
        Ok(self.openapi.get_or_init(|| made))
    }
}

impl Call {
    /// What the server does on its own.
    fn of_server() -> Self {
        Self {
            user: User {
                name: "system:dray".to_owned(),
                ..User::default()
            },
            decision: Decision::Allowed,
            accept: None,
            content_type: None,
            if_none_match: None,
            trace: None,
            body: Bytes::new(),
        }
    }
}

impl Rest {
    pub(crate) fn new(context: Context, caches: Caches, access: Access, is_open: bool) -> Self {
        let is_served = |resource: &ResourceType| {
            GROUPS.contains(&resource.group.as_str()) && !LEFT_OUT.contains(&resource.plural.as_str()) && !is_unfinished(resource)
        };
        Self(Arc::new(Parts {
            context,
            caches,
            catalog: Catalog::standard(is_served),
            openapi: OnceLock::new(),
            access,
            is_open,
        }))
    }

    /// Makes the namespaces that clients take for granted, unless they are there.
    pub(crate) async fn make_namespaces(&self) {
        for name in NAMESPACES {
            if let Err(status) = write::make_namespace(&self.0, name).await {
                tracing::warn!(namespace = name, error = %status.message, "a namespace cannot be made; clients can make it");
            }
        }
    }

    /// Serves until the context's stop. `tls`: `None` serves plain HTTP.
    pub(crate) async fn serve(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let stop = self.0.context.stop.clone();
        let answer = move |peer: Peer, request: Request<IncomingBody>| {
            let rest = self.clone();
            async move { rest.answer(peer, request).await }
        };
        serve::serve(listener, tls, answer, stop).await;
    }

    async fn answer(&self, peer: Peer, request: Request<IncomingBody>) -> Response<Body> {
        let accept = header_text(request.headers(), header::ACCEPT).map(str::to_owned);
        match self.try_answer(&peer, request, accept.clone()).await {
            Ok(response) => response,
            Err(Refusal::Status(status)) => respond::status(&status, accept.as_deref()),
            Err(Refusal::PageNotFound) => respond::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn try_answer(
        &self,
        peer: &Peer,
        request: Request<IncomingBody>,
        accept: Option<String>,
    ) -> Result<Response<Body>, Refusal> {
        let (head, body) = request.into_parts();
        let text = |name| header_text(&head.headers, name).map(str::to_owned);
        let user = self.who(peer, text(header::AUTHORIZATION).as_deref())?;
        let (method, path, query) = (head.method.as_str(), head.uri.path(), head.uri.query().unwrap_or_default());
        let target = Target::parse(method, path, query)?;
        let decision = self.authorize(&user, &target)?;
        let (content_type, user_agent) = (text(header::CONTENT_TYPE), text(header::USER_AGENT));
        let incoming = Incoming {
            method,
            path,
            query,
            content_type: content_type.as_deref(),
            user_agent: user_agent.as_deref(),
        };
        let understood = request::resolve(&target, &incoming, &self.0.catalog)?;
        let mut call = Call {
            user,
            decision,
            accept,
            content_type,
            if_none_match: text(header::IF_NONE_MATCH),
            trace: head
                .headers
                .get("traceparent")
                .and_then(|value| value.to_str().ok())
                .map(Into::into),
            body: Bytes::new(),
        };
        match understood {
            request::Request::Document(document) => Ok(documents::answer(&self.0, &document, &call)?),
            request::Request::Resource(resource) => {
                if !matches!(
                    resource.operation,
                    Operation::Get { .. } | Operation::List(_) | Operation::Watch(_)
                ) {
                    call.body = read_body(body).await?;
                }
                Ok(self.carry_out(*resource, &target, call).await?)
            }
        }
    }

    fn who(&self, peer: &Peer, authorization: Option<&str>) -> Result<User, Status> {
        let certificate = peer.certificate.as_ref().map(|certificate| certificate.as_ref());
        self.0.access.who(authorization, certificate).map_err(|_| {
            tracing::warn!(address = %peer.address, "refused: the credentials are not known");
            Status::unauthorized()
        })
    }

    fn authorize(&self, user: &User, target: &Target) -> Result<Decision, Status> {
        if self.0.is_open {
            return Ok(Decision::Allowed);
        }
        let wanted = Attributes::of(target);
        let decision = roles::decide(user, &self.0.access.bindings, &wanted);
        let Decision::Denied(why) = &decision else {
            return Ok(decision);
        };
        tracing::warn!(user = %user.name, ?wanted, why, "refused: not allowed");
        Err(wanted.forbidden(user, ""))
    }

    async fn carry_out(&self, request: ResourceRequest, target: &Target, call: Call) -> Result<Response<Body>, Status> {
        let answer = match request.operation {
            Operation::List(_) => Answer::List,
            Operation::Watch(_) => Answer::Watch,
            Operation::DeleteCollection(..) => Answer::List,
            _ => Answer::Object,
        };
        let offer = Offer {
            answer,
            has_protobuf: !request.resource.is_custom,
        };
        let mut accepted: Accepted = negotiate::accept(call.accept.as_deref(), offer)?;
        accepted.is_pretty |= request.is_pretty;
        let parts = &*self.0;
        match &request.operation {
            Operation::Get { .. } => read::get(parts, &request, target, accepted).await,
            Operation::List(options) => read::list(parts, &request, options, target, accepted).await,
            Operation::Watch(options) => watch::watch(parts, &request, options, target, accepted).await,
            Operation::Create(options) => write::create(parts, &request, options, &call, accepted).await,
            Operation::Update(options) => write::update(parts, &request, options, &call, accepted).await,
            Operation::Patch(options) => write::patch(parts, &request, options, &call, accepted).await,
            Operation::Delete(options) => write::delete(parts, &request, options, &call, accepted).await,
            Operation::DeleteCollection(list, options) => {
                write::delete_collection(parts, &request, list, options, &call, accepted).await
            }
        }
    }
}

/// What would be promised and not kept yet.
fn is_unfinished(resource: &ResourceType) -> bool {
    resource.plural == "resourcepoolstatusrequests"
}

async fn read_body(body: IncomingBody) -> Result<Bytes, Status> {
    let limited = Limited::new(body, apiserver::body::BODY_BYTES_MAX + 1);
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Status::too_large(apiserver::body::BODY_BYTES_MAX)),
        Err(error) => Err(Status::bad_request(format!("the body cannot be read: {error}"))),
    }
}

/// What a store or its writer said, as clients of this API know it.
fn from_grpc(status: &tonic::Status) -> Status {
    match status.code() {
        tonic::Code::ResourceExhausted => Status::too_many_requests(status.message(), 1),
        tonic::Code::Unavailable => Status::unavailable(status.message(), 1),
        tonic::Code::DeadlineExceeded => Status::timeout(status.message(), Some(1)),
        tonic::Code::InvalidArgument | tonic::Code::FailedPrecondition => Status::bad_request(status.message()),
        _ => Status::internal(status.message()),
    }
}

fn from_store(error: store::StoreError) -> Status {
    from_grpc(&crate::error::from_store(error))
}
