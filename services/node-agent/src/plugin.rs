//! One instance of a driver: its socket, the service that it speaks, and the two calls with their rules.
//!
//! Source: kubelet, `pkg/kubelet/cm/dra/plugin`; the response rules are those of `PrepareResources`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use resource_api::DriverName;
use rpc::kubelet::dra_v1 as v1;
use rpc::kubelet::dra_v1::dra_plugin_client::DraPluginClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::allocation::{Allocation, AllocationKey, PreparedDevice};

/// The gRPC services that drivers name when they register, of those that are spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    V1,
}

impl Service {
    /// The first of the driver's `supported_versions` that is spoken here: the driver decides what it prefers.
    pub(crate) fn first_known(tags: &[String]) -> Option<Self> {
        tags.iter().find_map(|tag| match tag.as_str() {
            "v1.DRAPlugin" => Some(Self::V1),
            _ => None,
        })
    }
}

/// A registered instance; cheap to clone. Connects when it is called and again when it was lost.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    pub(crate) driver: DriverName,
    pub(crate) endpoint: PathBuf,
    service: Service,
    channel: Channel,
    timeout: Duration,
}

/// A call that did not succeed; the driver may have done all, a part or nothing of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("DRA driver {0} is not registered")]
    NotRegistered(DriverName),
    #[error("{method}: no answer within {after:?}")]
    Timeout { method: &'static str, after: Duration },
    #[error("{method}: {}: {}", .status.code(), .status.message())]
    Grpc { method: &'static str, status: Box<Status> },
    #[error("{method} returned result for unknown claim UID {uid}")]
    UnknownClaim { method: &'static str, uid: String },
    #[error("{method} skipped 1 ResourceClaims")]
    Skipped { method: &'static str },
    #[error("{method} failed for ResourceClaim {claim}: {message}")]
    Refused {
        method: &'static str,
        claim: String,
        message: String,
    },
}

const PREPARE: &str = "NodePrepareResources";
const UNPREPARE: &str = "NodeUnprepareResources";

impl Plugin {
    /// For the socket at `endpoint`. Inside the runtime. Error: not a path for a socket.
    pub(crate) fn new(
        driver: DriverName,
        endpoint: PathBuf,
        service: Service,
        timeout: Duration,
    ) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::from_shared(format!("unix:{}", endpoint.display()))?.connect_lazy();
        Ok(Self {
            driver,
            endpoint,
            service,
            channel,
            timeout,
        })
    }

    /// Prepares a claim's devices of this driver. Repeating it yields the same devices.
    pub(crate) async fn prepare(&self, key: AllocationKey, allocation: &Allocation) -> Result<Vec<PreparedDevice>, CallError> {
        let Service::V1 = self.service;
        let request = v1::NodePrepareResourcesRequest {
            claims: vec![claim(key, allocation)],
        };
        let mut client = DraPluginClient::new(self.channel.clone());
        let response = self
            .within(PREPARE, client.node_prepare_resources(self.request(request)))
            .await?;
        let answer = only(PREPARE, key, response.claims)?;
        refused(PREPARE, allocation, answer.error)?;
        Ok(answer.devices.into_iter().map(prepared).collect())
    }

    /// Unprepares a claim's devices of this driver; a claim that the driver does not know is a success.
    pub(crate) async fn unprepare(&self, key: AllocationKey, allocation: &Allocation) -> Result<(), CallError> {
        let Service::V1 = self.service;
        let request = v1::NodeUnprepareResourcesRequest {
            claims: vec![claim(key, allocation)],
        };
        let mut client = DraPluginClient::new(self.channel.clone());
        let response = self
            .within(UNPREPARE, client.node_unprepare_resources(self.request(request)))
            .await?;
        let answer = only(UNPREPARE, key, response.claims)?;
        refused(UNPREPARE, allocation, answer.error)
    }

    /// Drivers read the claim themselves, within the trace if they know traces.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        if let Some(trace) = chassis::telemetry::current_traceparent().and_then(|text| text.parse().ok()) {
            request.metadata_mut().insert("traceparent", trace);
        }
        request
    }

    /// The driver gets the deadline with the call; a driver that ignores it is left alone when it has passed.
    async fn within<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(CallError::Grpc {
                method,
                status: Box::new(status),
            }),
            Err(_) => Err(CallError::Timeout {
                method,
                after: self.timeout,
            }),
        }
    }
}

impl CallError {
    /// Nobody is at the socket: another instance of the driver may be at its own.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Grpc { status, .. } if status.code() == tonic::Code::Unavailable)
    }

    /// The gRPC code, as a label of metrics.
    pub(crate) fn code(&self) -> tonic::Code {
        match self {
            Self::Grpc { status, .. } => status.code(),
            Self::Timeout { .. } => tonic::Code::DeadlineExceeded,
            Self::NotRegistered(_) => tonic::Code::Unavailable,
            // The call itself went well.
            Self::UnknownClaim { .. } | Self::Skipped { .. } | Self::Refused { .. } => tonic::Code::Ok,
        }
    }
}

fn claim(key: AllocationKey, allocation: &Allocation) -> v1::Claim {
    v1::Claim {
        namespace: allocation.namespace.clone(),
        uid: key.claim.to_string(),
        name: allocation.name.clone(),
    }
}

/// Exactly one entry per claim that was asked for.
fn only<T>(method: &'static str, key: AllocationKey, mut claims: HashMap<String, T>) -> Result<T, CallError> {
    let answer = claims.remove(&key.claim.to_string());
    if let Some(uid) = claims.into_keys().min() {
        return Err(CallError::UnknownClaim { method, uid });
    }
    answer.ok_or(CallError::Skipped { method })
}

fn refused(method: &'static str, allocation: &Allocation, message: String) -> Result<(), CallError> {
    if message.is_empty() {
        Ok(())
    } else {
        Err(CallError::Refused {
            method,
            claim: allocation.name.clone(),
            message,
        })
    }
}

fn prepared(device: v1::Device) -> PreparedDevice {
    PreparedDevice {
        pool: device.pool_name.into(),
        device: device.device_name.into(),
        cdi_device_ids: device.cdi_device_ids,
        request_names: device.request_names,
        share_id: device.share_id,
    }
}
