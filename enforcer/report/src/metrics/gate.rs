//! Gated pods (`numa-enforcer scheduler gate`).

use enforcer_core::cluster::gate::GateCounts;

use super::{
    family::{Family, FamilyOf, Scrape},
    number::{count, to_f64, truth},
    values,
};

/// What a gate reports in a scrape; counts are since its start.
#[derive(Debug, Clone, Default)]
pub struct GateReport {
    /// Whether it changes pods.
    pub is_active: bool,
    /// Pods as of now.
    pub pods: GateCounts,
    /// Attempts to change pods by their end.
    pub ends: Vec<(&'static str, u64)>,
    /// Placed pods that were late.
    pub late: u64,
}

const ACTIVE: FamilyOf<0> = Family::gauge(
    "scheduler_gate_active",
    [],
    "1 while gated pods are changed; 0 before all lists are read, while the API server tells of no changes, and on a replica that does not lead.",
);
const PODS: FamilyOf<1> = Family::gauge(
    "scheduler_gate_pods",
    ["state"],
    "Pods that are gated, that have got their node and are not bound, and of these those that are late; unread: gated ones beside these that cannot be read; refused: of the gated ones, those that the API server refuses to change each time.",
)
.of(&[values::GATED_STATE]);
const OLDEST: FamilyOf<0> = Family::gauge(
    "scheduler_gate_oldest_age_seconds",
    [],
    "Age of the oldest gated pod in seconds, as of the last look at late pods; 0 without one.",
);
const CHANGES: FamilyOf<1> = Family::counter(
    "scheduler_gate_changes_total",
    ["end"],
    "Attempts to change a gated pod by end: placed, released without a node because no manager has a say or because its requirements are not computed, or not done; no-reply: the change may land.",
)
.of(&[values::GATE_END]);
const LATE: FamilyOf<0> = Family::counter(
    "scheduler_gate_late_total",
    [],
    "Pods that were not bound in time after they got their node.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[&ACTIVE, &PODS, &OLDEST, &CHANGES, &LATE];

pub(super) fn put(report: &GateReport, scrape: &mut Scrape) {
    scrape.put(&ACTIVE, &[], Some(truth(report.is_active)));
    let GateCounts { gated, placed, late, unread, refused, oldest } = report.pods;
    for (state, pods) in values::GATED_STATE.1.iter().zip([gated, placed, late, unread, refused]) {
        scrape.put(&PODS, &[state], Some(count(pods)));
    }
    scrape.put(&OLDEST, &[], Some(to_f64(u64::try_from(oldest).unwrap_or(0))));
    for (end, changes) in &report.ends {
        scrape.put(&CHANGES, &[end], Some(to_f64(*changes)));
    }
    scrape.put(&LATE, &[], Some(to_f64(report.late)));
}
