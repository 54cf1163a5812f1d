//! A driver without devices, for demonstrations, load and tests: it registers, prepares and publishes like a real one.
//!
//! It speaks the kubelet's plugin API on real sockets, reads each claim from the server before preparing it (as drivers do
//! that are built on upstream's library), and names devices `<driver>/gpu=<pool>-<device>`. Prepared claims may be kept on disk.

mod service;
mod store;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chassis::Backoff;
use resource_api::device::{Device, DeviceAttribute};
use resource_api::{DriverName, PoolName};
use rpc::dray::v1 as pb;
use rpc::kubelet::dra_v1::dra_plugin_server::DraPluginServer;
use rpc::kubelet::registration::registration_server::RegistrationServer;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;

use crate::server::Server;
use crate::{AgentError, server_at};
use service::{Driver, Registration};

pub(crate) use service::cdi_id;
pub use service::{Record, Shown};

const PUBLISH_RETRY_FIRST: Duration = Duration::from_millis(200);
const PUBLISH_RETRY_CAP: Duration = Duration::from_secs(10);

/// Settings of `dray sim-driver`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The driver's name, e.g. `gpu.dray.example`.
    pub driver: DriverName,
    /// The node it runs on; its pool is named after it.
    pub node: String,
    /// Address of ingest, `http://host:port`.
    pub server: String,
    /// Where the agent looks for registration sockets.
    pub plugins_registry: PathBuf,
    /// The driver's own folder; its socket and, if `durable`, its prepared claims are there.
    pub plugin_dir: PathBuf,
    /// Whether prepared claims survive a restart of the driver.
    pub durable: bool,
    /// Devices `gpu-0` … on the node; none: nothing is published.
    pub devices: u32,
    /// The attribute `model` of each device.
    pub model: String,
    pub faults: Faults,
}

/// What goes wrong on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How long each call takes.
    pub latency: Duration,
    /// The first so many prepares are refused.
    pub refuse_prepares: u32,
    /// The first so many unprepares are refused.
    pub refuse_unprepares: u32,
    /// Every n-th prepare is refused; 0: none.
    pub refuse_every: u32,
    /// The first so many answers to prepares have no entry for the claim.
    pub skip_prepares: u32,
}

impl Config {
    /// Eight devices, no faults; sockets in the kubelet's folders.
    pub fn new(driver: impl Into<DriverName>, node: impl Into<String>, server: impl Into<String>) -> Self {
        let driver = driver.into();
        Self {
            plugin_dir: Path::new("/var/lib/kubelet/plugins").join(driver.as_str()),
            driver,
            node: node.into(),
            server: server.into(),
            plugins_registry: "/var/lib/kubelet/plugins_registry".into(),
            durable: false,
            devices: 8,
            model: "SIM-100".to_owned(),
            faults: Faults::default(),
        }
    }
}

/// A driver that listens on its sockets.
#[derive(Debug)]
pub struct SimDriver {
    config: Config,
    server: Server,
    driver: Arc<Driver>,
    plugin: UnixListener,
    registration: UnixListener,
}

/// Makes the sockets, so that the agent finds them once [`SimDriver::run`] serves them. Waits for no server.
pub async fn connect(config: Config) -> Result<SimDriver, AgentError> {
    let server = server_at(&config.server)?;
    let endpoint = config.plugin_dir.join("dra.sock");
    let store = config.durable.then(|| config.plugin_dir.join("prepared.json"));
    let plugin = listen(&endpoint)?;
    let driver = Driver::new(config.driver.clone(), server.clone(), config.faults.clone(), store.as_deref());
    let driver = driver.map_err(|source| AgentError::Socket {
        path: config.plugin_dir.display().to_string(),
        source,
    })?;
    // Last: who finds this socket may call the other one.
    let registration = listen(&config.plugins_registry.join(format!("{}-reg.sock", config.driver)))?;
    Ok(SimDriver {
        config,
        server,
        driver: Arc::new(driver),
        plugin,
        registration,
    })
}

/// A socket left behind by a driver that was killed is replaced.
fn listen(path: &Path) -> Result<UnixListener, AgentError> {
    let failed = |source| AgentError::Socket {
        path: path.display().to_string(),
        source,
    };
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    if path.exists() {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    Ok(listener)
}

impl SimDriver {
    /// What it has prepared and which calls it got; stays valid while it runs.
    pub fn shown(&self) -> Shown {
        Shown::new(Arc::clone(&self.driver))
    }

    /// Serves and publishes until `stop`; then removes its sockets. The published pool stays, as with real drivers.
    pub async fn run(self, stop: CancellationToken) -> Result<(), AgentError> {
        let Self {
            config,
            server,
            driver,
            plugin,
            registration,
        } = self;
        let endpoint = config.plugin_dir.join("dra.sock");
        let told = Registration::new(config.driver.clone(), endpoint.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(
            tonic::transport::Server::builder().add_service(DraPluginServer::from_arc(driver)),
            plugin,
            stop.clone(),
        ));
        tasks.spawn(serve(
            tonic::transport::Server::builder().add_service(RegistrationServer::new(told)),
            registration,
            stop.clone(),
        ));
        tasks.spawn(publish(server, pool(&config), stop.clone()));
        let ended = crate::join(tasks, stop).await;
        for socket in [config.plugins_registry.join(format!("{}-reg.sock", config.driver)), endpoint] {
            // A successor may have replaced it already.
            std::fs::remove_file(socket).ok();
        }
        ended
    }
}

async fn serve(router: tonic::transport::server::Router, listener: UnixListener, stop: CancellationToken) {
    let served = router
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a driver socket is not served any more"
        );
    }
}

/// One pool of equal devices, on the driver's node alone.
fn pool(config: &Config) -> pb::PublishPoolRequest {
    pb::PublishPoolRequest {
        driver: config.driver.to_string(),
        pool: config.node.clone(),
        reach: Some(pb::publish_pool_request::Reach::NodeName(config.node.clone())),
        devices: devices(config.devices, &config.model),
    }
}

/// `gpu-0` … with the attributes `index` and `model`, as messages.
pub(crate) fn devices(count: u32, model: &str) -> Vec<rpc::resource_v1::Device> {
    let device = |index: u32| {
        let attributes = BTreeMap::from([
            (
                "index".to_owned(),
                DeviceAttribute {
                    int: Some(index.into()),
                    ..DeviceAttribute::default()
                },
            ),
            (
                "model".to_owned(),
                DeviceAttribute {
                    string: Some(model.into()),
                    ..DeviceAttribute::default()
                },
            ),
        ]);
        Device {
            name: format!("gpu-{index}").as_str().into(),
            attributes,
            ..Device::default()
        }
    };
    let message = |index| rpc::convert::device_message(&device(index)).expect("a device of an integer and a text is a message");
    (0..count).map(message).collect()
}

/// Publishes until it worked; then waits for `stop`, as a driver lives as long as its service.
async fn publish(server: Server, pool: pb::PublishPoolRequest, stop: CancellationToken) {
    let mut backoff = Backoff::new(PUBLISH_RETRY_FIRST, PUBLISH_RETRY_CAP);
    let name = PoolName::from(pool.pool.as_str());
    while !pool.devices.is_empty() && !stop.is_cancelled() {
        match server.publish(pool.clone()).await {
            Ok(published) => {
                tracing::info!(pool = %name, devices = pool.devices.len(), generation = published.generation, "pool published");
                break;
            }
            Err(status) => {
                tracing::warn!(pool = %name, code = %status.code(), message = status.message(), "pool not published; trying again")
            }
        }
        let wait = backoff.next_wait(&mut rand::rng());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
    stop.cancelled().await;
}
