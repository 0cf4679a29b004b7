//! The decisions about one workload, as `explain` shows them.
//!
//! A decision has its inputs, the candidate places, the deciding comparison, the changes of others, and the
//! results of its steps. Places and grants are shown as `plan --explain` shows them.
//!
//! The same decision in consecutive turns is one entry with a count. Texts from outside are escaped here, not
//! in the JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use enforcer_core::{
    considered::{DecisionTrace, MeasuredState, WorkloadRequest},
    named::Named as _,
    owner::Ownership,
    plan::{Outcome, OutcomeResult},
    turn::RefusalCause,
    workload::CgroupPath,
};
use numa_placement::trial::UpdateReport;
use numa_topology::id::NodeId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{
    plan_table,
    style::{Style, Tone},
    text, units,
    view::step::step,
};

/// Version of the serde form of [`Explanation`].
pub const EXPLANATION_SCHEMA_VERSION: u32 = 2;

/// Everything that is remembered of the decisions about one workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// [`EXPLANATION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The daemon's clock when it answered, in milliseconds since 1970.
    pub now_unix_ms: u64,
    /// Which workload.
    pub workload: DecisionSubject,
    /// Its processes now; `null` where they cannot be listed, as of one that has ended.
    #[serde(default)]
    pub processes: Option<Processes>,
    /// The entry of the configuration that is about it; `null` where none is, or it has ended.
    #[serde(default)]
    pub declared: Option<DeclaredBy>,
    /// Owner of its cpuset; `null` where no turn has looked at it.
    #[serde(default)]
    pub owner: Option<Ownership>,
    /// Interrupts on its exclusive CPUs, or of its devices, by the latest turn: one line each.
    #[serde(default)]
    pub interrupts: Vec<String>,
    /// Oldest first.
    pub decisions: Vec<DecisionRecord>,
    /// Older decisions that are no longer remembered.
    pub forgotten: u64,
}

/// An entry of the configuration that is about a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredBy {
    /// Its name.
    pub entry: String,
    /// Is the workload placed? Else it is left alone.
    pub enforce: bool,
}

/// Processes of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Processes {
    /// Their ids, ascending; the first [`Processes::LISTED`].
    pub pids: Vec<u32>,
    /// How many there are besides.
    pub more: usize,
}

impl Processes {
    /// Processes that are listed; the others are counted.
    pub const LISTED: usize = 32;

    /// Of all of them.
    pub fn of(mut pids: Vec<u32>) -> Self {
        pids.sort_unstable();
        let more = pids.len().saturating_sub(Self::LISTED);
        pids.truncate(Self::LISTED);
        Self { pids, more }
    }

    /// `12, 34 and 5 more`, `none`.
    fn line(&self) -> String {
        let pids = self.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        if pids.is_empty() { "none".to_owned() } else { units::and_more(&pids, self.more) }
    }
}

/// A workload that is decided about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Subject")]
pub struct DecisionSubject {
    /// Display name: `NAMESPACE/POD/CONTAINER` of a container.
    pub name: String,
    /// Its cgroup, as far as it is known.
    pub cgroup: Option<CgroupPath>,
    /// Its container's id.
    pub container_id: Option<String>,
    /// It has ended.
    pub ended: bool,
}

/// One decision, or the same one several times in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// When it was made first, in milliseconds since 1970.
    pub first_unix_ms: u64,
    /// When it was made last; what follows is of that time.
    pub last_unix_ms: u64,
    /// How often in a row.
    pub times: u64,
    /// Occasion: `turn`, or a call of the runtime such as `create`, `update`, `stop`.
    pub by: String,
    /// Result.
    pub state: DecisionState,
    /// Why nothing was done about it; of a refusal.
    pub cause: Option<RefusalCause>,
    /// Enforcement was paused: nothing was set or written because of it.
    pub paused: bool,
    /// Why, in one sentence.
    pub reason: String,
    /// Inputs and candidates.
    pub considered: DecisionTrace,
    /// Changes of other containers.
    pub updates: Vec<UpdateReport>,
    /// Ignored requests.
    pub warnings: Vec<String>,
    /// Its steps, and what became of them.
    pub outcomes: Vec<Outcome>,
}

/// Result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum DecisionState {
    /// A container got its place in the answer to its runtime.
    Placed,
    /// It got no place and runs on all CPUs that no container has exclusively.
    Unplaced,
    /// Its place changed because of another container.
    Changed,
    /// It has ended and its resources are free, or no entry asks for its place any longer.
    Released,
    /// It is where it should be.
    InPlace,
    /// It was moved to its place.
    Corrected,
    /// It would be moved, but the daemon only observes or is paused.
    Planned,
    /// It is being moved; its pages are not all there yet.
    Unfinished,
    /// Some of its cold pages went to slower memory, or hot ones came back.
    Tiered,
    /// A step failed, or did not come out as planned.
    Failed,
    /// It is left where it is, and the cause says why.
    Refused,
}

impl DecisionState {
    /// Tone for display.
    pub const fn tone(self) -> Tone {
        match self {
            Self::Placed | Self::InPlace | Self::Corrected => Tone::Good,
            Self::Changed | Self::Released | Self::Tiered => Tone::Quiet,
            Self::Planned | Self::Unfinished | Self::Refused => Tone::Notice,
            Self::Unplaced | Self::Failed => Tone::Bad,
        }
    }

    /// Summary of the outcomes of steps.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let any = |of: fn(&OutcomeResult) -> bool| outcomes.iter().any(|outcome| of(&outcome.result));
        if any(|result| {
            matches!(
                result,
                OutcomeResult::Failed { .. }
                    | OutcomeResult::Differs { .. }
                    | OutcomeResult::RolledBack { .. }
            )
        }) {
            Self::Failed
        } else if any(|result| matches!(result, OutcomeResult::DryRun)) {
            Self::Planned
        } else if any(|result| {
            matches!(result, OutcomeResult::Skipped { .. } | OutcomeResult::Unfinished { .. })
        }) {
            Self::Unfinished
        } else {
            Self::Corrected
        }
    }
}

/// For people: newest first, as a log is asked.
pub fn render(explanation: &Explanation, style: Style) -> String {
    let Explanation { now_unix_ms, workload, processes, decisions, forgotten, .. } = explanation;
    let mut out = style.paint(Tone::Heading, text::escape(&workload.name)).to_string();
    let cgroup = workload.cgroup.as_ref().map(|path| format!("cgroup {path}"));
    let id = workload.container_id.as_ref().map(|id| format!("container {id}"));
    let ended = workload.ended.then(|| "ended".to_owned());
    let about = cgroup.into_iter().chain(id).chain(ended).collect::<Vec<_>>().join(", ");
    out.push('\n');
    text::wrap(&mut out, &about, style.width, "  ", "  ");
    if let Some(processes) = processes {
        text::hang(&mut out, "  processes ", &processes.line(), style.width);
    }
    for line in &explanation.interrupts {
        text::hang(&mut out, "  interrupts ", line, style.width);
    }
    for record in decisions.iter().rev() {
        out.push('\n');
        decision(&mut out, record, *now_unix_ms, style);
    }
    match (decisions.len(), forgotten) {
        (0, _) => {
            out.push('\n');
            text::wrap(&mut out, &undecided(explanation), style.width, "", "");
        }
        (_, 0) => {}
        (_, forgotten) => {
            let _ = writeln!(out, "\n{forgotten} older ones are forgotten");
        }
    }
    out
}

/// Why there is no decision.
fn undecided(Explanation { declared, owner, .. }: &Explanation) -> String {
    let foreign = owner.as_ref().filter(|ownership| ownership.owner.is_foreign());
    match (declared, foreign) {
        (Some(DeclaredBy { entry, enforce: false }), _) => {
            format!(
                "Nothing is decided about it: [[workload]] {entry:?} has it left alone (enforce = false)."
            )
        }
        (_, Some(ownership)) => {
            format!("Nothing is decided about it: {}.", text::escape(&ownership.refusal()))
        }
        (None, None) => {
            "Nothing was decided about it: no [[workload]] declares it and no runtime announced it.".into()
        }
        (Some(DeclaredBy { entry, .. }), None) => {
            format!("Nothing was decided about it yet: [[workload]] {entry:?} declares it.")
        }
    }
}

fn decision(out: &mut String, record: &DecisionRecord, now: u64, style: Style) {
    let mut title = format!("{} ago", units::ago(now, record.last_unix_ms));
    if record.times > 1 {
        let _ = write!(
            title,
            ", {} times in {}",
            record.times,
            units::ago(record.last_unix_ms, record.first_unix_ms)
        );
    }
    let paused = if record.paused { ", while paused" } else { "" };
    let state = style.paint(record.state.tone(), record.state.name());
    let _ = writeln!(out, "{title}, {}{paused}: {state}", text::escape(&record.by));
    let mut line = |lead: &str, what: &str| text::hang(out, &format!("  {lead:<9}"), what, style.width);
    if !record.reason.is_empty() {
        line("why", &record.reason);
    }
    let DecisionTrace { asked, seen, placement, candidates, more_candidates } = &record.considered;
    for (lead, what) in [("asked", self::asked(asked)), ("seen", self::seen(seen))] {
        if !what.is_empty() {
            line(lead, &what);
        }
    }
    if let Some(placement) = placement {
        plan_table::containers(out, std::slice::from_ref(placement), style);
    }
    plan_table::candidates(out, candidates, style);
    let mut line = |lead: &str, what: &str| text::hang(out, &format!("  {lead:<9}"), what, style.width);
    if *more_candidates > 0 {
        line("place", &format!("and {} that are not kept", units::count(*more_candidates, "more place")));
    }
    for update in &record.updates {
        line("changes", &plan_table::changed(update));
    }
    for warning in &record.warnings {
        line("warning", warning);
    }
    for outcome in &record.outcomes {
        line("step", &step(outcome));
    }
}

fn asked(asked: &WorkloadRequest) -> String {
    let WorkloadRequest { rule, qos, milli_cpus, memory_bytes, numa_nodes } = asked;
    let cpus = milli_cpus.map(|milli| match (milli / 1000, milli % 1000) {
        (whole, 0) => units::count(whole, "CPU"),
        _ => format!("{milli}m CPU"),
    });
    let memory = memory_bytes.map(|bytes| format!("{} of memory", units::bytes(bytes)));
    let nodes = numa_nodes.as_ref().map(|nodes| format!("of nodes {nodes}"));
    let qos = qos.map(|qos| format!("in a {qos:?} pod"));
    let rule = rule.as_ref().map(|rule| format!("by [[workload]] {rule:?}"));
    [cpus, memory, nodes, qos, rule].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn seen(seen: &MeasuredState) -> String {
    let MeasuredState { cpus, mems, memory_by_node, available_by_node } = seen;
    let cpus = cpus.as_ref().map(|cpus| format!("CPUs {cpus}"));
    let mems = mems.as_ref().map(|mems| format!("memory nodes {mems}"));
    let bytes = |what: &str, by_node: &BTreeMap<NodeId, u64>| {
        let each = units::by_node(by_node).collect::<Vec<_>>().join(", ");
        (!each.is_empty()).then(|| format!("{what} {each}"))
    };
    let memory = memory_by_node.as_ref().and_then(|by_node| bytes("memory", by_node));
    let available = available_by_node.as_ref().and_then(|by_node| bytes("room for it", by_node));
    [cpus, mems, memory, available].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use enforcer_core::owner::Owner;

    use super::*;

    #[test]
    fn processes_are_listed_up_to_a_bound_and_counted_beyond_it() {
        assert_eq!(Processes::of(Vec::new()).line(), "none");
        assert_eq!(Processes::of(vec![34, 12]).line(), "12, 34");
        let many = Processes::of((1..=100_000).rev().collect());
        assert_eq!((many.pids.len(), many.more), (32, 99_968));
        assert!(many.line().starts_with("1, 2, 3, ") && many.line().ends_with(", 32 and 99968 more"));
        let explanation = |processes| Explanation {
            schema_version: EXPLANATION_SCHEMA_VERSION,
            now_unix_ms: 0,
            workload: DecisionSubject {
                name: "/a".into(),
                cgroup: Some(CgroupPath::new("/a")),
                container_id: None,
                ended: false,
            },
            processes,
            declared: None,
            owner: None,
            interrupts: Vec::new(),
            decisions: Vec::new(),
            forgotten: 0,
        };
        let shown = |processes| render(&explanation(processes), Style { width: 60, colour: false });
        assert!(shown(Some(Processes::of(vec![7]))).contains("  cgroup /a\n  processes 7\n"));
        assert!(!shown(None).contains("processes"));
        let declared = |enforce| DeclaredBy { entry: "db".into(), enforce };
        let shown_as = |declared| {
            render(&Explanation { declared, ..explanation(None) }, Style { width: 200, colour: false })
        };
        assert!(shown_as(None).contains("no [[workload]] declares it"));
        assert!(shown_as(Some(declared(false))).contains("\"db\" has it left alone (enforce = false)"));
        assert!(shown_as(Some(declared(true))).contains("yet: [[workload]] \"db\" declares it"));
        let owned_by = |owner| {
            let owner = Some(Ownership::of(owner, "cpu_manager_state: CPUs 0-3"));
            render(&Explanation { owner, ..explanation(None) }, Style { width: 200, colour: false })
        };
        let foreign = owned_by(Owner::KubeletCpuManager);
        assert!(
            foreign.contains("belongs to the kubelet's static CPU manager: cpu_manager_state"),
            "{foreign}"
        );
        assert!(owned_by(Owner::Unowned).contains("no [[workload]] declares it"));
        assert!(shown(Some(many)).lines().all(|line| line.len() <= 60));
    }
}
