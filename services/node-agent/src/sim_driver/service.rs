//! The gRPC services of the simulated driver, and what can be seen of it from outside.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resource_api::DriverName;
use resource_api::claim::ResourceClaim;
use rpc::kubelet::dra_v1 as v1;
use rpc::kubelet::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use tonic::{Request, Response, Status};

use super::Faults;
use super::store::{Prepared, Store};
use crate::server::Server;

/// Calls that are remembered for [`Shown`]; the oldest are forgotten.
const RECORDS_MAX: usize = 100_000;

/// A call that the driver got, or finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    PrepareBegan(String),
    PrepareDone(String),
    PrepareRefused(String),
    UnprepareBegan(String),
    UnprepareDone(String),
    UnprepareRefused(String),
}

/// A look at a running driver.
#[derive(Clone, Debug)]
pub struct Shown(Arc<Driver>);

impl Shown {
    pub(super) fn new(driver: Arc<Driver>) -> Self {
        Self(driver)
    }

    /// Uids of the prepared claims, sorted.
    pub fn prepared(&self) -> Vec<String> {
        self.0.inner().store.uids()
    }

    /// The calls so far, in order of what happened.
    pub fn records(&self) -> Vec<Record> {
        self.0.inner().records.iter().cloned().collect()
    }

    /// From now on these go wrong; counts begin anew.
    pub fn set_faults(&self, faults: Faults) {
        self.0.inner().faults = faults;
    }
}

/// The driver's state, behind both calls.
#[derive(Debug)]
pub(super) struct Driver {
    name: DriverName,
    server: Server,
    inner: Mutex<Inner>,
    /// Calls take turns, as in drivers that are built on upstream's library.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    faults: Faults,
    prepares: u32,
    records: VecDeque<Record>,
}

impl Inner {
    fn record(&mut self, record: Record) {
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    /// Whether this prepare is one that goes wrong.
    fn refuses_prepare(&mut self) -> bool {
        self.prepares = self.prepares.saturating_add(1);
        let every = self.faults.refuse_every;
        (every > 0 && self.prepares.is_multiple_of(every)) || take_one(&mut self.faults.refuse_prepares)
    }
}

fn take_one(count: &mut u32) -> bool {
    let any = *count > 0;
    *count = count.saturating_sub(1);
    any
}

impl Driver {
    pub(super) fn new(name: DriverName, server: Server, faults: Faults, store: Option<&Path>) -> std::io::Result<Self> {
        let inner = Inner {
            store: Store::open(store)?,
            faults,
            prepares: 0,
            records: VecDeque::new(),
        };
        Ok(Self {
            name,
            server,
            inner: Mutex::new(inner),
            turn: tokio::sync::Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_time(&self) {
        let latency = self.inner().faults.latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }

    /// This driver's devices of the claim. Errors fail the whole call, with upstream's texts.
    async fn devices_of(&self, claim: &v1::Claim) -> Result<Vec<Prepared>, Status> {
        let failed = |why: String| Status::unknown(format!("get resource claims: {why}"));
        let named = format!("{}/{}", claim.namespace, claim.name);
        let json = self.server.claim(&claim.namespace, &claim.name).await;
        let json = json.map_err(|status| failed(format!("retrieve claim {named}: {}", status.message())))?;
        let found: ResourceClaim = serde_json::from_slice(&json).map_err(|error| failed(format!("claim {named}: {error}")))?;
        if found.metadata.uid.is_none_or(|uid| uid.to_string() != claim.uid) {
            return Err(failed(format!("claim {named} got replaced")));
        }
        let allocation = found
            .status
            .allocation
            .ok_or_else(|| failed(format!("claim {named} not allocated")))?;
        let ours = allocation
            .devices
            .results
            .into_iter()
            .filter(|result| result.driver == self.name);
        let prepared = ours.map(|result| Prepared {
            // Drivers answer with the request's base name.
            request: result.request.split('/').next().unwrap_or_default().to_owned(),
            pool: result.pool.to_string(),
            device: result.device.to_string(),
        });
        Ok(prepared.collect())
    }

    fn prepare(&self, uid: &str, devices: Vec<Prepared>) -> v1::NodePrepareResourceResponse {
        let mut inner = self.inner();
        if inner.refuses_prepare() {
            inner.record(Record::PrepareRefused(uid.to_owned()));
            return v1::NodePrepareResourceResponse {
                error: "refused on purpose".to_owned(),
                ..Default::default()
            };
        }
        // Repeating a prepare yields what the first one did.
        let devices = inner.store.get(uid).cloned().unwrap_or(devices);
        if let Err(error) = inner.store.insert(uid, devices.clone()) {
            return v1::NodePrepareResourceResponse {
                error: error.to_string(),
                ..Default::default()
            };
        }
        inner.record(Record::PrepareDone(uid.to_owned()));
        v1::NodePrepareResourceResponse {
            devices: devices.into_iter().map(|device| message(&self.name, device)).collect(),
            error: String::new(),
        }
    }

    fn unprepare(&self, uid: &str) -> v1::NodeUnprepareResourceResponse {
        let mut inner = self.inner();
        let refused = take_one(&mut inner.faults.refuse_unprepares);
        let done = if refused {
            Err("refused on purpose".to_owned())
        } else {
            inner.store.remove(uid).map_err(|error| error.to_string())
        };
        inner.record(if done.is_ok() {
            Record::UnprepareDone(uid.to_owned())
        } else {
            Record::UnprepareRefused(uid.to_owned())
        });
        v1::NodeUnprepareResourceResponse {
            error: done.err().unwrap_or_default(),
        }
    }
}

fn message(driver: &DriverName, device: Prepared) -> v1::Device {
    v1::Device {
        request_names: vec![device.request],
        cdi_device_ids: vec![cdi_id(driver, &device.pool, &device.device)],
        pool_name: device.pool,
        device_name: device.device,
        share_id: None,
    }
}

/// The CDI id of a simulated device, the same each time: `<driver>/gpu=<pool>-<device>`. A pool's name may have slashes,
/// which the name of a CDI device may not.
pub(crate) fn cdi_id(driver: &str, pool: &str, device: &str) -> String {
    format!("{driver}/gpu={}-{device}", pool.replace('/', "_"))
}

#[tonic::async_trait]
impl v1::dra_plugin_server::DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let _turn = self.turn.lock().await;
            self.inner().record(Record::PrepareBegan(claim.uid.clone()));
            let devices = self.devices_of(&claim).await?;
            self.take_time().await;
            let answer = self.prepare(&claim.uid, devices);
            if !take_one(&mut self.inner().faults.skip_prepares) {
                claims.insert(claim.uid, answer);
            }
        }
        Ok(Response::new(v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let _turn = self.turn.lock().await;
            self.inner().record(Record::UnprepareBegan(claim.uid.clone()));
            self.take_time().await;
            claims.insert(claim.uid.clone(), self.unprepare(&claim.uid));
        }
        Ok(Response::new(v1::NodeUnprepareResourcesResponse { claims }))
    }
}

/// Says who the driver is, and hears how the agent liked it.
#[derive(Debug)]
pub(super) struct Registration {
    driver: DriverName,
    endpoint: PathBuf,
}

impl Registration {
    pub(super) fn new(driver: DriverName, endpoint: PathBuf) -> Self {
        Self { driver, endpoint }
    }
}

#[tonic::async_trait]
impl rpc::kubelet::registration::registration_server::Registration for Registration {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.driver.to_string(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if !status.plugin_registered {
            tracing::error!(driver = %self.driver, error = status.error, "the agent does not take this driver");
            return Err(Status::failed_precondition(status.error));
        }
        tracing::info!(driver = %self.driver, "registered with the agent");
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
