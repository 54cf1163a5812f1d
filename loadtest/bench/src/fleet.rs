//! The services as processes of their own, so that their CPU time can be told apart.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use embedded::{Nats, NatsConfig};
use tonic::transport::Channel;

use crate::machine::{Database, cpu_seconds, cpu_seconds_of_group};

/// A whole installation on this machine.
pub(crate) struct Fleet {
    pub(crate) database: Database,
    pub(crate) nats: Nats,
    pub(crate) url: String,
    /// Address of ingest, as `--server` takes it.
    pub(crate) server: String,
    pub(crate) channel: Channel,
    pub(crate) allocator_health: Vec<SocketAddr>,
    ingest: Child,
    allocators: Vec<Child>,
    controller: Child,
    _nats_dir: tempfile::TempDir,
}

/// CPU seconds used so far.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) postgres: f64,
    pub(crate) nats: f64,
    pub(crate) services: f64,
    pub(crate) client: f64,
}

impl Cpu {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            postgres: self.postgres - before.postgres,
            nats: self.nats - before.nats,
            services: self.services - before.services,
            client: self.client - before.client,
        }
    }
}

/// The `dray` binary next to this one.
fn dray() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("dray");
    anyhow::ensure!(
        path.exists(),
        "{} is missing; build it with the same profile (cargo xtask bench does)",
        path.display()
    );
    Ok(path)
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl Fleet {
    /// Starts Postgres, NATS, one ingest, one controller and `allocators` allocators, and waits until ingest answers.
    pub(crate) async fn start(allocators: usize) -> anyhow::Result<Self> {
        let database = Database::start().await?;
        let url = database.fresh("dray").await?;
        let nats_dir = crate::machine::open_dir()?;
        let nats = Nats::start(NatsConfig::new(nats_dir.path().join("nats"))).await?;
        let grpc = free_address()?;
        let spawn = |args: &[&str], health: SocketAddr| -> anyhow::Result<Child> {
            Command::new(dray()?)
                .args(args)
                .args([
                    "--database-url",
                    &url,
                    "--nats-url",
                    &nats.url(),
                    "--health-listen",
                    &health.to_string(),
                    "--stop-with-stdin",
                ])
                .env("DRAY_LOG", "warn")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .context("cannot start dray")
        };
        let ingest = spawn(&["ingest", "--listen", &grpc.to_string()], free_address()?)?;
        let controller = spawn(&["controller"], free_address()?)?;
        let mut children = Vec::new();
        let mut allocator_health = Vec::new();
        for n in 0..allocators {
            let health = free_address()?;
            children.push(spawn(&["allocator", "--id", &format!("allocator-{n}")], health)?);
            allocator_health.push(health);
        }
        let endpoint = Channel::from_shared(format!("http://{grpc}"))?
            .tcp_nodelay(true)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20);
        let mut tries = 0;
        let channel = loop {
            match endpoint.connect().await {
                Ok(channel) => break channel,
                Err(error) if tries > 200 => return Err(error).context("ingest does not answer"),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        Ok(Self {
            database,
            nats,
            url,
            server: format!("http://{grpc}"),
            channel,
            allocator_health,
            ingest,
            allocators: children,
            controller,
            _nats_dir: nats_dir,
        })
    }

    /// CPU time used so far, by part.
    pub(crate) fn cpu(&self) -> Cpu {
        let services = [&self.ingest, &self.controller].into_iter().chain(&self.allocators);
        Cpu {
            postgres: self
                .database
                .postgres
                .pid()
                .map_or(0.0, |pid| cpu_seconds_of_group(pid.cast_unsigned())),
            nats: self.nats.pid().map_or(0.0, |pid| cpu_seconds(pid.cast_unsigned())),
            services: services.map(|child| cpu_seconds(child.id())).sum(),
            client: cpu_seconds(std::process::id()),
        }
    }

    /// The sum of a counter over all allocators.
    pub(crate) async fn counter(&self, name: &str) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for health in &self.allocator_health {
            let text = crate::machine::http_get(*health, "/metrics").await?;
            let values = text.lines().filter(|line| line.starts_with(name) && !line.starts_with('#'));
            sum += values
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum::<f64>();
        }
        Ok(sum)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in [&mut self.ingest, &mut self.controller]
            .into_iter()
            .chain(&mut self.allocators)
        {
            drop(child.stdin.take()); // asks it to stop
            let stopped = (0..100).any(|_| {
                let done = matches!(child.try_wait(), Ok(Some(_)));
                if !done {
                    crate::machine::pause(50);
                }
                done
            });
            if !stopped {
                drop(child.kill());
                drop(child.wait());
            }
        }
    }
}
