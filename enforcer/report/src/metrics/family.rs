//! Metric families as constants, and the values of one scrape.

use std::collections::BTreeMap;

use enforcer_core::call_times::CallTimes;
use prometheus::{
    Error, Opts,
    core::{Desc, Describer},
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

use super::values::Values;

/// A metric by name, without the prefix. Where values are put, its type has the number of its labels
/// ([`FamilyOf`]), so that the compiler counts them; a list of families has references without that number.
#[derive(Debug)]
pub(super) struct Family<L: ?Sized = [&'static str]> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// Values of labels with a fixed set of values.
    pub(super) values: &'static [Values],
    pub(super) kind: FamilyKind,
    pub(super) labels: L,
}

/// A metric with so many labels.
pub(super) type FamilyOf<const LABELS: usize> = Family<[&'static str; LABELS]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FamilyKind {
    Gauge,
    Counter,
    Histogram,
}

impl<const LABELS: usize> FamilyOf<LABELS> {
    /// A value that goes up and down.
    pub(super) const fn gauge(
        name: &'static str,
        labels: [&'static str; LABELS],
        help: &'static str,
    ) -> Self {
        Self { name, help, labels, values: &[], kind: FamilyKind::Gauge }
    }

    /// A count since the daemon started.
    pub(super) const fn counter(
        name: &'static str,
        labels: [&'static str; LABELS],
        help: &'static str,
    ) -> Self {
        Self { name, help, labels, values: &[], kind: FamilyKind::Counter }
    }

    /// Calls by what they took since the program started, in seconds.
    pub(super) const fn histogram_of(
        name: &'static str,
        labels: [&'static str; LABELS],
        help: &'static str,
    ) -> Self {
        Self { name, help, labels, values: &[], kind: FamilyKind::Histogram }
    }

    /// With all values that these labels have.
    pub(super) const fn of(self, values: &'static [Values]) -> Self {
        Self { values, ..self }
    }
}

impl FamilyOf<0> {
    /// Calls by what they took since the daemon started, in seconds.
    pub(super) const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::histogram_of(name, [], help)
    }
}

impl Family {
    /// All values of a label; `None` where others choose them.
    pub(super) fn values_of(&self, label: &str) -> Option<&'static [&'static str]> {
        self.values.iter().find(|(name, _)| *name == label).map(|(_, values)| *values)
    }

    /// Is every value of a label of ours one that is listed? Nothing stands for what a label does not apply
    /// to.
    fn has(&self, values: &[&str]) -> bool {
        let mut each = self.labels.iter().zip(values);
        each.all(|(label, value)| {
            value.is_empty() || self.values_of(label).is_none_or(|listed| listed.contains(value))
        })
    }

    /// As the registry wants it; an error for a name or a label that Prometheus does not take.
    pub(super) fn describe(&self) -> Result<Desc, Error> {
        let labels = self.labels.iter().map(|label| (*label).to_owned()).collect();
        Opts::new(self.name, self.help).variable_labels(labels).describe()
    }
}

/// A counter of each workload, where that is wanted, and of all of them together: `EACH` labels, and the
/// `ALL` that follow the workload's.
#[derive(Debug)]
pub(super) struct CountedFamily<const EACH: usize, const ALL: usize> {
    each: FamilyOf<EACH>,
    all: FamilyOf<ALL>,
}

/// Both families of a [`CountedFamily`].
#[derive(Debug, Clone, Copy)]
pub(super) struct CountedFamilies {
    pub(super) each: &'static Family,
    pub(super) all: &'static Family,
}

/// Beginning of the names of counters of a workload.
const OF_WORKLOAD: &str = "workload_";

impl<const EACH: usize, const ALL: usize> CountedFamily<EACH, ALL> {
    /// The family of single workloads has the prefix `workload_` and the first label `workload`; the family
    /// of all has neither.
    pub(super) const fn new(
        name: &'static str,
        labels: [&'static str; EACH],
        each: &'static str,
        all: &'static str,
    ) -> Self {
        assert!(EACH == ALL + 1, "the family of all lacks the label of the workload, and no other");
        let (_, of_all) = name.split_at(OF_WORKLOAD.len());
        let mut labels_of_all = [""; ALL];
        let mut at = 0;
        while at < ALL {
            labels_of_all[at] = labels[at + 1];
            at += 1;
        }
        Self { each: Family::counter(name, labels, each), all: Family::counter(of_all, labels_of_all, all) }
    }

    /// With all values that these labels have.
    pub(super) const fn of(self, values: &'static [Values]) -> Self {
        let Self { each, all } = self;
        Self { each: each.of(values), all: all.of(values) }
    }

    /// Both, for a list.
    pub(super) const fn both(&'static self) -> CountedFamilies {
        CountedFamilies { each: &self.each, all: &self.all }
    }
}

/// Which workloads the counters are of.
#[derive(Debug, Clone, Copy)]
pub(super) enum CounterScope<'a> {
    /// The workload with this label.
    One(&'a str),
    /// All workloads, including ended ones.
    All,
}

/// The series of a family.
struct FamilySeries {
    family: &'static Family,
    /// Positions of the sorted labels in the family's order.
    order: Vec<usize>,
    series: Vec<Metric>,
}

impl FamilySeries {
    fn new(family: &'static Family) -> Self {
        let mut order: Vec<usize> = (0..family.labels.len()).collect();
        order.sort_by_key(|at| family.labels.get(*at));
        Self { family, order, series: Vec::new() }
    }

    /// A series with these values of the labels and no value of its own yet.
    fn labelled(&self, values: &[&str]) -> Metric {
        let pairs = self.order.iter().filter_map(|at| {
            let mut pair = LabelPair::default();
            pair.set_name((*self.family.labels.get(*at)?).to_owned());
            pair.set_value((*values.get(*at)?).to_owned());
            Some(pair)
        });
        Metric::from_label(pairs.collect())
    }

    fn put(&mut self, values: &[&str], value: f64) {
        let mut series = self.labelled(values);
        match self.family.kind {
            FamilyKind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                series.set_gauge(gauge);
            }
            FamilyKind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                series.set_counter(counter);
            }
            FamilyKind::Histogram => debug_assert!(false, "{} has no single values", self.family.name),
        }
        self.series.push(series);
    }

    fn into_family(self) -> MetricFamily {
        let mut told = MetricFamily::default();
        told.set_name(self.family.name.to_owned());
        told.set_help(self.family.help.to_owned());
        told.set_field_type(match self.family.kind {
            FamilyKind::Gauge => MetricType::GAUGE,
            FamilyKind::Counter => MetricType::COUNTER,
            FamilyKind::Histogram => MetricType::HISTOGRAM,
        });
        told.set_metric(self.series);
        told
    }
}

/// The values of one scrape. A missing value makes no series, and no family without one.
///
/// The crate's own vectors look up each series by its labels before they set it. Here each series is put
/// once, so it is built directly.
#[derive(Default)]
pub(super) struct Scrape {
    families: BTreeMap<&'static str, FamilySeries>,
    of_workloads: usize,
}

impl Scrape {
    /// Puts a value under the labels of the family, in their order. No two values of a family have the same.
    pub(super) fn put<const LABELS: usize>(
        &mut self,
        family: &'static FamilyOf<LABELS>,
        labels: &[&str; LABELS],
        value: Option<f64>,
    ) {
        let family: &'static Family = family;
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        debug_assert!(family.has(labels), "{}: of {labels:?} one is not listed", family.name);
        self.told(family).put(labels, value);
    }

    /// Puts a count under the labels that follow the workload's.
    pub(super) fn put_counted<const EACH: usize, const ALL: usize>(
        &mut self,
        counted: &'static CountedFamily<EACH, ALL>,
        scope: CounterScope<'_>,
        labels: [&str; ALL],
        value: Option<f64>,
    ) {
        match scope {
            CounterScope::All => self.put(&counted.all, &labels, value),
            CounterScope::One(workload) => {
                self.of_workloads += usize::from(value.is_some());
                let mut with_workload = [workload; EACH];
                with_workload[1..].copy_from_slice(&labels);
                self.put(&counted.each, &with_workload, value);
            }
        }
    }

    /// Counters of single workloads that were put so far.
    pub(super) fn counters_of_workloads(&self) -> usize {
        self.of_workloads
    }

    /// Puts a whole histogram. The crate's registry counts single observations, but these were counted
    /// elsewhere.
    pub(super) fn put_times<const LABELS: usize>(
        &mut self,
        family: &'static FamilyOf<LABELS>,
        labels: &[&str; LABELS],
        times: &CallTimes,
    ) {
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
        let told = self.told(family);
        let mut series = told.labelled(labels);
        series.set_histogram(histogram);
        told.series.push(series);
    }

    fn told(&mut self, family: &'static Family) -> &mut FamilySeries {
        self.families.entry(family.name).or_insert_with(|| FamilySeries::new(family))
    }

    /// The families, by name.
    pub(super) fn into_families(self) -> Vec<MetricFamily> {
        self.families.into_values().map(FamilySeries::into_family).collect()
    }
}
