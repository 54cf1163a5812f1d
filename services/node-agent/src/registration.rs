//! Drivers come and go through sockets in the registry folder: found, asked who they are, told how it went.
//!
//! The folder is looked at once a second and whenever the kernel reports a change; the look is what counts, so a missed
//! report costs a second. Source: kubelet, `pkg/kubelet/pluginmanager` (watcher, reconciler, operation executor).

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::Watcher;
use resource_api::DriverName;
use rpc::kubelet::registration::registration_client::RegistrationClient;
use rpc::kubelet::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::plugin::{Plugin, Service};
use crate::plugins::{AlreadyRegistered, Plugins};

/// Upstream: the reconciler's `loopSleepDuration`.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// Upstream: `exponentialbackoff`, 500 ms doubling up to 2 min 2 s, per socket.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_CAP: Duration = Duration::from_secs(122);
/// Folders in the registry are looked into, this deep.
const DEPTH_MAX: usize = 8;

/// A socket file: one that was deleted and made again is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketId {
    device: u64,
    inode: u64,
    /// When it was made, since inodes are used again; where a file system does not say, when it was changed.
    made: SystemTime,
}

/// What became of a socket.
#[derive(Debug)]
enum Socket {
    Registering {
        id: SocketId,
        failures: u32,
    },
    Registered {
        id: SocketId,
        driver: DriverName,
        endpoint: PathBuf,
    },
    Failed {
        id: SocketId,
        failures: u32,
        not_before: Instant,
    },
}

impl Socket {
    fn id(&self) -> SocketId {
        match self {
            Self::Registering { id, .. } | Self::Registered { id, .. } | Self::Failed { id, .. } => *id,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error("{what}: {message}")]
    Rpc { what: &'static str, message: String },
    #[error("no handler registered for plugin type {0:?}")]
    Type(String),
    #[error("driver name {name:?}: {rule}")]
    Name { name: String, rule: String },
    #[error("none of the services {0:?} is supported; known is \"v1.DRAPlugin\"")]
    Services(Vec<String>),
    #[error("endpoint {0:?} is not the path of a socket")]
    Endpoint(String),
    #[error(transparent)]
    Taken(#[from] AlreadyRegistered),
}

type Registered = (PathBuf, Result<(DriverName, PathBuf), RegisterError>);

/// Keeps `plugins` like the folder `registry` until `stop`. The folder is made if it is not there. `call_timeout`: for
/// each call to a driver.
pub(crate) async fn run(registry: PathBuf, plugins: Plugins, call_timeout: Duration, stop: CancellationToken) {
    if let Err(error) = tokio::fs::create_dir_all(&registry).await {
        tracing::error!(registry = %registry.display(), %error, "the folder for driver sockets cannot be made; looking for it every second");
    }
    let changed = Arc::new(Notify::new());
    let _watcher = watch(&registry, Arc::clone(&changed));
    let mut sockets: BTreeMap<PathBuf, Socket> = BTreeMap::new();
    let mut registering: JoinSet<Registered> = JoinSet::new();
    loop {
        let found = look(registry.clone()).await;
        forget_gone(&mut sockets, &found, &plugins);
        for (path, id) in found {
            if let Some(failures) = due(sockets.get(&path)) {
                sockets.insert(path.clone(), Socket::Registering { id, failures });
                let plugins = plugins.clone();
                registering.spawn(async move {
                    let registered = register(&path, &plugins, call_timeout).await;
                    (path, registered)
                });
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(Ok((path, registered))) = registering.join_next() => on_registered(&mut sockets, path, registered, &plugins),
            () = changed.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
    registering.shutdown().await;
}

fn watch(registry: &Path, changed: Arc<Notify>) -> Option<notify::RecommendedWatcher> {
    // Reading the folder is an event too; looking at each look would never end.
    let on_event = move |event: notify::Result<notify::Event>| {
        if !event.is_ok_and(|event| event.kind.is_access()) {
            changed.notify_one();
        }
    };
    let watcher = notify::recommended_watcher(on_event).and_then(|mut watcher| {
        watcher.watch(registry, notify::RecursiveMode::Recursive)?;
        Ok(watcher)
    });
    watcher
        .map_err(|error| tracing::warn!(%error, "changes of driver sockets are seen within a second only"))
        .ok()
}

/// All sockets in the folder and below, without hidden ones.
async fn look(registry: PathBuf) -> BTreeMap<PathBuf, SocketId> {
    let looked = tokio::task::spawn_blocking(move || {
        let mut found = BTreeMap::new();
        find_sockets(&registry, DEPTH_MAX, &mut found);
        found
    });
    looked.await.unwrap_or_default()
}

/// What cannot be read is not there: the next look is a second away.
fn find_sockets(dir: &Path, depth: usize, found: &mut BTreeMap<PathBuf, SocketId>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else { continue };
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if metadata.is_dir() && depth > 0 {
            find_sockets(&path, depth - 1, found);
        } else if metadata.file_type().is_socket() {
            let made = metadata
                .created()
                .or_else(|_| metadata.modified())
                .unwrap_or(SystemTime::UNIX_EPOCH);
            found.insert(
                path,
                SocketId {
                    device: metadata.dev(),
                    inode: metadata.ino(),
                    made,
                },
            );
        }
    }
}

/// Unregisters what is gone or was replaced. One operation per socket: what is being registered is left until it is done.
fn forget_gone(sockets: &mut BTreeMap<PathBuf, Socket>, found: &BTreeMap<PathBuf, SocketId>, plugins: &Plugins) {
    sockets.retain(|path, socket| {
        let stays = found.get(path) == Some(&socket.id());
        match socket {
            Socket::Registering { .. } => true,
            Socket::Failed { .. } => stays,
            Socket::Registered { driver, endpoint, .. } => {
                if !stays {
                    tracing::info!(driver = %driver, endpoint = %endpoint.display(), "driver unregistered");
                    plugins.remove(driver, endpoint);
                }
                stays
            }
        }
    });
}

/// The failures so far of a socket that should be registered now.
fn due(socket: Option<&Socket>) -> Option<u32> {
    match socket {
        None => Some(0),
        Some(Socket::Failed {
            failures, not_before, ..
        }) => (*not_before <= Instant::now()).then_some(*failures),
        Some(Socket::Registering { .. } | Socket::Registered { .. }) => None,
    }
}

fn on_registered(
    sockets: &mut BTreeMap<PathBuf, Socket>,
    path: PathBuf,
    registered: Result<(DriverName, PathBuf), RegisterError>,
    plugins: &Plugins,
) {
    let Some(Socket::Registering { id, failures }) = sockets.get(&path) else {
        if let Ok((driver, endpoint)) = registered {
            plugins.remove(&driver, &endpoint);
        }
        return;
    };
    let (id, failures) = (*id, *failures);
    let socket = match registered {
        Ok((driver, endpoint)) => {
            tracing::info!(driver = %driver, endpoint = %endpoint.display(), "driver registered");
            Socket::Registered { id, driver, endpoint }
        }
        Err(error) => {
            let wait = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(failures)).min(RETRY_CAP);
            tracing::warn!(socket = %path.display(), %error, again_in = ?wait, "driver not registered");
            Socket::Failed {
                id,
                failures: failures.saturating_add(1),
                not_before: Instant::now() + wait,
            }
        }
    };
    sockets.insert(path, socket);
}

/// Registers the driver behind a socket: who it is, whether it can be used, and how that went.
async fn register(socket: &Path, plugins: &Plugins, call_timeout: Duration) -> Result<(DriverName, PathBuf), RegisterError> {
    let channel = dial(socket).await?;
    let mut client = RegistrationClient::new(channel);
    let asked = tokio::time::timeout(INFO_TIMEOUT, client.get_info(InfoRequest {})).await;
    let info = answer("GetInfo", asked)?.into_inner();
    let added = read(socket, info, call_timeout).and_then(|plugin| {
        plugins.add(plugin.clone())?;
        Ok((plugin.driver, plugin.endpoint))
    });
    let (driver, endpoint) = match added {
        Ok(added) => added,
        Err(error) => {
            // The driver's own log should have it; that it cannot be told changes nothing here.
            tell(&mut client, error.to_string()).await.ok();
            return Err(error);
        }
    };
    if let Err(error) = tell(&mut client, String::new()).await {
        plugins.remove(&driver, &endpoint);
        return Err(error);
    }
    Ok((driver, endpoint))
}

async fn dial(socket: &Path) -> Result<Channel, RegisterError> {
    let rpc = |error: tonic::transport::Error| RegisterError::Rpc {
        what: "dial",
        message: with_causes(&error),
    };
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).map_err(rpc)?;
    let dialled = tokio::time::timeout(DIAL_TIMEOUT, endpoint.connect()).await;
    dialled
        .map_err(|_| RegisterError::Rpc {
            what: "dial",
            message: format!("no answer within {DIAL_TIMEOUT:?}"),
        })?
        .map_err(rpc)
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The driver that a registration describes, if it can be used.
fn read(socket: &Path, info: PluginInfo, call_timeout: Duration) -> Result<Plugin, RegisterError> {
    if info.r#type != "DRAPlugin" {
        return Err(RegisterError::Type(info.r#type));
    }
    let name = info.name.parse::<DriverName>();
    let driver = name.map_err(|error| RegisterError::Name {
        name: error.text,
        rule: error.rule,
    })?;
    let service = Service::first_known(&info.supported_versions).ok_or(RegisterError::Services(info.supported_versions))?;
    // Empty: the driver listens on one socket for everything.
    let endpoint = if info.endpoint.is_empty() {
        socket.to_owned()
    } else {
        PathBuf::from(info.endpoint)
    };
    Plugin::new(driver, endpoint.clone(), service, call_timeout)
        .map_err(|_| RegisterError::Endpoint(endpoint.display().to_string()))
}

/// An empty `error` says that it went well.
async fn tell(client: &mut RegistrationClient<Channel>, error: String) -> Result<(), RegisterError> {
    let status = RegistrationStatus {
        plugin_registered: error.is_empty(),
        error,
    };
    let told = tokio::time::timeout(NOTIFY_TIMEOUT, client.notify_registration_status(Request::new(status))).await;
    answer("NotifyRegistrationStatus", told).map(drop)
}

fn answer<T>(
    what: &'static str,
    outcome: Result<Result<tonic::Response<T>, tonic::Status>, tokio::time::error::Elapsed>,
) -> Result<tonic::Response<T>, RegisterError> {
    match outcome {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(status)) => Err(RegisterError::Rpc {
            what,
            message: format!("{}: {}", status.code(), status.message()),
        }),
        Err(_) => Err(RegisterError::Rpc {
            what,
            message: "no answer in time".to_owned(),
        }),
    }
}
