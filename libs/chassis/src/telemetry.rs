//! Logs to standard error, traces to an OpenTelemetry collector when one is named, and W3C trace context as text.
//!
//! A trace crosses processes as a `traceparent` (<https://www.w3.org/TR/trace-context/>): in gRPC metadata, in NATS
//! headers and in event rows. Without a collector no trace is made, and the functions here do nothing.

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Sending one batch of spans; a dead collector costs this much of the exporter's own thread, never of a request.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the last spans get at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// What to log and where to send traces. See `defaults.toml` for each.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TelemetryConfig {
    /// A filter in the syntax of `tracing_subscriber::EnvFilter`.
    pub log: String,
    /// Form of log lines.
    pub log_format: LogFormat,
    /// gRPC address of a collector; empty for none.
    pub otlp_endpoint: String,
    /// Share of new traces that is recorded, from 0 to 1.
    pub trace_ratio: f64,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one object per line.
    Json,
}

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `log` is not a filter.
    #[error("log filter {filter:?} is not valid")]
    Filter {
        /// The text that was given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The collector's address cannot be used.
    #[error("traces cannot be sent to {endpoint}")]
    Exporter {
        /// The address that was given.
        endpoint: String,
        /// Why not.
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// This process has set up telemetry already.
    #[error("telemetry is set up already")]
    AlreadySet(#[source] TryInitError),
}

/// Telemetry that is set up; [`Telemetry::shutdown`] sends what is left.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Sets up logs and traces for the whole process; inside the runtime, once. `service` names the source of the traces.
pub fn init(service: &'static str, config: &TelemetryConfig) -> Result<Telemetry, TelemetryError> {
    let filter = EnvFilter::try_new(&config.log).map_err(|source| TelemetryError::Filter {
        filter: config.log.clone(),
        source,
    })?;
    let traces = traces(service, config)?;
    let to_collector = traces.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(service))
            .with_threads(false)
            .with_location(false)
    });
    // Innermost first: a layer sees the type of what is below it, and log lines must not show the collector's fields.
    let subscriber = tracing_subscriber::registry()
        .with(lines(config.log_format))
        .with(to_collector)
        .with(filter);
    subscriber.try_init().map_err(TelemetryError::AlreadySet)?;
    Ok(Telemetry { traces })
}

impl Telemetry {
    /// Sends the spans that are left; gives up after five seconds.
    pub async fn shutdown(self) {
        let Some(provider) = self.traces else { return };
        // The provider blocks its caller until the exporter's thread is done.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT)).await;
        match flushed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last traces were not sent"),
            Err(error) => tracing::warn!(%error, "the last traces were not sent"),
        }
    }
}

fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    }
}

fn traces(service: &'static str, config: &TelemetryConfig) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    if config.otlp_endpoint.is_empty() {
        return Ok(None);
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&config.otlp_endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|source| TelemetryError::Exporter {
            endpoint: config.otlp_endpoint.clone(),
            source,
        })?;
    let name = format!("dray-{service}");
    let resource = Resource::builder().with_service_name(name);
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.trace_ratio))))
        .with_resource(
            resource
                .with_attribute(KeyValue::new("process.pid", i64::from(std::process::id())))
                .build(),
        )
        .build();
    Ok(Some(provider))
}

/// The current span as a `traceparent`; `None` when there is no span or no trace is made.
pub fn current_traceparent() -> Option<String> {
    traceparent_of(&Span::current())
}

/// `span` as a `traceparent`; `None` when no trace is made of it.
pub fn traceparent_of(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let span = span.span_context();
    span.is_valid()
        .then(|| format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags()))
}

/// Makes `span` a child of a caller's span, in its trace. Before `span` is entered; a text that is no `traceparent` is
/// ignored, as the standard asks.
pub fn set_parent_from(span: &Span, traceparent: &str) {
    let Some(parent) = parse_traceparent(traceparent) else {
        return;
    };
    if let Err(error) = span.set_parent(Context::new().with_remote_span_context(parent)) {
        tracing::trace!(%error, "no trace is made of this span");
    }
}

/// Links `span` to a producer's span: a batch stands for many submissions, and cannot be the child of all of them.
pub fn link_to(span: &Span, traceparent: &str) {
    if let Some(producer) = parse_traceparent(traceparent) {
        span.add_link(producer);
    }
}

/// Reads a `traceparent` of version 00, or what later versions keep of it; `None` if it is not one.
pub fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |part: &str, len: usize| part.len() == len && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    let is_over = parts.next().is_none();
    if !well_formed || version == "ff" || (version == "00" && !is_over) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests;
