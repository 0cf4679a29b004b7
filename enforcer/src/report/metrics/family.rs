//! Metric families as constants, and the values of one scrape.

use std::collections::BTreeMap;

use enforcer_core::call_times::CallTimes;
use prometheus::{
    CounterVec, Error, GaugeVec, Opts,
    core::{Collector, Desc, Describer},
    proto::{Bucket, Histogram, Metric, MetricFamily, MetricType},
};

/// A metric by name, without the prefix.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

impl Family {
    /// A value that goes up and down.
    pub(super) const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, help, labels, kind: Kind::Gauge }
    }

    /// A count since the daemon started.
    pub(super) const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, help, labels, kind: Kind::Counter }
    }

    /// Calls by what they took since the daemon started, in seconds.
    pub(super) const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, labels: &[], kind: Kind::Histogram }
    }

    /// As the registry wants it; an error for a name or a label that Prometheus does not take.
    pub(super) fn describe(&self) -> Result<Desc, Error> {
        let labels = self.labels.iter().map(|label| (*label).to_owned()).collect();
        self.options().variable_labels(labels).describe()
    }

    fn options(&self) -> Opts {
        Opts::new(self.name, self.help)
    }

    fn vector(&self) -> Result<Vector, Error> {
        Ok(match self.kind {
            Kind::Gauge => Vector::Gauge(GaugeVec::new(self.options(), self.labels)?),
            Kind::Counter => Vector::Counter(CounterVec::new(self.options(), self.labels)?),
            Kind::Histogram => return Err(Error::Msg(format!("{} has no single values", self.name))),
        })
    }
}

enum Vector {
    Gauge(GaugeVec),
    Counter(CounterVec),
    Histogram(Box<MetricFamily>),
}

impl Vector {
    fn put(&self, labels: &[&str], value: f64) -> Result<(), Error> {
        match self {
            Self::Gauge(gauge) => gauge.get_metric_with_label_values(labels)?.set(value),
            Self::Counter(counter) => counter.get_metric_with_label_values(labels)?.inc_by(value),
            Self::Histogram(family) => {
                return Err(Error::Msg(format!("{} has no single values", family.name())));
            }
        }
        Ok(())
    }
}

/// The values of one scrape. A missing value makes no series, and no family without one.
#[derive(Default)]
pub(super) struct Scrape(BTreeMap<&'static str, Vector>);

impl Scrape {
    /// Puts a value under the labels of the family, in their order.
    pub(super) fn put(&mut self, family: &Family, labels: &[&str], value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let put = self.try_put(family, labels, value);
        debug_assert!(put.is_ok(), "{}: {put:?}", family.name);
    }

    /// Puts all calls of a histogram; the registry of this crate counts what it is told one by one, and these were
    /// counted elsewhere.
    pub(super) fn put_times(&mut self, family: &Family, times: &CallTimes) {
        let buckets = times.within().map(|(bound, calls)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound.as_secs_f64());
            bucket.set_cumulative_count(calls);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(times.calls());
        histogram.set_sample_sum(times.total().as_secs_f64());
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        let mut told = MetricFamily::default();
        told.set_name(family.name.to_owned());
        told.set_help(family.help.to_owned());
        told.set_field_type(MetricType::HISTOGRAM);
        told.set_metric(vec![metric]);
        self.0.insert(family.name, Vector::Histogram(Box::new(told)));
    }

    /// Fails only where the family and its use in [`super::series`] do not agree.
    fn try_put(&mut self, family: &Family, labels: &[&str], value: f64) -> Result<(), Error> {
        if let Some(vector) = self.0.get(family.name) {
            return vector.put(labels, value);
        }
        let vector = family.vector()?;
        vector.put(labels, value)?;
        self.0.insert(family.name, vector);
        Ok(())
    }

    /// The families, by name.
    pub(super) fn into_families(self) -> Vec<MetricFamily> {
        let families = self.0.into_values().flat_map(|vector| match vector {
            Vector::Gauge(gauge) => gauge.collect(),
            Vector::Counter(counter) => counter.collect(),
            Vector::Histogram(family) => vec![*family],
        });
        families.collect()
    }
}
