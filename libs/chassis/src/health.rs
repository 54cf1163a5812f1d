//! `/healthz`, `/readyz` and `/metrics` of a service, over HTTP.
//!
//! Alive means that the runtime answers; ready means that every named check passes and no stop was asked for. The form
//! of `/readyz` is the Kubernetes API server's: a line per check, then the verdict.

use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus::{Encoder, Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A check that takes longer is a failed one.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

type CheckFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

#[derive(Clone)]
struct Check {
    name: String,
    look: Arc<dyn Fn() -> CheckFuture + Send + Sync>,
}

/// The checks and metrics of one process; cheap to clone, and all clones are the same.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Vec<Check>>>,
    registry: Registry,
    stop: CancellationToken,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health")
            .field("checks", &self.checks().len())
            .finish_non_exhaustive()
    }
}

impl Health {
    /// Without checks and metrics; not ready any more once `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Where metrics are registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds a readiness check. It is run by every `/readyz`, has one second, and says in a few words what is wrong.
    pub fn add_check<F, Fut>(&self, name: impl Into<String>, look: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let look: Arc<dyn Fn() -> CheckFuture + Send + Sync> = Arc::new(move || Box::pin(look()));
        self.checks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Check { name: name.into(), look });
    }

    /// Runs all checks. `Ok` and `Err` hold the same report, a line per check.
    pub async fn readiness(&self) -> Result<String, String> {
        let mut report = String::new();
        let mut ready = !self.stop.is_cancelled();
        if !ready {
            report.push_str("[-]shutdown failed: stopping\n");
        }
        for check in self.checks() {
            let verdict = tokio::time::timeout(CHECK_TIMEOUT, (check.look)()).await;
            let verdict = verdict.unwrap_or_else(|_| Err(format!("no answer within {CHECK_TIMEOUT:?}")));
            ready &= verdict.is_ok();
            let written = match verdict {
                Ok(()) => writeln!(report, "[+]{} ok", check.name),
                Err(reason) => writeln!(report, "[-]{} failed: {reason}", check.name),
            };
            written.expect("writing to a string cannot fail");
        }
        report.push_str(if ready {
            "readyz check passed\n"
        } else {
            "readyz check failed\n"
        });
        if ready { Ok(report) } else { Err(report) }
    }

    /// Serves until `until` is cancelled. The address is where it listens, with the real port.
    pub async fn serve(
        self,
        listen: SocketAddr,
        until: CancellationToken,
    ) -> std::io::Result<(SocketAddr, impl Future<Output = std::io::Result<()>>)> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self);
        let stopped = until.cancelled_owned();
        Ok((address, async {
            axum::serve(listener, router).with_graceful_shutdown(stopped).await
        }))
    }

    fn checks(&self) -> Vec<Check> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    match health.readiness().await {
        Ok(report) => (StatusCode::OK, report),
        Err(report) => (StatusCode::SERVICE_UNAVAILABLE, report),
    }
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let mut text = Vec::new();
    match TextEncoder::new().encode(&health.registry.gather(), &mut text) {
        Ok(()) => (StatusCode::OK, [(CONTENT_TYPE, TEXT_FORMAT)], text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(CONTENT_TYPE, "text/plain")],
            error.to_string().into_bytes(),
        ),
    }
}

#[cfg(test)]
mod tests;
