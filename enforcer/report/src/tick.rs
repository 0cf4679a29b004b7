//! Report of one turn of the daemon: the source of `/report.json`, of the metrics and of the line that `run`
//! prints.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::{Audit, AuditVerdict, AuditedWorkload},
    call_times::CallTimes,
    declarations::DeclaredEntry,
    model::Activity,
    named::Named as _,
    plan::{Action, Outcome, OutcomeResult},
    policy::Mode,
    rebalance::RebalanceReport,
    sample::{
        Change, ChangeKind, Changes, CpusetFile, EventCounts, KernelSide, NodeSample, OtherPageMoves,
        PressureEvents,
    },
    turn::{Decision, DriftCounts, RefusalCause},
    workload::CgroupPath,
};
use numa_topology::id::NodeId;
use serde::Serialize;

use super::{
    claims::ClaimsReport,
    counters::Counters,
    demotion::DemotionReport,
    interrupts::InterruptReport,
    runtime::RuntimeReport,
    status::Paused,
    text::{escape, fit},
    units,
    view::{step, verdicts::VerdictCounts},
    widening::WideningReport,
};

/// Version of the serde form of [`TickReport`].
pub const TICK_SCHEMA_VERSION: u32 = 2;

/// Turns after which there are figures for the time between two, and what they led to was seen.
const COMPARED: u64 = 3;

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
    /// Enforcement is paused: nothing was written.
    pub paused: Option<Paused>,
    /// When it began, in nanoseconds of the kernel's monotonic clock.
    pub begun_ns: u64,
    /// Observations and findings.
    pub audit: Audit,
    /// Counters of the nodes at that time.
    pub nodes: BTreeMap<NodeId, NodeSample>,
    /// Rates since the turn before.
    pub activity: Activity,
    /// Names of the pods that workloads are containers of.
    pub pods: BTreeMap<CgroupPath, ContainerNames>,
    /// Events of the kernel side since it was attached; `None` without a source.
    pub events: Option<EventCounts>,
    /// Counters of the kernel side for each workload's cgroup since it is watched.
    pub counters: BTreeMap<CgroupPath, Counters>,
    /// How the kernel side itself fares.
    pub kernel_side: Option<KernelSide>,
    /// Memory pressure since the turn before; `None` without a source.
    pub pressure: Option<PressureEvents>,
    /// Memory nodes added to workloads on nearly full nodes; `None` where widening is off.
    pub widening: Option<WideningReport>,
    /// Pages that no workload moved; `None` where nothing counts them.
    pub other_page_moves: Option<OtherPageMoves>,
    /// The container runtime; `None` where none was looked for.
    pub runtime: Option<RuntimeReport>,
    /// Resource claims; `None` where the DRA driver is off.
    pub claims: Option<ClaimsReport>,
    /// Interrupts of devices; `None` where no workload has exclusive CPUs or devices of its own.
    pub interrupts: Option<InterruptReport>,
    /// Moves to slower memory and back.
    pub demotion: DemotionReport,
    /// Foreign cpuset writes and new memory policies since the turn before; `None` without a source.
    pub changes: Option<Changes>,
    /// The `[[workload]]` entries and the workloads that they match.
    pub entries: Vec<DeclaredEntry>,
    /// Plan of the turn.
    pub decision: Decision,
    /// Better places for running workloads; `None` where that was not asked for.
    pub rebalanced: Option<Rebalanced>,
    /// Outcomes of its steps; dry runs in observe mode.
    pub outcomes: Vec<Outcome>,
    /// Since the daemon started.
    pub totals: TickTotals,
}

impl TickReport {
    /// Is there nothing that the next turn would go on with, or that has to be measured from turn to turn?
    pub fn is_settled(&self) -> bool {
        let cools = self.decision.refused.iter().any(|one| one.cause == RefusalCause::CoolDown);
        let widened =
            self.widening.as_ref().is_some_and(|one| !one.widened.is_empty() || !one.waiting.is_empty());
        let planned = !self.decision.plan.steps.is_empty() || self.rebalanced.is_some();
        self.totals.ticks >= COMPARED
            && self.paused.is_none()
            && !(planned || cools || widened)
            && self.demotion.is_empty()
    }
}

/// Kubernetes' names of a container; untrusted text, chosen by the author of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerNames {
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// Its name in the pod.
    pub container: String,
}

/// Counts since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TickTotals {
    /// Turns that were completed.
    #[serde(rename = "turns")]
    pub ticks: u64,
    /// Turns that failed.
    #[serde(rename = "failedTurns")]
    pub failed_ticks: u64,
    /// Duration of the latest turn; `None` in the first, which is not over yet when it is reported.
    #[serde(rename = "lastTurnSeconds")]
    pub last_tick_seconds: Option<f64>,
    /// Steps by action and by result.
    pub actions: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Results of foreign writes to kept cpusets.
    pub drift: DriftCounts,
    /// Times of the calls that moved pages; `None` where none are made.
    pub page_move_calls: Option<CallTimes>,
    /// Workloads that were given a better place.
    pub rebalance: RebalanceTotals,
    /// Counters of the kernel side for all workloads, including ended ones.
    pub counters: Counters,
    /// Was the latest reading of the configuration good?
    pub config_good: bool,
    /// Events in the cluster; `None` where none are made.
    pub cluster_events: Option<ClusterEventTotals>,
    /// Predictions from published states; `None` where none are made.
    pub cluster_predictions: Option<ClusterPredictionTotals>,
}

/// Counts of the events of this node and its pods in the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterEventTotals {
    /// Writes that the API server has taken.
    pub written: u64,
    /// Events that no write tells of.
    pub dropped: u64,
}

/// Counts of pods by whether the node did with them what its published state predicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPredictionTotals {
    /// It did.
    pub right: u64,
    /// It did something else.
    pub wrong: u64,
    /// Something else may explain what it did.
    pub unchecked: u64,
}

/// A plan of better places.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rebalanced {
    /// Its moves were begun; if not, they would have been in enforce mode.
    pub begun: bool,
    /// The plan.
    pub report: RebalanceReport,
}

/// Counts of moves, and what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RebalanceTotals {
    /// Moves begun, in workloads.
    pub begun: u64,
    /// Finished moves that helped.
    pub held: u64,
    /// Finished moves that did not help and were undone.
    pub reverted: u64,
    /// Finished moves that did not help and could not be undone.
    pub stays: u64,
    /// Moves that failed.
    pub given_up: u64,
    /// Bytes that the moves were to move.
    pub bytes: u64,
}

impl TickTotals {
    /// Adds what became of the steps of a plan.
    pub fn count(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let by_result = self.actions.entry(outcome.step.action.name()).or_default();
            *by_result.entry(outcome.result.name()).or_default() += 1;
        }
    }
}

impl TickReport {
    /// The turn in one line, without a newline: verdicts with the names of the worst, the highest remote
    /// ratios, steps. Empty parts are left out.
    pub fn line(&self) -> String {
        let workloads = &self.audit.workloads;
        let mut parts: Vec<String> = self.paused.map(Paused::line).into_iter().collect();
        parts.push(units::count(self.audit.summary.total, "workload"));
        let verdicts = VerdictCounts::from(&self.audit.summary).to_string();
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
        format!("turn {}: {}", self.totals.ticks, parts.join("; "))
    }

    /// One line for each step that did not end as planned, except for remaining pages.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints_of(|outcome| !is_remainder(outcome))
    }

    /// One line for each move with remaining pages. A starting process maps, locks and frees pages during the
    /// move; a later turn moves the rest, or the kernel when the memory nodes are narrowed.
    pub fn remainders(&self) -> Vec<String> {
        self.complaints_of(is_remainder)
    }

    fn complaints_of(&self, wanted: impl Fn(&Outcome) -> bool) -> Vec<String> {
        let complaints = self.outcomes.iter().filter(|outcome| wanted(outcome)).filter_map(step::complaint);
        complaints.map(|line| escape(&line).into_owned()).collect()
    }

    /// One line for each cpuset write of another program, with its process.
    pub fn foreign_writes(&self) -> Vec<String> {
        self.changes.iter().flat_map(|changes| &changes.latest).filter_map(foreign_write).collect()
    }

    fn results(&self) -> BTreeMap<&'static str, usize> {
        let mut results = BTreeMap::new();
        for outcome in &self.outcomes {
            *results.entry(outcome.result.name()).or_default() += 1;
        }
        results
    }
}

/// The command is whatever its process calls itself, so it is quoted.
fn foreign_write(change: &Change) -> Option<String> {
    let ChangeKind::CpusetWritten { file } = change.what else { return None };
    let Change { workload, cgroup_id, tid, pid, command, .. } = change;
    let target = workload
        .as_ref()
        .map_or_else(|| format!("the cgroup with id {cgroup_id}"), |path| path.as_str().to_owned());
    let file = match file {
        CpusetFile::Cpus => "cpuset.cpus",
        CpusetFile::Mems => "cpuset.mems",
        CpusetFile::Other => "a file of the cpuset",
    };
    Some(format!("{target}: {command:?} wrote {file} (process {pid}, thread {tid})"))
}

/// `misaligned: a, b and 3 more`.
fn misaligned(workloads: &[AuditedWorkload]) -> Option<String> {
    let names: Vec<String> =
        workloads.iter().filter(|of| of.verdict == AuditVerdict::Misaligned).map(shown_name).collect();
    (!names.is_empty()).then(|| format!("misaligned: {}", units::first_few(&names, NAMES)))
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

fn is_remainder(outcome: &Outcome) -> bool {
    matches!(
        (&outcome.step.action, &outcome.result),
        (Action::MovePages { .. }, OutcomeResult::Differs { .. })
    )
}

#[cfg(test)]
mod tests {
    use enforcer_core::{memory_policy::PolicyMode, sample::PolicyScope};

    use super::*;

    #[test]
    fn foreign_cpuset_write_names_its_process_and_memory_policy_is_left_out() {
        let written = ChangeKind::CpusetWritten { file: CpusetFile::Mems };
        let (tid, pid, command) = (12, 11, "sh\n\u{1b}".to_owned());
        let change = Change { time_ns: 5, workload: None, cgroup_id: 77, tid, pid, command, what: written };
        assert_eq!(
            foreign_write(&change).as_deref(),
            Some(r#"the cgroup with id 77: "sh\n\u{1b}" wrote cpuset.mems (process 11, thread 12)"#)
        );
        let set = ChangeKind::PolicySet {
            scope: PolicyScope::Task,
            mode: PolicyMode::Bind,
            numa_nodes: [].into_iter().collect(),
        };
        assert_eq!(foreign_write(&Change { what: set, ..change }), None);
    }
}
