//! The latest turn as Prometheus metrics.
//!
//! A [`Collector`] over the latest report, in its own registry: every scrape uses only the latest report, so
//! an ended workload leaves no stale series.
//!
//! Names: one prefix, base units, `numa_node` for NUMA nodes because `node` is a machine in Kubernetes. Label
//! values are cgroup names, which containers choose: the encoder escapes them, and long ones are cut. Process
//! ids are no labels, and at most [`MAX_WORKLOADS`] workloads have series: the worst ones, and a metric has
//! the number of omitted ones. Counters of each workload are most of the series, so they are served only
//! where configured; counters of all together always are.

mod claims;
mod daemon;
mod decisions;
mod demotion;
mod family;
mod gate;
mod identity;
mod interrupts;
mod kernel_side;
mod label;
mod machine;
mod moves;
mod number;
mod pressure;
mod rebalance;
#[cfg(test)]
mod reference;
mod runtime;
mod scheduler;
mod sections;
mod series;
#[cfg(test)]
mod tests;
mod values;
mod widening;
mod workloads;

use std::{collections::BTreeMap, sync::Arc};

use enforcer_core::{audit::Audit, sample::NodeSample};
use numa_topology::id::NodeId;
pub use prometheus::Error as MetricsError;
use prometheus::{
    Registry, TextEncoder,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use self::family::Family;
pub use self::{
    gate::GateReport,
    scheduler::{SchedulerReport, VerbCalls, WatchedCollection},
    workloads::MAX_WORKLOADS,
};
use super::tick::TickReport;

/// Media type of [`Metrics::render`]'s text.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Prefix of every name.
const PREFIX: &str = "numa_enforcer";

/// The metrics of a daemon.
#[derive(Clone)]
pub struct Metrics(Registry);

impl Metrics {
    /// Metrics of whatever `latest` gives at the time of a scrape; with the counters of each workload where
    /// `workload_counters`.
    pub fn of(
        latest: impl Fn() -> Option<Arc<TickReport>> + Send + Sync + 'static,
        workload_counters: bool,
    ) -> Result<Self, MetricsError> {
        let registry = Registry::new_custom(Some(PREFIX.to_owned()), None)?;
        let descriptions = sections::all().map(Family::describe).collect::<Result<_, _>>()?;
        registry.register(Box::new(LatestReport { latest, workload_counters, descriptions }))?;
        Ok(Self(registry))
    }

    /// The text exposition format.
    pub fn render(&self) -> Result<String, MetricsError> {
        TextEncoder::new().encode_to_string(&self.0.gather())
    }
}

/// The text exposition format of a single look, for the textfile collector of `node_exporter`.
pub fn of_audit(audit: &Audit, nodes: &BTreeMap<NodeId, NodeSample>) -> Result<String, MetricsError> {
    let registry = Registry::new_custom(Some(PREFIX.to_owned()), None)?;
    let descriptions = sections::all().map(Family::describe).collect::<Result<_, _>>()?;
    registry.register(Box::new(OneLook { families: series::of_audit(audit, nodes), descriptions }))?;
    TextEncoder::new().encode_to_string(&registry.gather())
}

struct OneLook {
    families: Vec<MetricFamily>,
    descriptions: Vec<Desc>,
}

impl Collector for OneLook {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.families.clone()
    }
}

struct LatestReport<F> {
    latest: F,
    workload_counters: bool,
    descriptions: Vec<Desc>,
}

impl<F: Fn() -> Option<Arc<TickReport>> + Send + Sync> Collector for LatestReport<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let report = (self.latest)();
        report.map(|report| series::collect(&report, self.workload_counters)).unwrap_or_default()
    }
}
