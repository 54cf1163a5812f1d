//! The connection to ingest. Every call has a deadline; the stream has keep-alives, so that a dead peer is noticed.

use std::time::Duration;

use rpc::dray::v1 as pb;
use rpc::dray::v1::agents_client::AgentsClient;
use rpc::dray::v1::objects_client::ObjectsClient;
use rpc::dray::v1::pools_client::PoolsClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The list of a large fleet, and a page of slices, come in messages above gRPC's own 4 MiB.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Ingest, as agents use it; cheap to clone. Connects when it is used and again when it was lost.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    channel: Channel,
}

impl Server {
    /// For ingest at `url` (`http://host:port`, or `host:port`). Inside the runtime. Error: not an address.
    pub(crate) fn new(url: &str) -> Result<Self, tonic::transport::Error> {
        let url = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        let endpoint = Endpoint::from_shared(url)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        Ok(Self {
            channel: endpoint.connect_lazy(),
        })
    }

    pub(crate) async fn register(&self, request: pb::RegisterAgentsRequest) -> Result<(), Status> {
        self.agents().register(within(request)).await.map(drop)
    }

    pub(crate) async fn deregister(&self, agent_id: &str, nodes: Vec<String>) -> Result<(), Status> {
        let request = pb::DeregisterAgentsRequest {
            agent_id: agent_id.to_owned(),
            nodes,
        };
        self.agents().deregister(within(request)).await.map(drop)
    }

    /// Opens the stream of what is wanted. The opening has a deadline, the stream lives on.
    pub(crate) async fn desired(&self, agent_id: &str) -> Result<Streaming<pb::DesiredClaims>, Status> {
        let request = pb::DesiredRequest {
            agent_id: agent_id.to_owned(),
        };
        let mut agents = self.agents();
        let opened = tokio::time::timeout(CALL_TIMEOUT, agents.desired(request)).await;
        let opened = opened.map_err(|_| Status::deadline_exceeded("the stream was not opened in time"))?;
        opened.map(tonic::Response::into_inner)
    }

    pub(crate) async fn publish(&self, pool: pb::PublishPoolRequest) -> Result<pb::PublishPoolResponse, Status> {
        let mut pools = PoolsClient::new(self.channel.clone());
        pools.publish(within(pool)).await.map(tonic::Response::into_inner)
    }

    /// The JSON of a claim.
    pub(crate) async fn claim(&self, namespace: &str, name: &str) -> Result<Vec<u8>, Status> {
        let request = pb::GetObjectRequest {
            kind: "resourceclaims".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let mut objects = self.objects();
        objects
            .get(within(request))
            .await
            .map(|object| object.into_inner().json.to_vec())
    }

    /// Hands all objects of a kind to `each`, page by page. Returns the sequence from which on changes may be missing.
    pub(crate) async fn list(&self, kind: &str, mut each: impl FnMut(pb::Object)) -> Result<u64, Status> {
        let mut request = pb::ListObjectsRequest {
            kind: kind.to_owned(),
            ..pb::ListObjectsRequest::default()
        };
        let mut first = None;
        loop {
            let page = self.objects().list(within(request.clone())).await?.into_inner();
            page.objects.into_iter().for_each(&mut each);
            let sequence = *first.get_or_insert(page.sequence);
            if page.next_page_token.is_empty() {
                return Ok(sequence);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Opens the stream of a kind's changes after `sequence`.
    pub(crate) async fn watch(&self, kind: &str, sequence: u64) -> Result<Streaming<pb::Event>, Status> {
        let request = pb::WatchObjectsRequest {
            kind: kind.to_owned(),
            after_sequence: sequence,
            ..pb::WatchObjectsRequest::default()
        };
        let mut objects = self.objects();
        let opened = tokio::time::timeout(CALL_TIMEOUT, objects.watch(request)).await;
        let opened = opened.map_err(|_| Status::deadline_exceeded("the stream was not opened in time"))?;
        opened.map(tonic::Response::into_inner)
    }

    fn objects(&self) -> ObjectsClient<Channel> {
        ObjectsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn agents(&self) -> AgentsClient<Channel> {
        AgentsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}
