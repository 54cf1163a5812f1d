//! The life of a service process: telemetry, health, `serve`, stop signals, drain, exit code.
//!
//! `dray up` runs several services in one process by calling [`run`] once, with all of them inside `serve`.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::ChassisConfig;
use crate::health::Health;
use crate::shutdown::StopSignals;
use crate::telemetry;

/// The health server answers this long after the work has ended, at most.
const HEALTH_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What `serve` is handed.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Readiness checks and metrics are added here.
    pub health: Health,
    /// Cancelled when the service must stop: take nothing new, finish what was begun, return.
    pub stop: CancellationToken,
    /// The machine's clock.
    pub clock: Clock,
}

/// An error of any kind; its chain is logged once, here.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// Runs a service until it is asked to stop (SIGTERM, SIGINT), fails, or ends by itself.
///
/// - `serve` connects, works until `stop`, drains and returns.
/// - Exit codes: 0 after a clean end, 1 if `serve` failed, outlived the drain timeout, or a second signal came.
/// - A panic anywhere ends the process at once: half a service is worse than a restart.
pub fn run<F, Fut>(name: &'static str, config: &ChassisConfig, serve: F) -> ExitCode
where
    F: FnOnce(Parts) -> Fut,
    Fut: Future<Output = Result<(), AnyError>>,
{
    end_process_on_panic();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_name(name);
    if config.worker_threads > 0 {
        builder.worker_threads(config.worker_threads);
    }
    match builder.build() {
        Ok(runtime) => runtime.block_on(live(name, config, serve)),
        Err(error) => report_early(name, &error),
    }
}

async fn live<F, Fut>(name: &'static str, config: &ChassisConfig, serve: F) -> ExitCode
where
    F: FnOnce(Parts) -> Fut,
    Fut: Future<Output = Result<(), AnyError>>,
{
    let telemetry = match telemetry::init(name, &config.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return report_early(name, &error),
    };
    let outcome = serve_until_stopped(name, config, serve).await;
    if let Err(error) = &outcome {
        tracing::error!(service = name, error = chain(error.as_ref()), "service failed");
    } else {
        tracing::info!(service = name, "service stopped");
    }
    telemetry.shutdown().await;
    if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn serve_until_stopped<F, Fut>(name: &'static str, config: &ChassisConfig, serve: F) -> Result<(), AnyError>
where
    F: FnOnce(Parts) -> Fut,
    Fut: Future<Output = Result<(), AnyError>>,
{
    let signals = StopSignals::listen()?;
    let (stop, health_stop) = (CancellationToken::new(), CancellationToken::new());
    let health = Health::new(stop.clone());
    // Health outlives the work: a draining service is alive and says that it is not ready.
    let (address, health_server) = health.clone().serve(config.health_listen, health_stop.clone()).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(health_server);
    tracing::info!(service = name, health = %address, "service started");
    let parts = Parts {
        health,
        stop: stop.clone(),
        clock: Clock::system(),
    };
    let outcome = tokio::select! {
        outcome = serve(parts) => outcome,
        () = signals.cancel_then_insist(stop.clone()) => Err("stopped before the drain was done".into()),
        () = overdue(&stop, config.drain_timeout) => {
            Err(format!("work in flight did not end within {:?}", config.drain_timeout).into())
        }
    };
    stop.cancel();
    health_stop.cancel();
    let ended = tokio::time::timeout(HEALTH_STOP_TIMEOUT, tasks.join_next()).await;
    if ended.is_err() {
        tracing::debug!("a client keeps its health connection open");
    }
    outcome
}

async fn overdue(stop: &CancellationToken, drain_timeout: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(drain_timeout).await;
}

/// An error before there is a log.
fn report_early(name: &str, error: &(dyn Error + 'static)) -> ExitCode {
    use std::io::Write;
    writeln!(std::io::stderr(), "dray {name}: {}", chain(error)).ok();
    ExitCode::FAILURE
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn end_process_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        // Not `exit`: handlers could wait for locks that the panicking thread holds.
        std::process::abort();
    }));
}
