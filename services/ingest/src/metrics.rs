//! What an ingest counts, and the layer that counts calls.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use tonic::codegen::http;
use tower::{Layer, Service};

/// Seconds; a commit takes some milliseconds, a wait as long as its caller wants.
const CALL_SECONDS: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
/// Calls whose method does not exist: callers must not be able to make up label values.
const OTHER: &str = "other";
/// The number of UNIMPLEMENTED.
const UNIMPLEMENTED: &str = "12";

/// The counters of a process; cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    calls: IntCounterVec,
    call_seconds: HistogramVec,
    /// Submissions by how they ended: accepted, repeated, refused.
    pub(crate) submissions: IntCounterVec,
    /// Callers that wait for a unit.
    pub(crate) waiters: IntGauge,
    /// Streams that are open.
    pub(crate) streams: IntGauge,
    /// Log position up to which this process has heard of everything.
    pub(crate) position: IntGauge,
    /// Event batches that had to be read from Postgres.
    pub(crate) read_back: IntCounter,
}

impl Metrics {
    /// Registers them. Error: one is registered already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new("dray_ingest_call_seconds", "Time from a call to its first answer, by method.");
        let metrics = Self {
            calls: IntCounterVec::new(
                Opts::new("dray_ingest_calls_total", "Calls by method and gRPC code."),
                &["method", "code"],
            )?,
            call_seconds: HistogramVec::new(seconds.buckets(CALL_SECONDS.to_vec()), &["method"])?,
            submissions: IntCounterVec::new(
                Opts::new("dray_ingest_submissions_total", "Submissions by how they ended."),
                &["outcome"],
            )?,
            waiters: IntGauge::new("dray_ingest_waiters", "Callers that wait for a unit.")?,
            streams: IntGauge::new("dray_ingest_streams", "Streams that are open.")?,
            position: IntGauge::new(
                "dray_ingest_position",
                "Log position up to which every event has been heard of.",
            )?,
            read_back: IntCounter::new(
                "dray_ingest_read_back_total",
                "Event batches read from Postgres: announced late or never.",
            )?,
        };
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.call_seconds.clone()))?;
        registry.register(Box::new(metrics.submissions.clone()))?;
        registry.register(Box::new(metrics.waiters.clone()))?;
        registry.register(Box::new(metrics.streams.clone()))?;
        registry.register(Box::new(metrics.position.clone()))?;
        registry.register(Box::new(metrics.read_back.clone()))?;
        Ok(metrics)
    }

    fn on_answer(&self, path: &str, code: &str, began: Instant) {
        let method = path
            .strip_prefix("/dray.v1.")
            .filter(|_| code != UNIMPLEMENTED)
            .unwrap_or(OTHER);
        self.calls.with_label_values(&[method, code]).inc();
        self.call_seconds
            .with_label_values(&[method])
            .observe(began.elapsed().as_secs_f64());
    }
}

/// Counts every call. A stream counts when it begins.
#[derive(Clone)]
pub(crate) struct CountCalls(pub(crate) Metrics);

impl<S> Layer<S> for CountCalls {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            metrics: self.0.clone(),
        }
    }
}

/// A service whose calls are counted.
#[derive(Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    metrics: Metrics,
}

impl<S, Q, A> Service<http::Request<Q>> for Counted<S>
where
    S: Service<http::Request<Q>, Response = http::Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Q>) -> Self::Future {
        let (metrics, began) = (self.metrics.clone(), Instant::now());
        let path = request.uri().path().to_owned();
        let call = self.inner.call(request);
        Box::pin(async move {
            let response = call.await?;
            // A failure is told in the headers, as there is no body; success comes in the trailers.
            let code = response
                .headers()
                .get("grpc-status")
                .and_then(|code| code.to_str().ok())
                .unwrap_or("0");
            metrics.on_answer(&path, code, began);
            Ok(response)
        })
    }
}
