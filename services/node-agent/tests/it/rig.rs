//! A node with its folders, its server, its controller, and parts that are started and killed by the test.

use std::path::PathBuf;
use std::time::Duration;

use bus::messages::ClaimState;
use node_agent::sim_driver::{self, Faults, Record, Shown};
use node_agent::{AgentError, Config};
use prometheus::Registry;
use tempfile::TempDir;
use testkit::eventually;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::controller::Controller;
use crate::server::Server;

pub(crate) const NODE: &str = "node-a";
pub(crate) const DRIVER: &str = "gpu.dray.example";
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) nats: testkit::Owned<embedded::Nats>,
    pub(crate) server: Server,
    pub(crate) controller: Controller,
}

/// A running agent.
pub(crate) struct Agent {
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
    pub(crate) ready: watch::Receiver<bool>,
    pub(crate) registry: Registry,
}

/// A running driver.
pub(crate) struct Driver {
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
    pub(crate) shown: Shown,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (nats, server) = tokio::join!(testkit::nats(), Server::start());
        let nats = nats.unwrap();
        let controller = Controller::start(&nats.url(), server.clone()).await;
        Self {
            dir,
            nats,
            server,
            controller,
        }
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.dir.path().join("registry")
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.dir.path().join("state/prepared.json")
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(NODE, self.server.url(), self.nats.url());
        config.plugins_registry = self.registry();
        config.state_dir = self.dir.path().join("state");
        config
    }

    pub(crate) async fn agent(&self) -> Agent {
        self.agent_with(self.config()).await
    }

    /// One that was killed keeps its folder for a moment, until its last write has ended.
    pub(crate) async fn agent_with(&self, config: Config) -> Agent {
        // A registry per try: metrics of one that failed are taken.
        let (deps, registry) = eventually(SOON, || async {
            let registry = Registry::new();
            node_agent::connect(config.clone(), registry.clone())
                .await
                .map(|deps| (deps, registry))
        })
        .await;
        let (ready, stop) = (deps.ready(), CancellationToken::new());
        Agent {
            task: tokio::spawn(node_agent::run(deps, stop.clone())),
            stop,
            ready,
            registry,
        }
    }

    pub(crate) async fn driver(&self, faults: Faults) -> Driver {
        let mut config = sim_driver::Config::new(DRIVER, NODE, self.server.url());
        config.plugins_registry = self.registry();
        config.plugin_dir = self.dir.path().join("driver");
        config.durable = true;
        config.faults = faults;
        let driver = sim_driver::connect(config).await.unwrap();
        let (shown, stop) = (driver.shown(), CancellationToken::new());
        Driver {
            task: tokio::spawn(driver.run(stop.clone())),
            stop,
            shown,
        }
    }

    pub(crate) fn allocate(&self, name: &str, device: &str) -> String {
        self.server.allocate(NODE, name, DRIVER, device)
    }

    pub(crate) async fn until(&self, uid: &str, state: ClaimState) {
        eventually(SOON, || async {
            let found = self.controller.report(uid);
            if self.controller.state(uid) == Some(state) {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    }

    /// The claim is deleted, the agent let go of it, and forgot it.
    pub(crate) async fn until_released(&self, uid: &str) {
        self.until(uid, ClaimState::Unprepared).await;
        eventually(SOON, || async { !self.server.knows(uid) }).await;
        let path = self.checkpoint();
        eventually(SOON, || async {
            !std::fs::read_to_string(&path).unwrap_or_default().contains(uid)
        })
        .await;
    }
}

impl Agent {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// All its tasks end where they are.
    pub(crate) async fn kill(self) {
        self.task.abort();
        self.task.await.unwrap_err();
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Driver {
    pub(crate) async fn stop(self) -> Shown {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.shown
    }

    /// How often the claim's prepare and unprepare were begun.
    pub(crate) fn calls(&self, uid: &str) -> (usize, usize) {
        calls(&self.shown, uid)
    }
}

pub(crate) fn calls(shown: &Shown, uid: &str) -> (usize, usize) {
    let records = shown.records();
    let count = |wanted: Record| records.iter().filter(|record| **record == wanted).count();
    (
        count(Record::PrepareBegan(uid.to_owned())),
        count(Record::UnprepareBegan(uid.to_owned())),
    )
}
