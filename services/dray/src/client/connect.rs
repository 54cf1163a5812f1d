//! The connection to ingest, and the deadline that every call carries.

use std::time::Duration;

use anyhow::Context;
use rpc::dray::v1::gates_client::GatesClient;
use rpc::dray::v1::log_client::LogClient;
use rpc::dray::v1::objects_client::ObjectsClient;
use rpc::dray::v1::pools_client::PoolsClient;
use rpc::dray::v1::units_client::UnitsClient;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

/// A page of 5,000 objects is some megabytes; gRPC's own limit is 4 MiB.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent connection is probed after this time, so that a follower notices a server that is gone.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);

/// Where the server is and how long a call may take.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address of ingest.
    #[arg(
        long,
        env = "DRAY_SERVER",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL",
        help_heading = "Server"
    )]
    pub(crate) server: String,
    /// Longest time for one call.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration, value_name = "DURATION", help_heading = "Server")]
    pub(crate) timeout: Duration,
}

/// A client of one server; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    /// Connects, so that a wrong address is an error here and not in the first call.
    pub(crate) async fn connect(args: &ServerArgs) -> anyhow::Result<Self> {
        let server = if args.server.contains("://") {
            args.server.clone()
        } else {
            format!("http://{}", args.server)
        };
        let endpoint = Endpoint::from_shared(server.clone()).with_context(|| format!("{server:?} is not an address"))?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY);
        let channel = endpoint.connect().await.map_err(|_| Unreachable { server })?;
        Ok(Self {
            channel,
            timeout: args.timeout,
        })
    }

    /// A request that must be answered within the usual time.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        self.request_within(self.timeout, message)
    }

    /// A request that must be answered within `timeout`. Streams carry no deadline: they are plain `Request::new`.
    pub(crate) fn request_within<T>(&self, timeout: Duration, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(timeout);
        request
    }

    pub(crate) fn units(&self) -> UnitsClient<Channel> {
        UnitsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn objects(&self) -> ObjectsClient<Channel> {
        ObjectsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn pools(&self) -> PoolsClient<Channel> {
        PoolsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn gates(&self) -> GatesClient<Channel> {
        GatesClient::new(self.channel.clone())
    }

    pub(crate) fn log(&self) -> LogClient<Channel> {
        LogClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// Nobody answers at the address.
#[derive(Debug, thiserror::Error)]
#[error("no server answers at {server}")]
pub(crate) struct Unreachable {
    server: String,
}
