//! Metrics whose value is kept elsewhere, e.g. in a library that knows nothing of Prometheus.

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, Metric, MetricFamily, MetricType};

use crate::health::Health;

/// What a value means to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

struct Observed<F> {
    description: Desc,
    kind: Kind,
    read: F,
}

impl Health {
    /// Adds a metric that is read by calling `read` at each scrape, which must be quick.
    ///
    /// Fails if the name is not valid or taken.
    pub fn observe<F>(&self, kind: Kind, name: &str, help: &str, read: F) -> Result<(), prometheus::Error>
    where
        F: Fn() -> f64 + Send + Sync + 'static,
    {
        let description = Desc::new(name.to_owned(), help.to_owned(), Vec::new(), Default::default())?;
        self.registry().register(Box::new(Observed { description, kind, read }))
    }
}

impl<F: Fn() -> f64 + Send + Sync> Collector for Observed<F> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let value = (self.read)();
        let mut metric = Metric::default();
        let mut family = MetricFamily::default();
        match self.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
                family.set_field_type(MetricType::COUNTER);
            }
            Kind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
                family.set_field_type(MetricType::GAUGE);
            }
        }
        family.set_name(self.description.fq_name.clone());
        family.set_help(self.description.help.clone());
        family.set_metric(vec![metric]);
        vec![family]
    }
}
