//! The daemon itself, and its missing sources.

use std::collections::BTreeMap;

use enforcer_core::{audit::Audit, policy::Mode, sample::EventCounts};

use super::{
    family::{Family, FamilyOf, Scrape},
    number::{count, to_f64, truth},
    values,
};
use crate::tick::TickReport;

const BUILD_INFO: FamilyOf<2> = Family::gauge(
    "build_info",
    ["version", "commit"],
    "Version of numa-enforcer, and the commit that it is built from, in a release.",
);
const ENFORCING: FamilyOf<0> =
    Family::gauge("enforcing", [], "1 when the daemon may write: in enforce mode, and not paused.");
const PAUSED: FamilyOf<0> =
    Family::gauge("paused", [], "1 while enforcement is paused over the control socket.");
const TICKS: FamilyOf<0> = Family::counter("ticks_total", [], "Turns that were completed.");
const TICK_ERRORS: FamilyOf<0> = Family::counter("tick_errors_total", [], "Turns that failed.");
const TICK_DURATION: FamilyOf<0> =
    Family::gauge("tick_duration_seconds", [], "Duration of the latest completed turn.");
const CONFIG_GOOD: FamilyOf<0> =
    Family::gauge("config_last_reload_successful", [], "1 when the configuration was good.");
const DEGRADED: FamilyOf<1> = Family::gauge("degraded", ["feature"], "Sources that are missing.");
const EVENTS: FamilyOf<1> = Family::counter(
    "kernel_events_total",
    ["result"],
    "Misplacement events by outcome: reported, or the reason it was not. The counters have all of them.",
)
.of(&[values::RING]);
const CLUSTER_EVENTS: FamilyOf<1> = Family::counter(
    "cluster_events_total",
    ["result"],
    "Events of this node and its pods in the cluster: written, or dropped beyond the rate or by the API server.",
)
.of(&[values::EVENT_RESULT]);
const CLUSTER_PREDICTIONS: FamilyOf<1> = Family::counter(
    "cluster_predictions_total",
    ["outcome"],
    "Pods that came to this node, by whether it did with them what its published state predicts; unchecked: something else may explain what it did.",
)
.of(&[values::PREDICTION_OUTCOME]);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[
    &BUILD_INFO,
    &ENFORCING,
    &PAUSED,
    &TICKS,
    &TICK_ERRORS,
    &TICK_DURATION,
    &CONFIG_GOOD,
    &DEGRADED,
    &EVENTS,
    &CLUSTER_EVENTS,
    &CLUSTER_PREDICTIONS,
];

/// Series of a turn.
pub(super) fn put(report: &TickReport, scrape: &mut Scrape) {
    looked(&report.audit, scrape);
    if let Some(events) = report.events {
        put_counts(&EVENTS, events, scrape);
    }
    let totals = &report.totals;
    if let Some(events) = totals.cluster_events {
        scrape.put(&CLUSTER_EVENTS, &["written"], Some(to_f64(events.written)));
        scrape.put(&CLUSTER_EVENTS, &["dropped"], Some(to_f64(events.dropped)));
    }
    if let Some(predictions) = totals.cluster_predictions {
        for (outcome, count) in
            [("right", predictions.right), ("wrong", predictions.wrong), ("unchecked", predictions.unchecked)]
        {
            scrape.put(&CLUSTER_PREDICTIONS, &[outcome], Some(to_f64(count)));
        }
    }
    let paused = report.paused.is_some();
    scrape.put(&ENFORCING, &[], Some(truth(report.mode == Mode::Enforce && !paused)));
    scrape.put(&PAUSED, &[], Some(truth(paused)));
    scrape.put(&TICKS, &[], Some(to_f64(totals.ticks)));
    scrape.put(&TICK_ERRORS, &[], Some(to_f64(totals.failed_ticks)));
    scrape.put(&TICK_DURATION, &[], totals.last_tick_seconds);
    scrape.put(&CONFIG_GOOD, &[], Some(truth(totals.config_good)));
}

/// The daemon itself, and its degraded parts.
pub(super) fn looked(audit: &Audit, scrape: &mut Scrape) {
    let mut degraded: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &audit.degraded {
        // `cgroup:/a/b` counts as `cgroup`: the objects are for the report, not for labels.
        let feature = entry.source.split_once(':').map_or(entry.source.as_str(), |(kind, _)| kind);
        *degraded.entry(feature).or_default() += 1;
    }
    for (feature, entries) in degraded {
        scrape.put(&DEGRADED, &[feature], Some(count(entries)));
    }
    scrape.put(
        &BUILD_INFO,
        &[&audit.tool.version, audit.tool.commit.as_deref().unwrap_or_default()],
        Some(1.0),
    );
}

/// Counts of the events of a ring.
pub(super) fn put_counts(family: &'static FamilyOf<1>, events: EventCounts, scrape: &mut Scrape) {
    for (result, count) in [
        ("told", events.told),
        ("forgotten", events.forgotten),
        ("ring-full", events.ring_full),
        ("limited", events.limited),
    ] {
        scrape.put(family, &[result], Some(to_f64(count)));
    }
}
