//! The extender of a kube-scheduler (`numa-enforcer scheduler serve`).
//!
//! Invariant: no label is a name of a pod or a node, so a cluster of any size has the same few series.

use std::time::Duration;

use enforcer_core::{
    call_times::CallTimes,
    cluster::extender::{AnswerCounts, NodeCounts},
};
use prometheus::{
    Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::{
    GateReport, Metrics, MetricsError, PREFIX,
    family::{Family, FamilyOf, Scrape},
    gate,
    number::{count, to_f64, truth},
    sections,
    values::{self, BIND_VERB, CALL_CAUSE, VERB},
};

/// What an extender reports in a scrape; counts are since its start.
#[derive(Debug, Clone, Default)]
pub struct SchedulerReport {
    /// Version of the program.
    pub version: &'static str,
    /// Commit that it is built from, in a release.
    pub commit: Option<&'static str>,
    /// Whether calls are answered, or would be if this replica led.
    pub ready: bool,
    /// Whether this replica is the one that answers.
    pub leads: bool,
    /// Calls of filter, prioritize and bind.
    pub calls: [VerbCalls; 3],
    /// Answers of nodes to filter calls.
    pub filtered: AnswerCounts,
    /// Answers of nodes to bind calls.
    pub bound: AnswerCounts,
    /// Ends of bind calls, by name.
    pub bind_ends: Vec<(&'static str, u64)>,
    /// Pods that hold a place after a filter call.
    pub reservations: usize,
    /// Pods whose binding was sent and of which no event was seen.
    pub claims: usize,
    /// Of these, pods whose binding had no reply.
    pub unsettled_claims: usize,
    /// Pods that came to a node without this extender, and hold something there.
    pub foreign: u64,
    /// Outcomes of predictions, by name.
    pub predictions: [(&'static str, u64); 3],
    /// Nodes by what their state is worth.
    pub nodes: NodeCounts,
    /// What is watched, by name.
    pub collections: [(&'static str, WatchedCollection); 4],
    /// Whether certificates of its port for authenticated clients cannot be used.
    pub certificates_unusable: bool,
    /// Events of pods without a place, by result.
    pub events: [(&'static str, u64); 2],
    /// Gated pods, where it places them.
    pub gate: Option<GateReport>,
}

/// Calls of one verb.
#[derive(Debug, Clone, Default)]
pub struct VerbCalls {
    /// Durations of answered calls.
    pub answered: CallTimes,
    /// Calls that were not answered because the extender was not ready.
    pub not_ready: u64,
    /// The same because they are not of the protocol.
    pub faulty: u64,
    /// The same because there were too many at a time.
    pub too_many: u64,
}

/// A collection of the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchedCollection {
    /// Whether the API server tells of no changes.
    pub is_degraded: bool,
    /// Time since it told of one.
    pub changed: Option<Duration>,
}

const BUILD_INFO: FamilyOf<2> = Family::gauge(
    "scheduler_build_info",
    ["version", "commit"],
    "Version of the extender, and the commit that it is built from, in a release.",
);
const READY: FamilyOf<0> = Family::gauge(
    "scheduler_ready",
    [],
    "1 while calls of kube-scheduler are answered, or would be if this replica led; 0 before all lists are read, and while the API server tells of no changes.",
);
const LEADS: FamilyOf<0> = Family::gauge(
    "scheduler_leads",
    [],
    "1 while this replica is the one that answers, of several with a lease; 1 without a lease, too.",
);
const CALL_DURATION: FamilyOf<1> = Family::histogram_of(
    "scheduler_call_duration_seconds",
    ["verb"],
    "Duration of answered calls of kube-scheduler in seconds, from the end of the request to the answer; of bind with the request to the API server.",
)
.of(&[VERB]);
const UNANSWERED: FamilyOf<2> = Family::counter(
    "scheduler_calls_unanswered_total",
    ["verb", "cause"],
    "Calls of kube-scheduler without an answer, by cause: the extender was not ready, the call is not of the protocol or too long, or there were too many at a time. kube-scheduler tries the pod again.",
)
.of(&[VERB, CALL_CAUSE]);
const ANSWERS: FamilyOf<2> = Family::counter(
    "scheduler_answers_total",
    ["verb", "outcome"],
    "Answers of nodes about pods: passed with a place, not-concerned or unpublished without one, and refused for what was short, for an earlier pod, or because the state of the node is unknown.",
)
.of(&[BIND_VERB, values::ANSWER]);
const BIND_ENDS: FamilyOf<1> = Family::counter(
    "scheduler_bind_calls_total",
    ["end"],
    "Bind calls by end; no-reply: the binding may have landed, or land later.",
)
.of(&[values::BIND_END]);
const RESERVATIONS: FamilyOf<0> =
    Family::gauge("scheduler_reservations", [], "Pods that hold a place since a filter call.");
const CLAIMS: FamilyOf<0> = Family::gauge(
    "scheduler_claims",
    [],
    "Places of pods whose binding was sent, until the API server shows the pod with its node.",
);
const UNSETTLED: FamilyOf<0> = Family::gauge(
    "scheduler_claims_unsettled",
    [],
    "Of these, places of pods whose binding had no reply; their nodes take no other pod that needs CPUs, memory or devices of its own.",
);
const FOREIGN: FamilyOf<0> = Family::counter(
    "scheduler_foreign_pods_total",
    [],
    "Pods with CPUs, memory or devices of their own that came to a node without a call, counted while kube-scheduler asks this extender.",
);
const PREDICTIONS: FamilyOf<1> = Family::counter(
    "scheduler_predictions_total",
    ["outcome"],
    "Bound pods by whether their node put them where this extender predicted; unchecked: a pod that ended may explain another place.",
)
.of(&[values::PREDICTION_OUTCOME]);
const NODES: FamilyOf<1> = Family::gauge(
    "scheduler_nodes",
    ["state"],
    "Nodes by what their published state is worth: exact, unknown while it cannot be used, and unpublished before the first one.",
)
.of(&[values::NODE_STATE]);
const LONG_UNKNOWN: FamilyOf<0> = Family::gauge(
    "scheduler_nodes_long_unknown",
    [],
    "Of the unknown nodes, those that have been unknown for ten minutes; they take no pod with CPUs, memory or devices of its own.",
);
const DEGRADED: FamilyOf<1> = Family::gauge(
    "scheduler_degraded",
    ["collection"],
    "1 while the API server tells of no changes of this collection.",
)
.of(&[values::COLLECTION]);
const CHANGE_AGE: FamilyOf<1> = Family::gauge(
    "scheduler_change_age_seconds",
    ["collection"],
    "Time since the API server told of a change or a list of this collection, in seconds.",
)
.of(&[values::COLLECTION]);

const CERTIFICATES_UNUSABLE: FamilyOf<0> = Family::gauge(
    "scheduler_certificates_unusable",
    [],
    "1 while the certificate files of the port with TLS cannot be read or used; those from before stay in use until they expire.",
);

const EVENTS: FamilyOf<1> = Family::counter(
    "scheduler_events_total",
    ["result"],
    "Events of pods for which no node has a place: written, or dropped beyond the rate or by the API server.",
)
.of(&[values::EVENT_RESULT]);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[
    &BUILD_INFO,
    &READY,
    &LEADS,
    &CALL_DURATION,
    &UNANSWERED,
    &ANSWERS,
    &BIND_ENDS,
    &RESERVATIONS,
    &CLAIMS,
    &UNSETTLED,
    &FOREIGN,
    &PREDICTIONS,
    &NODES,
    &LONG_UNKNOWN,
    &DEGRADED,
    &CHANGE_AGE,
    &CERTIFICATES_UNUSABLE,
    &EVENTS,
];

impl Metrics {
    /// Metrics of an extender, of what `look` gives at the time of a scrape.
    ///
    /// # Errors
    /// If Prometheus does not take a name.
    pub fn of_scheduler(
        look: impl Fn() -> SchedulerReport + Send + Sync + 'static,
    ) -> Result<Self, MetricsError> {
        let registry = Registry::new_custom(Some(PREFIX.to_owned()), None)?;
        let families = sections::of_scheduler().families;
        let descriptions = families.into_iter().map(Family::describe).collect::<Result<_, _>>()?;
        registry.register(Box::new(ExtenderCollector { look, descriptions }))?;
        Ok(Self(registry))
    }
}

struct ExtenderCollector<F> {
    look: F,
    descriptions: Vec<Desc>,
}

impl<F: Fn() -> SchedulerReport + Send + Sync> Collector for ExtenderCollector<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut scrape = Scrape::default();
        put(&(self.look)(), &mut scrape);
        scrape.into_families()
    }
}

fn put(report: &SchedulerReport, scrape: &mut Scrape) {
    scrape.put(&BUILD_INFO, &[report.version, report.commit.unwrap_or_default()], Some(1.0));
    scrape.put(&READY, &[], Some(truth(report.ready)));
    scrape.put(&LEADS, &[], Some(truth(report.leads)));
    for (verb, calls) in VERB.1.iter().zip(&report.calls) {
        scrape.put_times(&CALL_DURATION, &[verb], &calls.answered);
        let causes = [calls.not_ready, calls.faulty, calls.too_many];
        for (cause, calls) in CALL_CAUSE.1.iter().zip(causes) {
            scrape.put(&UNANSWERED, &[verb, cause], Some(to_f64(calls)));
        }
    }
    for (verb, answers) in BIND_VERB.1.iter().zip([&report.filtered, &report.bound]) {
        for (outcome, number) in answers.by_name() {
            scrape.put(&ANSWERS, &[verb, outcome], Some(to_f64(number)));
        }
    }
    for (end, calls) in &report.bind_ends {
        scrape.put(&BIND_ENDS, &[end], Some(to_f64(*calls)));
    }
    scrape.put(&RESERVATIONS, &[], Some(count(report.reservations)));
    scrape.put(&CLAIMS, &[], Some(count(report.claims)));
    scrape.put(&UNSETTLED, &[], Some(count(report.unsettled_claims)));
    scrape.put(&FOREIGN, &[], Some(to_f64(report.foreign)));
    for (outcome, number) in report.predictions {
        scrape.put(&PREDICTIONS, &[outcome], Some(to_f64(number)));
    }
    let NodeCounts { exact, unknown, unpublished, long_unknown } = report.nodes;
    scrape.put(&LONG_UNKNOWN, &[], Some(count(long_unknown)));
    for (state, nodes) in values::NODE_STATE.1.iter().zip([exact, unknown, unpublished]) {
        scrape.put(&NODES, &[state], Some(count(nodes)));
    }
    for (name, WatchedCollection { is_degraded, changed }) in report.collections {
        scrape.put(&DEGRADED, &[name], Some(truth(is_degraded)));
        scrape.put(&CHANGE_AGE, &[name], changed.map(|age| age.as_secs_f64()));
    }
    scrape.put(&CERTIFICATES_UNUSABLE, &[], Some(truth(report.certificates_unusable)));
    for (result, number) in report.events {
        scrape.put(&EVENTS, &[result], Some(to_f64(number)));
    }
    if let Some(report) = &report.gate {
        gate::put(report, scrape);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use enforcer_core::cluster::{
        extender::BindCallEnd,
        gate::{GateCounts, GateEnd},
    };

    use super::*;

    fn report() -> SchedulerReport {
        let mut calls: [VerbCalls; 3] = Default::default();
        calls[0].answered.note(Duration::from_millis(3));
        calls[2] = VerbCalls { not_ready: 1, faulty: 2, too_many: 3, ..VerbCalls::default() };
        SchedulerReport {
            version: "1.2.3",
            ready: true,
            calls,
            bind_ends: BindCallEnd::NAMES.iter().copied().zip(5..).collect(),
            reservations: 4,
            claims: 3,
            unsettled_claims: 1,
            foreign: 7,
            predictions: [("right", 9), ("wrong", 1), ("unchecked", 2)],
            nodes: NodeCounts { exact: 5, unknown: 2, unpublished: 1, long_unknown: 1 },
            collections: ["nodes", "states", "pods", "leases"].map(|name| {
                let changed = (name != "leases").then_some(Duration::from_millis(1_500));
                (name, WatchedCollection { is_degraded: name == "pods", changed })
            }),
            certificates_unusable: true,
            events: [("written", 6), ("dropped", 2)],
            gate: Some(GateReport {
                is_active: true,
                pods: GateCounts { gated: 3, placed: 2, late: 1, unread: 4, refused: 5, oldest: 90 },
                ends: GateEnd::NAMES.iter().copied().zip(10..).collect(),
                late: 8,
            }),
            ..SchedulerReport::default()
        }
    }

    fn text() -> String {
        Metrics::of_scheduler(report).unwrap().render().unwrap()
    }

    #[test]
    fn scrape_has_what_the_extender_reports() {
        let text = text();
        for line in [
            "build_info{commit=\"\",version=\"1.2.3\"} 1",
            "ready 1",
            "call_duration_seconds_bucket{verb=\"filter\",le=\"0.0025\"} 0",
            "call_duration_seconds_bucket{verb=\"filter\",le=\"0.005\"} 1",
            "call_duration_seconds_count{verb=\"prioritize\"} 0",
            "calls_unanswered_total{cause=\"not-ready\",verb=\"bind\"} 1",
            "calls_unanswered_total{cause=\"faulty\",verb=\"bind\"} 2",
            "calls_unanswered_total{cause=\"too-many\",verb=\"bind\"} 3",
            "answers_total{outcome=\"whole-cores\",verb=\"filter\"} 0",
            "bind_calls_total{end=\"bound\"} 5",
            "bind_calls_total{end=\"no-reply\"} 9",
            "reservations 4",
            "claims 3",
            "claims_unsettled 1",
            "foreign_pods_total 7",
            "predictions_total{outcome=\"wrong\"} 1",
            "nodes{state=\"exact\"} 5",
            "nodes{state=\"unpublished\"} 1",
            "nodes_long_unknown 1",
            "degraded{collection=\"pods\"} 1",
            "degraded{collection=\"nodes\"} 0",
            "change_age_seconds{collection=\"nodes\"} 1.5",
            "certificates_unusable 1",
            "events_total{result=\"dropped\"} 2",
            "gate_active 1",
            "gate_pods{state=\"placed\"} 2",
            "gate_pods{state=\"unread\"} 4",
            "gate_pods{state=\"refused\"} 5",
            "gate_oldest_age_seconds 90",
            "gate_changes_total{end=\"placed\"} 10",
            "gate_changes_total{end=\"no-reply\"} 15",
            "gate_late_total 8",
        ] {
            assert!(text.contains(&format!("\nnuma_enforcer_scheduler_{line}\n")), "{line} in {text}");
        }
        assert!(!text.contains("change_age_seconds{collection=\"leases\"}"), "none was told");
    }

    #[test]
    fn every_family_has_series_and_no_other_has() {
        let text = text();
        let served = text.lines().filter_map(|line| line.strip_prefix("# TYPE numa_enforcer_"));
        let served: BTreeSet<&str> = served.map(|line| line.split(' ').next().unwrap()).collect();
        let all = ALL.iter().chain(gate::ALL);
        assert_eq!(served, all.map(|family| family.name).collect());
    }
}
