//! What an engine counts. Each metric answers one question; label values come from class names, which administrators make.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use structured::CompiledUnit;

/// Counters of one allocator; cheap to clone.
#[derive(Clone)]
pub(crate) struct Stats {
    /// How often was a search run, per class asked for?
    attempts: IntCounterVec,
    /// How many units did this process allocate?
    pub(crate) allocated: IntCounter,
    /// How many commits lost against somebody else?
    pub(crate) conflicts: IntCounter,
    /// How many parked units were woken?
    pub(crate) woken: IntCounter,
    /// How many units found their place among this process's own shards, and how many elsewhere?
    pub(crate) routed_home: IntCounter,
    pub(crate) routed_away: IntCounter,
    /// How many units wait, and how many of them for a change?
    pub(crate) waiting: IntGauge,
    pub(crate) parked: IntGauge,
    /// How long does a round of decisions take?
    pub(crate) round_seconds: Histogram,
}

impl Stats {
    /// Makes the metrics and registers them.
    ///
    /// Errors: a metric of that name exists already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| IntCounter::with_opts(Opts::new(name, help));
        let stats = Self {
            attempts: IntCounterVec::new(
                Opts::new("dray_allocation_attempts_total", "Searches run, by device class."),
                &["class"],
            )?,
            allocated: counter("dray_allocator_allocated_total", "Units allocated by this process.")?,
            conflicts: counter("dray_allocator_conflicts_total", "Commits of allocations that lost.")?,
            woken: counter("dray_allocator_woken_total", "Parked units woken by a change.")?,
            routed_home: counter(
                "dray_allocator_routed_home_total",
                "Units placed in this process's own shards.",
            )?,
            routed_away: counter(
                "dray_allocator_routed_away_total",
                "Units placed optimistically in other shards.",
            )?,
            waiting: IntGauge::new("dray_allocator_waiting", "Units that wait, in all shards.")?,
            parked: IntGauge::new("dray_allocator_parked", "Units that wait for a change.")?,
            round_seconds: Histogram::with_opts(
                HistogramOpts::new("dray_allocator_round_seconds", "Time of one round of decisions.")
                    .buckets(prometheus::exponential_buckets(0.000_05, 3.0, 10)?),
            )?,
        };
        registry.register(Box::new(stats.attempts.clone()))?;
        for metric in [
            &stats.allocated,
            &stats.conflicts,
            &stats.woken,
            &stats.routed_home,
            &stats.routed_away,
        ] {
            registry.register(Box::new(metric.clone()))?;
        }
        registry.register(Box::new(stats.waiting.clone()))?;
        registry.register(Box::new(stats.parked.clone()))?;
        registry.register(Box::new(stats.round_seconds.clone()))?;
        Ok(stats)
    }

    /// A search is about to run.
    pub(crate) fn attempt(&self, unit: &CompiledUnit) {
        for class in unit.class_names() {
            self.attempts.with_label_values(&[class]).inc();
        }
    }
}
