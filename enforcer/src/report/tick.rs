//! What one turn of the daemon saw, decided and did: the source of `/report.json`, of the metrics
//! and of the line that `run` prints.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::{Audit, AuditedWorkload, Verdict},
    decide::Decision,
    id::NodeId,
    plan::{Action, Outcome, OutcomeResult},
    policy::Mode,
    sample::{EventCounts, HintFaults, KernelSide, NodeSample, Placements, PressureEvents, RunTime, Sample},
    workload::CgroupPath,
};
use serde::Serialize;

use super::{
    text::{escape, fit},
    units,
};

/// Version of the serde form of [`TickReport`].
pub const TICK_SCHEMA_VERSION: u32 = 1;

/// Misaligned workloads that are named in the line; the others are counted.
const NAMES: usize = 3;
/// Columns of a name in the line.
const NAME_WIDTH: usize = 40;

/// One turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TickReport {
    /// [`TICK_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// May the daemon write?
    pub mode: Mode,
    /// What was seen, and what is wrong with it.
    pub audit: Audit,
    /// Counters of the nodes at that time.
    pub nodes: BTreeMap<NodeId, NodeSample>,
    /// Events of the kernel side since it was attached; `None` where it tells none.
    pub events: Option<EventCounts>,
    /// What the kernel side counted of each workload's cgroup since it is watched.
    pub counters: BTreeMap<CgroupPath, Counters>,
    /// How the kernel side itself fares.
    pub kernel_side: Option<KernelSide>,
    /// Memory that got short since the turn before; `None` where nothing tells.
    pub pressure: Option<PressureEvents>,
    /// What shall be done.
    pub decision: Decision,
    /// What became of it; dry runs in observe mode.
    pub outcomes: Vec<Outcome>,
    /// Since the daemon started.
    pub totals: Totals,
}

/// What the kernel side counted; none of what it has no program for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Time on CPUs of each node.
    pub run_time: Option<BTreeMap<NodeId, RunTime>>,
    /// Tasks put on a CPU.
    pub placements: Option<Vec<Placements>>,
    /// NUMA hinting faults.
    pub hint_faults: Option<BTreeMap<NodeId, HintFaults>>,
}

impl Counters {
    /// Of every cgroup of a sample that anything was counted for.
    pub fn of(sample: &Sample) -> BTreeMap<CgroupPath, Self> {
        let counters = sample.cgroups.iter().map(|(path, cgroup)| {
            let counters = Self {
                run_time: cgroup.run_time.clone(),
                placements: cgroup.placements.clone(),
                hint_faults: cgroup.hint_faults.clone(),
            };
            (path.clone(), counters)
        });
        counters.filter(|(_, counters)| *counters != Self::default()).collect()
    }
}

/// Counts since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Turns that were completed.
    pub ticks: u64,
    /// Turns that failed.
    pub failed_ticks: u64,
    /// Duration of the latest turn; `None` in the first, which is not over yet when it is reported.
    pub last_tick_seconds: Option<f64>,
    /// Steps by action and by result.
    pub actions: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Was the latest reading of the configuration good?
    pub config_good: bool,
}

impl Totals {
    /// Adds what became of the steps of a plan.
    pub fn count(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let by_result = self.actions.entry(action_name(&outcome.step.action)).or_default();
            *by_result.entry(result_name(&outcome.result)).or_default() += 1;
        }
    }
}

impl TickReport {
    /// The turn in one line, without a newline: verdicts with the names of the worst, the highest
    /// remote shares, what was done. What there is nothing of is left out.
    pub fn line(&self) -> String {
        let workloads = &self.audit.workloads;
        let mut parts = vec![units::count(self.audit.summary.total, "workload")];
        let verdicts = units::verdicts(&self.audit.summary);
        parts.extend(Some(verdicts).filter(|verdicts| !verdicts.is_empty()));
        parts.extend(misaligned(workloads));
        let traffic = |of: &AuditedWorkload| of.traffic.as_ref().map(|traffic| traffic.remote_ratio);
        parts.extend(highest("remote traffic", workloads, traffic));
        parts.extend(highest("remote residency", workloads, |of| of.remote_residency));
        for (result, count) in self.results() {
            parts.push(format!("{} {result}", units::count(count, "step")));
        }
        for (count, what) in
            [(self.decision.refused.len(), "refused"), (self.audit.degraded.len(), "degraded")]
        {
            parts.extend((count > 0).then(|| format!("{count} {what}")));
        }
        format!("tick {}: {}", self.totals.ticks, parts.join("; "))
    }

    /// One line for each step that did not come out as planned.
    pub fn complaints(&self) -> Vec<String> {
        self.outcomes.iter().filter_map(complaint).collect()
    }

    fn results(&self) -> BTreeMap<&'static str, usize> {
        let mut results = BTreeMap::new();
        for outcome in &self.outcomes {
            *results.entry(result_name(&outcome.result)).or_default() += 1;
        }
        results
    }
}

/// `misaligned: a, b and 3 more`.
fn misaligned(workloads: &[AuditedWorkload]) -> Option<String> {
    let names: Vec<String> =
        workloads.iter().filter(|of| of.verdict == Verdict::Misaligned).map(shown_name).collect();
    let first = names.get(..NAMES.min(names.len()))?.join(", ");
    match names.len().saturating_sub(NAMES) {
        _ if names.is_empty() => None,
        0 => Some(format!("misaligned: {first}")),
        more => Some(format!("misaligned: {first} and {more} more")),
    }
}

/// `remote traffic up to 97% (NAME)`; nothing where every share is 0 or unknown.
fn highest(
    what: &str,
    workloads: &[AuditedWorkload],
    share: impl Fn(&AuditedWorkload) -> Option<f64>,
) -> Option<String> {
    let (share, of) = workloads
        .iter()
        .filter_map(|of| Some((share(of).filter(|share| *share > 0.0)?, of)))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(format!("{what} up to {} ({})", units::percent(share), shown_name(of)))
}

fn shown_name(workload: &AuditedWorkload) -> String {
    fit(&workload.name, NAME_WIDTH)
}

fn complaint(outcome: &Outcome) -> Option<String> {
    let text = match &outcome.result {
        OutcomeResult::Applied { .. } | OutcomeResult::DryRun => return None,
        OutcomeResult::Differs { wanted, read_back } => format!("wanted {wanted}, is {read_back}"),
        OutcomeResult::Failed { error } => error.clone(),
        OutcomeResult::RolledBack { because, error: None } | OutcomeResult::Skipped { because } => {
            because.clone()
        }
        OutcomeResult::RolledBack { because, error: Some(error) } => {
            format!("{because}; taking it back failed: {error}")
        }
    };
    let cgroup = outcome.step.action.cgroup();
    let (action, result) = (action_name(&outcome.step.action), result_name(&outcome.result));
    Some(escape(&format!("{cgroup}: {action} {result}: {text}")).into_owned())
}

/// `set-cpus`, as in the plan's JSON.
pub(super) fn action_name(action: &Action) -> &'static str {
    match action {
        Action::SetCpus { .. } => "set-cpus",
        Action::SetMems { .. } => "set-mems",
        Action::MovePages { .. } => "move-pages",
    }
}

/// `applied`, as in the outcome's JSON.
pub(super) fn result_name(result: &OutcomeResult) -> &'static str {
    match result {
        OutcomeResult::Applied { .. } => "applied",
        OutcomeResult::Differs { .. } => "differs",
        OutcomeResult::Failed { .. } => "failed",
        OutcomeResult::DryRun => "dry-run",
        OutcomeResult::RolledBack { .. } => "rolled-back",
        OutcomeResult::Skipped { .. } => "skipped",
    }
}
