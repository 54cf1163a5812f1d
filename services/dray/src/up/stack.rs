//! The parts of `dray up` and their order: Postgres and NATS, then the services; the other way round at the end.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use embedded::{Nats, NatsConfig, Postgres, PostgresConfig};
use tokio_util::sync::CancellationToken;

use super::Args;
use super::process::{Plan, Process};
use super::running::{Running, RunningProcess};

/// The database's name.
const DATABASE: &str = "dray";
/// The node that this machine stands for.
const NODE: &str = "node-1";
/// A dead server is restarted after this time, so that its port and files are free.
const SERVER_RESTART_PAUSE: Duration = Duration::from_millis(300);

/// Everything that runs. Parts are filled in by [`Stack::start`] as they come up.
pub(crate) struct Stack {
    args: Args,
    data_dir: PathBuf,
    postgres: Option<Postgres>,
    nats: Option<Nats>,
    server: String,
    /// In the order of starting.
    services: Vec<Process>,
}

impl Stack {
    /// Nothing runs yet.
    pub(crate) fn new(args: Args, data_dir: PathBuf) -> Self {
        Self {
            args,
            data_dir,
            postgres: None,
            nats: None,
            server: String::new(),
            services: Vec::new(),
        }
    }

    /// Starts everything and answers when every service is ready. On an error, what was started is still to be stopped.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.log_dir()).with_context(|| format!("cannot make {}", self.log_dir().display()))?;
        let (postgres, nats) = tokio::join!(Postgres::start(self.postgres_config()), Nats::start(self.nats_config()));
        self.postgres = Some(postgres.context("cannot start Postgres")?);
        self.nats = Some(nats.context("cannot start NATS")?);
        self.migrate().await?;
        self.switch_gates().await?;
        for plan in self.plans()? {
            self.services.push(Process::start(plan, &self.log_dir())?);
        }
        for service in &mut self.services {
            service.until_ready().await?;
        }
        self.running()?.write(&self.data_dir)
    }

    async fn migrate(&self) -> anyhow::Result<()> {
        let postgres = self.postgres()?;
        postgres
            .create_database(DATABASE, None)
            .await
            .context("cannot create the database")?;
        store::migrate(&postgres.url_of(DATABASE))
            .await
            .context("cannot bring the database up to date")
    }

    /// Here and not by a service's flag: a service that is started again must not switch back what was switched meanwhile.
    async fn switch_gates(&self) -> anyhow::Result<()> {
        let Some(changes) = &self.args.feature_gates else {
            return Ok(());
        };
        let store = store::Store::connect(&store::StoreConfig::new(self.postgres()?.url_of(DATABASE), "dray-up"))?;
        let switched = store.apply_gates(changes, "up").await;
        store.close().await;
        switched.context("cannot switch the feature gates")??;
        Ok(())
    }

    /// The services and their addresses, in the order of starting.
    fn plans(&mut self) -> anyhow::Result<Vec<Plan>> {
        let grpc = free_port(self.args.grpc_listen)?;
        self.server = format!("http://{grpc}");
        let servers = [
            ("--database-url", self.postgres()?.url_of(DATABASE)),
            ("--nats-url", self.nats()?.url()),
        ];
        let ingest = [servers.as_slice(), &[("--listen", grpc.to_string())]].concat();
        let mut plans = vec![self.plan("ingest", "ingest".to_owned(), &ingest)?];
        plans.push(self.plan("controller", "controller".to_owned(), &servers)?);
        for number in 1..=self.args.allocators {
            plans.push(self.plan("allocator", format!("allocator-{number}"), &servers)?);
        }
        plans.extend(self.node_plans()?);
        Ok(plans)
    }

    /// The agent and the driver of this machine's node, and the fleet if there is one.
    fn node_plans(&self) -> anyhow::Result<Vec<Plan>> {
        let folder = |name: &str| self.data_dir.join(name).display().to_string();
        let nats = ("--nats-url", self.nats()?.url());
        let server = ("--server", self.server.clone());
        let node = [
            ("--node", NODE.to_owned()),
            ("--plugins-registry", folder("plugins_registry")),
            server.clone(),
        ];
        let agent = [node.as_slice(), &[nats.clone(), ("--state-dir", folder("node-agent"))]].concat();
        let driver = [node.as_slice(), &[("--plugin-dir", folder("sim-driver"))]].concat();
        let mut plans = vec![
            self.plan("node-agent", "node-agent".to_owned(), &agent)?,
            self.plan("sim-driver", "sim-driver".to_owned(), &driver)?,
        ];
        if self.args.nodes > 0 {
            let fleet = [
                nats,
                server,
                ("--id", "fleet".to_owned()),
                ("--fleet-nodes", self.args.nodes.to_string()),
            ];
            plans.push(self.plan("node-agent", "fleet".to_owned(), &fleet)?);
        }
        Ok(plans)
    }

    fn plan(&self, service: &str, name: String, flags: &[(&str, String)]) -> anyhow::Result<Plan> {
        let health = free_port(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let common = [
            ("--health-listen", health.to_string()),
            ("--set", format!("chassis.telemetry.log={}", self.args.log)),
        ];
        let mut args = vec![service.to_owned(), "--stop-with-stdin".to_owned()];
        args.extend(
            common
                .iter()
                .chain(flags)
                .flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]),
        );
        Ok(Plan { name, args, health })
    }

    /// Restarts what died.
    pub(crate) async fn look_after(&mut self) -> anyhow::Result<()> {
        let mut any = false;
        if let Some(postgres) = &mut self.postgres
            && postgres.pid().is_none()
        {
            eprintln!("postgres ended; starting it again; log: {}", postgres.log().display());
            tokio::time::sleep(SERVER_RESTART_PAUSE).await;
            postgres.restart().await.context("cannot restart Postgres")?;
            any = true;
        }
        if let Some(nats) = &mut self.nats
            && nats.pid().is_none()
        {
            eprintln!("nats-server ended; starting it again; log: {}", nats.log().display());
            tokio::time::sleep(SERVER_RESTART_PAUSE).await;
            nats.restart().await.context("cannot restart NATS")?;
            any = true;
        }
        for service in &mut self.services {
            any |= service.look_after()?;
        }
        if any { self.running()?.write(&self.data_dir) } else { Ok(()) }
    }

    /// Lets every part drain and end, the last started first. A cancelled `insist` kills what is left of the services.
    pub(crate) async fn stop(&mut self, insist: CancellationToken) -> anyhow::Result<()> {
        while let Some(mut service) = self.services.pop() {
            service.stop(insist.cancelled()).await;
        }
        let nats = match &mut self.nats {
            Some(nats) => nats.stop().await,
            None => Ok(()),
        };
        let postgres = match &mut self.postgres {
            Some(postgres) => postgres.stop().await,
            None => Ok(()),
        };
        nats.context("cannot stop NATS")?;
        postgres.context("cannot stop Postgres")
    }

    /// For the note and the banner.
    pub(crate) fn running(&self) -> anyhow::Result<Running> {
        let (postgres, nats) = (self.postgres()?, self.nats()?);
        let server = |name: &str, pid, log: &Path| RunningProcess {
            name: name.to_owned(),
            pid,
            health: None,
            log: log.to_owned(),
        };
        let mut processes = vec![
            server("postgres", postgres.pid(), postgres.log()),
            server("nats-server", nats.pid(), nats.log()),
        ];
        processes.extend(self.services.iter().map(Process::running));
        Ok(Running {
            pid: std::process::id().cast_signed(),
            server: self.server.clone(),
            database_url: postgres.url_of(DATABASE),
            nats_url: nats.url(),
            processes,
        })
    }

    fn postgres_config(&self) -> PostgresConfig {
        PostgresConfig {
            port: Some(self.args.postgres_port),
            bin_dir: self.args.postgres_bin.clone(),
            ..PostgresConfig::new(self.data_dir.join("postgres"))
        }
    }

    fn nats_config(&self) -> NatsConfig {
        NatsConfig {
            port: Some(self.args.nats_port),
            bin: self.args.nats_bin.clone(),
            ..NatsConfig::new(self.data_dir.join("nats"))
        }
    }

    fn log_dir(&self) -> PathBuf {
        self.data_dir.join("log")
    }

    fn postgres(&self) -> anyhow::Result<&Postgres> {
        self.postgres.as_ref().context("Postgres does not run")
    }

    fn nats(&self) -> anyhow::Result<&Nats> {
        self.nats.as_ref().context("NATS does not run")
    }
}

/// The address itself, or with a free port in place of port 0. Somebody else may take the port before the service does;
/// the service then says so and `up` ends.
fn free_port(address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    Ok(listener.local_addr()?)
}
