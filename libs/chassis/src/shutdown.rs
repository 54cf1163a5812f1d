//! SIGTERM and SIGINT ask the service to stop: the token is cancelled, and whoever holds it finishes what it began.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The signals that mean "stop"; made inside the runtime, before the service starts, so that none is missed.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Starts to listen. Fails only if the operating system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal and returns its name. Cancel safe.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Cancels `stop` at the first signal and returns at the second: somebody does not want to wait for the drain.
    pub async fn cancel_then_insist(mut self, stop: CancellationToken) {
        let signal = self.next().await;
        tracing::info!(signal, "stopping: finishing work in flight");
        stop.cancel();
        let signal = self.next().await;
        tracing::warn!(signal, "stopping at once: asked twice");
    }
}
