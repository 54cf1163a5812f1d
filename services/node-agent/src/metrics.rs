//! What operators ask of an agent. Names are the kubelet's where it has one.

use std::time::Duration;

use prometheus::{Error, HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Opts, Registry, exponential_buckets};
use resource_api::DriverName;

use crate::decide::Operation;
use crate::plugin::CallError;

/// The agent's metrics.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    operations: HistogramVec,
    calls: HistogramVec,
    /// How many prepared claims use a driver? Drivers are few, and chosen by the operator.
    pub(crate) in_use: IntGaugeVec,
    /// Was the local state ever lost?
    pub(crate) checkpoints_lost: IntCounter,
    /// Does the server hear what happens here?
    pub(crate) reports_waiting: IntGauge,
    /// Is anything stuck because a driver is not there?
    pub(crate) waiting_for_driver: IntGauge,
}

impl Metrics {
    /// Fails if a name is taken: one agent per registry.
    pub(crate) fn new(registry: &Registry) -> Result<Self, Error> {
        // Upstream: 15 exponential buckets from 0.1 to 40 s.
        let buckets = exponential_buckets(0.1, 400_f64.powf(1.0 / 14.0), 15)?;
        let histogram = |name: &str, help: &str| HistogramOpts::new(name, help).buckets(buckets.clone());
        let metrics = Self {
            operations: HistogramVec::new(
                histogram("dra_operations_duration_seconds", "How long do prepare and unprepare take?"),
                &["operation_name", "is_error"],
            )?,
            calls: HistogramVec::new(
                histogram("dra_grpc_operations_duration_seconds", "How long do calls to drivers take?"),
                &["driver_name", "method_name", "grpc_status_code"],
            )?,
            in_use: IntGaugeVec::new(
                Opts::new("dra_resource_claims_in_use", "How many prepared claims use a driver?"),
                &["driver_name"],
            )?,
            checkpoints_lost: IntCounter::new(
                "dray_node_agent_checkpoints_lost_total",
                "How often was the local state missing, damaged or too new at a start?",
            )?,
            reports_waiting: IntGauge::new("dray_node_agent_reports_waiting", "How many reports has nobody answered yet?")?,
            waiting_for_driver: IntGauge::new(
                "dray_node_agent_claims_waiting_for_driver",
                "How many claims wait for a driver that is not registered?",
            )?,
        };
        registry.register(Box::new(metrics.operations.clone()))?;
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.in_use.clone()))?;
        registry.register(Box::new(metrics.checkpoints_lost.clone()))?;
        registry.register(Box::new(metrics.reports_waiting.clone()))?;
        registry.register(Box::new(metrics.waiting_for_driver.clone()))?;
        Ok(metrics)
    }

    /// A call to a driver has ended.
    pub(crate) fn on_call(&self, driver: &DriverName, operation: Operation, error: Option<&CallError>, took: Duration) {
        let (name, method) = match operation {
            Operation::Prepare => ("PrepareResources", "NodePrepareResources"),
            Operation::Unprepare => ("UnprepareResources", "NodeUnprepareResources"),
        };
        let is_error = if error.is_some() { "true" } else { "false" };
        let code = error.map_or(tonic::Code::Ok, CallError::code);
        self.operations
            .with_label_values(&[name, is_error])
            .observe(took.as_secs_f64());
        self.calls
            .with_label_values(&[driver.as_str(), method, &format!("{code:?}")])
            .observe(took.as_secs_f64());
    }
}
