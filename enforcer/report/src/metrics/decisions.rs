//! Findings, decisions and outcomes.

use enforcer_core::{
    audit::{Audit, AuditedWorkload},
    finding::Severity,
    named::Named as _,
    owner::Owner,
    turn::RefusalCause,
};

use super::{
    family::{Family, FamilyOf, Scrape},
    number::{count, to_f64},
    values,
};
use crate::tick::TickReport;

const FINDINGS: FamilyOf<1> =
    Family::gauge("findings", ["severity"], "Findings of the latest turn.").of(&[values::SEVERITY]);
const OWNERS: FamilyOf<1> = Family::gauge(
    "workloads_by_owner",
    ["owner"],
    "Workloads by owner of their cpuset. Workloads that another controller owns are never changed.",
)
.of(&[values::OWNER]);
const REFUSED: FamilyOf<1> = Family::gauge(
    "workloads_refused",
    ["cause"],
    "Workloads that are left where they are though they are not in place.",
)
.of(&[values::REFUSED]);
const ACTIONS: FamilyOf<2> =
    Family::counter("actions_total", ["action", "result"], "Steps of plans by result.")
        .of(&[values::ACTION, values::STEP_RESULT]);
const PAGE_MOVE_CALLS: FamilyOf<0> = Family::histogram(
    "page_move_call_duration_seconds",
    "Duration of move_pages calls in seconds, without moves between memory tiers.",
);
const DRIFT: FamilyOf<1> = Family::counter("cpuset_drift_total",
    ["result"],
    "Cpusets kept by the daemon that another program wrote: repaired, failed to be, or left-alone from then on because \
     three repairs within an hour did not last.",
)
.of(&[values::DRIFT]);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[&FINDINGS, &OWNERS, &REFUSED, &ACTIONS, &PAGE_MOVE_CALLS, &DRIFT];

/// Series of a turn.
pub(super) fn put(report: &TickReport, scrape: &mut Scrape) {
    found(&report.audit, scrape);
    for cause in RefusalCause::ALL {
        let refused = report.decision.refused.iter().filter(|refusal| refusal.cause == cause);
        scrape.put(&REFUSED, &[cause.name()], Some(count(refused.count())));
    }
    let drift = report.totals.drift;
    for (result, count) in
        [("repaired", drift.repaired), ("failed", drift.failed), ("left-alone", drift.left_alone)]
    {
        scrape.put(&DRIFT, &[result], Some(to_f64(count)));
    }
    if let Some(times) = &report.totals.page_move_calls {
        scrape.put_times(&PAGE_MOVE_CALLS, &[], times);
    }
    for (action, results) in &report.totals.actions {
        for (result, steps) in results {
            scrape.put(&ACTIONS, &[action, result], Some(to_f64(*steps)));
        }
    }
}

/// Series of a single audit.
pub(super) fn found(audit: &Audit, scrape: &mut Scrape) {
    for severity in [Severity::Info, Severity::Warning, Severity::Critical] {
        let findings = audit.findings.iter().filter(|finding| finding.severity == severity);
        scrape.put(&FINDINGS, &[severity.name()], Some(count(findings.count())));
    }
    for &owner in Owner::ALL {
        let is_owner = |workload: &&AuditedWorkload| {
            workload.owner.as_ref().is_some_and(|ownership| ownership.owner == owner)
        };
        let owned = audit.workloads.iter().filter(is_owner).count();
        scrape.put(&OWNERS, &[owner.name()], Some(count(owned)));
    }
}
