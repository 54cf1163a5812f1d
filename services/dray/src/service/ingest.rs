//! `dray ingest`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use chassis::config::Validate;
use chassis::tls::TlsFiles;
use chassis::{AnyError, ChassisConfig, Parts};

use super::args::{self, DatabaseServiceArgs, GatesArgs, Service, id_or_new, missing};

const SERVICE: Service = Service {
    name: "ingest",
    defaults: include_str!("ingest.toml"),
};

/// Flags of `dray ingest`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IngestArgs {
    /// Where gRPC is served.
    #[arg(long, env = "DRAY_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where the Kubernetes REST API is served; not at all if left out.
    #[arg(long, env = "DRAY_REST_LISTEN", value_name = "ADDRESS")]
    rest_listen: Option<SocketAddr>,
    #[command(flatten)]
    gates: GatesArgs,
    #[command(flatten)]
    database: DatabaseServiceArgs,
}

/// See `ingest.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    id: String,
    database_url: String,
    nats_url: String,
    listen: SocketAddr,
    connections_max: u32,
    writes_max: usize,
    waiters_max: usize,
    feature_gates: String,
    rest: RestSettings,
    chassis: ChassisConfig,
}

/// The Kubernetes REST API. Empty texts: not given.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RestSettings {
    listen: String,
    certificate: PathBuf,
    key: PathBuf,
    client_authorities: PathBuf,
    access: PathBuf,
}

impl RestSettings {
    fn address(&self) -> Option<Result<SocketAddr, std::net::AddrParseError>> {
        (!self.listen.is_empty()).then(|| self.listen.parse())
    }

    fn config(&self) -> Option<ingest::RestConfig> {
        let given = |path: &PathBuf| Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
        let tls = given(&self.certificate).map(|certificate| TlsFiles {
            certificate,
            key: self.key.clone(),
            client_authorities: given(&self.client_authorities),
        });
        Some(ingest::RestConfig {
            listen: self.address()?.ok()?,
            tls,
            access: given(&self.access),
        })
    }
}

impl Validate for Settings {
    fn problems(&self) -> Vec<String> {
        let mut problems = missing(&[("database-url", &self.database_url), ("nats-url", &self.nats_url)]);
        let rest = &self.rest;
        match rest.address() {
            Some(Err(error)) => problems.push(format!("rest.listen {:?} is no address: {error}", rest.listen)),
            Some(Ok(address)) if rest.certificate.as_os_str().is_empty() && !address.ip().is_loopback() => problems.push(
                "rest.certificate is missing: without TLS everybody may do everything, which is served on loopback addresses only".to_owned(),
            ),
            Some(Ok(_)) | None => {}
        }
        if rest.certificate.as_os_str().is_empty() != rest.key.as_os_str().is_empty() {
            problems.push("rest.certificate and rest.key go together".to_owned());
        }
        problems
    }
}

impl args::Settings for Settings {
    fn chassis(&self) -> &ChassisConfig {
        &self.chassis
    }
}

/// Runs an ingest until it is stopped.
pub(crate) fn run(args: IngestArgs) -> ExitCode {
    let mut flags = args.database.flags();
    flags.push(("listen", args.listen.map(|address| address.to_string())));
    flags.push(("rest.listen", args.rest_listen.map(|address| address.to_string())));
    flags.extend(args.gates.flags());
    args::run(&SERVICE, args.database.bus.common, flags, serve)
}

async fn serve(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    let config = ingest::Config {
        listen: settings.listen,
        connections_max: settings.connections_max,
        writes_max: settings.writes_max,
        waiters_max: settings.waiters_max,
        rest: settings.rest.config(),
        feature_gates: settings.feature_gates,
        ..ingest::Config::new(id_or_new(settings.id, SERVICE.name), settings.database_url, settings.nats_url)
    };
    let deps = ingest::connect(config, parts.health.registry().clone()).await?;
    args::check_database(&parts.health, deps.store.clone());
    args::check_bus(&parts.health, &deps.bus);
    Ok(ingest::run(deps, parts.stop).await?)
}
