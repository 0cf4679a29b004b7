//! Findings: a fault, its evidence, its cost, and its remedy.
//!
//! A finding's id is stable: the same fault of the same object has the same id in every run, so that a
//! baseline can leave known ones out. Every finding has evidence.
//!
//! Each rule is a function in a file of its own that judges one workload. Only the given workloads are
//! judged, and not the slices above them, so no fault is reported twice. On a machine with fewer than two CPU
//! nodes nothing can be remote: only isolated CPUs are judged there.

mod added;
mod cpuset_mismatch;
mod drift;
mod explained;
mod files;
mod isolated_cpus;
mod owner_mismatch;
mod remedy;
mod remote_residency;
mod remote_traffic;
mod severity;
mod short_nodes;
mod spans_nodes;
mod subject;
mod thread_affinity;
mod threads;

use std::{cell::OnceCell, collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray, VariantNames};

pub use self::{
    added::with_added,
    explained::{RuleWords, UnknownRule},
};
use self::{short_nodes::NodeSharers, subject::Subject, threads::Threads};
use crate::{
    decide::{EarlierAdvice, decide},
    declarations::Declarations,
    hosted::Containers,
    model::{Model, isolated_cpus},
    owners::Owners,
    policy::Policy,
    sample::Sample,
    self_placement::CpusetWrites,
    turn::{History, Inputs, Partitioned, SelfPlacedWorkloads, Widened, WrittenCgroups},
    workload::{CgroupPath, Origin, Workload},
};
use numa_placement::{Allocations, Inventory};
use numa_topology::{Locality, set::CpuSet};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// A note.
    Info,
    /// Costs performance.
    Warning,
    /// Costs much performance, or breaks a promise to the workload.
    Critical,
}

/// Rules that a host can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Rule {
    /// `cpuset.cpus` and `cpuset.mems` name different nodes.
    CpusetMismatch,
    /// Memory is on nodes that the workload's CPUs are not on.
    RemoteResidency,
    /// Most memory accesses go to another node than the CPU that makes them.
    RemoteTraffic,
    /// The CPUs span nodes although one node would hold the workload.
    SpansNodes,
    /// A declared workload is not where its placement says.
    Drift,
    /// A thread's own affinity leaves it outside the node of its workload.
    ThreadAffinity,
    /// The cpuset is not what another owner gave the workload.
    OwnerMismatch,
    /// Threads run on isolated CPUs, among which the kernel balances no load.
    IsolatedCpus,
    /// The nodes that it may use are nearly full, and others have room.
    ShortNodes,
    /// Interrupts of others' devices are handled on exclusive CPUs of the workload.
    ExclusiveCpuInterrupts,
    /// Interrupts of the workload's devices are handled on other nodes than its own.
    RemoteInterrupts,
}

/// One value that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// File or counter.
    pub source: String,
    /// Value as read.
    pub value: String,
}

/// A fault of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `RULE:OBJECT`, stable between runs.
    pub id: String,
    /// The broken rule.
    pub rule: Rule,
    /// Its severity.
    pub severity: Severity,
    /// Cgroup of the fault.
    pub object: CgroupPath,
    /// Summary in one sentence.
    pub summary: String,
    /// Values that were read.
    pub evidence: Vec<Evidence>,
    /// Cost of the fault.
    pub impact: String,
    /// Command that fixes it; absent if there is none, and `obstacle` has the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Obstacle of a remedy: the cgroup, the partition, the owner or the shortage, by name. Absent as well if
    /// nothing has to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// The judged host.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    /// The machine.
    pub inventory: &'a Inventory,
    /// Its workloads.
    pub workloads: &'a [Workload],
    /// The latest sample.
    pub sample: &'a Sample,
    /// Figures of the workloads.
    pub model: &'a Model,
    /// Thresholds and declarations.
    pub policy: &'a Policy,
    /// The owner of each cpuset.
    pub owners: &'a Owners,
    /// Workloads that entries of the policy match.
    pub declarations: &'a Declarations,
}

/// Judges every workload by every rule. The findings come worst first, then by id. Their remedies fit
/// together: each takes the others into account, so that they may be carried out one after the other.
pub fn assess(host: Judged<'_>) -> Vec<Finding> {
    assess_with_writes(host).0
}

/// These findings with more of other rules, in the order of [`assess`].
pub fn with_more(mut findings: Vec<Finding>, more: Vec<Finding>) -> Vec<Finding> {
    findings.extend(more);
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
    findings
}

/// Cpuset writes of remedies, by cgroup, in order.
pub type AdvisedWrites = BTreeMap<CgroupPath, CpusetWrites>;

/// The findings, and the cpuset writes of their remedies: the caller checks whether these change settings of
/// processes.
pub fn assess_with_writes(host: Judged<'_>) -> (Vec<Finding>, AdvisedWrites) {
    let Judged { inventory, workloads, sample, model, policy, owners, declarations } = host;
    let machine = &inventory.machine;
    let mut writes = AdvisedWrites::new();
    let has_nodes = machine.cpu_nodes().len() > 1;
    if !has_nodes && isolated_cpus(machine, sample).is_empty() {
        return (Vec::new(), writes);
    }
    let (locality, threads) = (Locality::new(machine), Threads::new(sample));
    let inputs = Inputs {
        inventory,
        workloads,
        sample,
        model,
        policy,
        declarations,
        containers: &Containers::default(),
        owners,
        history: &History::default(),
        widened: &Widened::new(),
        written: WrittenCgroups::NOTHING,
        partitioned: &Partitioned::default(),
        self_placed: &SelfPlacedWorkloads::new(),
        now_ns: 0,
    };
    // The decision of the daemon, without a history.
    let mut allocations = Allocations::default();
    let decision = decide(&inputs, &mut allocations);
    let mut findings = if has_nodes { drift::assess(&inputs, &decision) } else { Vec::new() };
    let mut earlier = EarlierAdvice::of_decision(&inputs, &decision);
    let sharers = NodeSharers::default();
    for workload in workloads {
        let Some(figures) = model.of(workload) else { continue };
        let owner = owners.of(workload);
        let subject = Subject {
            inventory,
            locality: &locality,
            workload,
            figures,
            sample,
            policy,
            owner,
            threads: &threads,
            inputs: &inputs,
            decision: &decision,
            allocations: &allocations,
            sharers: &sharers,
            earlier: &earlier,
            advice: OnceCell::new(),
        };
        let OwnFindings { found, is_advised, sent_to } = OwnFindings::of(&subject, has_nodes);
        findings.extend(found);
        let has_remedy = |one: &Finding| one.remedy.is_some() && one.object == workload.cgroup;
        let advice = subject.advice.get().and_then(|advice| advice.clone().ok());
        if !matches!(workload.origin, Origin::Process { .. })
            && findings.iter().any(has_remedy)
            && let Ok(advice) = subject.advice()
        {
            writes.insert(workload.cgroup.clone(), advice.writes());
        }
        earlier.note_isolated(&sent_to);
        // The advice of the decision for declared workloads is recorded already.
        if let Some(advice) =
            advice.filter(|_| is_advised && !decision.targets.contains_key(&workload.cgroup))
        {
            earlier.note(&inputs.inventory.machine, workload, inputs.model.of(workload), &advice);
        }
    }
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
    (findings, writes)
}

/// Findings of the rules about one workload.
struct OwnFindings {
    found: Vec<Finding>,
    /// A finding has the shared advice as its remedy.
    is_advised: bool,
    /// CPUs that the advice about isolated CPUs sends it to.
    sent_to: CpuSet,
}

impl OwnFindings {
    /// Without `has_nodes` only isolated CPUs matter.
    fn of(subject: &Subject<'_>, has_nodes: bool) -> Self {
        let isolated = isolated_cpus::assess(subject);
        let sent_to = isolated.as_ref().map_or_else(CpuSet::new, |_| isolated_cpus::sent_to(subject));
        let rules = [
            cpuset_mismatch::assess,
            remote_residency::assess,
            remote_traffic::assess,
            spans_nodes::assess,
            thread_affinity::assess,
            owner_mismatch::assess,
            short_nodes::assess,
        ];
        let by_node = rules.iter().filter(|_| has_nodes).filter_map(|rule| rule(subject));
        let by_node: Vec<Finding> = by_node.collect();
        let is_advised = by_node.iter().any(|one| one.remedy.is_some() && one.rule != Rule::ThreadAffinity);
        Self { found: isolated.into_iter().chain(by_node).collect(), is_advised, sent_to }
    }
}

/// Replaces remedies that would change settings of processes (the reason, by cgroup) by an obstacle: the
/// daemon leaves such a workload alone as well.
pub fn without_hindered(findings: &mut [Finding], hindrances: &BTreeMap<CgroupPath, String>) {
    for finding in findings {
        let Some(reason) = hindrances.get(&finding.object) else { continue };
        let Some(remedy) = finding.remedy.take() else { continue };
        finding.obstacle = Some(format!(
            "{reason}. Where that may be lost, or its processes are restarted afterwards: {remedy}"
        ));
    }
}

#[cfg(test)]
mod remedy_room_tests;
#[cfg(test)]
mod remedy_tests;
#[cfg(test)]
mod tests;
