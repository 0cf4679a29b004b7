//! Report for `top`: the latest turn, reduced to a screen, and the recent decisions.
//!
//! The daemon serves it on its control socket; without a daemon `top` makes it from its own turns. It is
//! bounded: of very many workloads it has the first ones of each order, and the number of the rest. Texts
//! from outside are escaped where they are shown, not here.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::{Audit, AuditVerdict, AuditedWorkload, Summary},
    model::{Rates, TrafficSource, accessed_bytes},
    named::Named as _,
    policy::Mode,
    sample::{PressureEvents, PressureKind},
    workload::{CgroupPath, Origin},
};
use numa_topology::{
    Locality,
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    action::{TopAction, cut},
    sort::Sort,
};
use crate::{
    status::Paused,
    tick::TickReport,
    view::{distinct::NamedWorkload, workload::owner},
};

/// Version of the serde form of [`TopReport`].
pub const TOP_SCHEMA_VERSION: u32 = 1;

/// Workloads that are kept of each order.
const EACH: usize = 250;
/// Findings of one workload, and sources that are missing.
const LINES: usize = 64;

/// Everything that `top` shows at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopReport {
    /// [`TOP_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program that made the report.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its clock when it answered, in milliseconds since 1970.
    pub now_unix_ms: u64,
    /// Enforcement is paused; `null` when it is not.
    pub paused: Option<Paused>,
    /// The latest turn; `null` before the first one is over.
    pub turn: Option<TopTurn>,
    /// Latest decisions, newest first, without workloads that are in place.
    pub actions: Vec<TopAction>,
}

/// The latest turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TopTurn")]
pub struct TopTurn {
    /// Turns that were completed, this one included.
    pub number: u64,
    /// Seconds since it began.
    pub age_seconds: u64,
    /// Mode of the program: may it write, if it is not paused?
    pub mode: Mode,
    /// Host name.
    pub hostname: Option<String>,
    /// All workloads, by verdict.
    pub summary: Summary,
    /// NUMA nodes.
    pub nodes: Vec<TopNode>,
    /// Workloads.
    pub workloads: Vec<TopWorkload>,
    /// Workloads that are left out, because there are very many.
    pub omitted: usize,
    /// What is missing.
    pub degraded: Vec<Degraded>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TopNode")]
pub struct TopNode {
    /// The kernel's number.
    pub id: NodeId,
    /// Online CPUs; none of a memory-only node.
    pub cpus: CpuSet,
    /// Bytes of its memory.
    pub total_bytes: Option<u64>,
    /// Bytes of it that are free.
    pub free_bytes: Option<u64>,
    /// Bytes of page cache, tmpfs included.
    pub cache_bytes: Option<u64>,
    /// Memory pressure events since the turn before, by kind; `null` without a source.
    pub pressure: Option<Vec<NodePressure>>,
    /// Share of the memory accesses of its CPUs that go to another node, 0 to 1.
    pub remote_ratio: Option<f64>,
}

/// Signs of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "NodePressure")]
pub struct NodePressure {
    /// Kind of event.
    pub kind: PressureKind,
    /// How often, at least.
    pub events: u64,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TopWorkload")]
pub struct TopWorkload {
    /// Display name.
    pub name: String,
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Its kind.
    pub origin: Origin,
    /// Owner of its cpuset: `numa-enforcer`, `nobody` and so on, as in the audit.
    pub owner: String,
    /// In one word.
    pub verdict: AuditVerdict,
    /// CPUs it may use.
    pub cpus: Option<CpuSet>,
    /// Nodes it may allocate on.
    pub mems: Option<NodeSet>,
    /// Nodes of its CPUs.
    pub numa_nodes: NodeSet,
    /// Threads.
    pub tasks: Option<u64>,
    /// Bytes of its memory by node: anonymous and page cache.
    pub bytes_by_numa: Option<BTreeMap<NodeId, u64>>,
    /// Bytes of it on nodes where it has no CPUs.
    pub misplaced_bytes: Option<u64>,
    /// The same as a share of its memory, 0 to 1: residency.
    pub remote_residency: Option<f64>,
    /// Share of its memory accesses that are remote, 0 to 1: traffic.
    pub remote_traffic: Option<f64>,
    /// Source of the traffic ratio.
    pub traffic_source: Option<TrafficSource>,
    /// Observations behind it.
    pub traffic_samples: Option<u64>,
    /// Placements of its tasks on another node, per second.
    pub migrations_per_second: Option<f64>,
    /// CPU time per second, in CPUs.
    pub cpus_used: Option<f64>,
    /// Share of its run time on nodes where it should not be, 0 to 1.
    pub misplaced_time: Option<f64>,
    /// Rules of its findings, worst first.
    pub findings: Vec<String>,
}

/// Names a workload among all of a host, from turn to turn: its cgroup, and the process where it is one.
pub(super) type WorkloadKey = (CgroupPath, Option<u32>);

impl<'a> From<&'a TopWorkload> for NamedWorkload<'a> {
    fn from(TopWorkload { name, cgroup, origin, .. }: &'a TopWorkload) -> Self {
        Self { name, cgroup, origin }
    }
}

impl TopWorkload {
    /// Key that stays the same over turns.
    pub(super) fn key(&self) -> WorkloadKey {
        let pid = match self.origin {
            Origin::Process { pid, .. } => Some(pid),
            _ => None,
        };
        (self.cgroup.clone(), pid)
    }

    /// Busy CPUs times the remote ratio: its remote traffic, in CPUs.
    pub fn remote_cpus(&self) -> Option<f64> {
        Some(self.remote_traffic? * self.cpus_used?)
    }
}

impl TopTurn {
    /// The report of a turn, `age_seconds` after it began.
    pub fn new(turn: &TickReport, age_seconds: u64) -> Self {
        let audit = &turn.audit;
        let locality = Locality::new(&audit.topology);
        let workloads = audit.workloads.iter().map(|one| {
            let rates = turn.activity.of(&one.cgroup, &one.origin).copied().unwrap_or_default();
            workload(audit, one, rates, &locality)
        });
        let (workloads, omitted) = worst(workloads.collect());
        Self {
            number: turn.totals.ticks,
            age_seconds,
            mode: turn.mode,
            hostname: audit.host.hostname.clone(),
            summary: audit.summary.clone(),
            nodes: nodes(turn),
            workloads,
            omitted,
            degraded: audit.degraded.iter().take(LINES).cloned().collect(),
        }
    }
}

fn nodes(turn: &TickReport) -> Vec<TopNode> {
    let each = turn.audit.topology.nodes.iter().map(|node| {
        let now = turn.nodes.get(&node.id);
        TopNode {
            id: node.id,
            cpus: node.cpus.clone(),
            total_bytes: now.and_then(|now| now.mem_total_bytes).or(node.mem_total_bytes),
            free_bytes: now.and_then(|now| now.mem_free_bytes),
            cache_bytes: now.and_then(|now| now.file_bytes),
            pressure: turn.pressure.as_ref().map(|pressure| of_node(pressure, node.id)),
            remote_ratio: turn.activity.remote_by_node.get(&node.id).copied(),
        }
    });
    each.collect()
}

fn of_node(pressure: &PressureEvents, node: NodeId) -> Vec<NodePressure> {
    let mut events: BTreeMap<PressureKind, u64> = BTreeMap::new();
    for event in pressure.latest.iter().filter(|event| event.numa_node == node) {
        *events.entry(event.kind).or_default() += 1;
    }
    events.into_iter().map(|(kind, events)| NodePressure { kind, events }).collect()
}

fn workload(audit: &Audit, one: &AuditedWorkload, rates: Rates, locality: &Locality) -> TopWorkload {
    let bytes: Option<BTreeMap<NodeId, u64>> = one
        .bytes_by_numa
        .as_ref()
        .map(|by_node| by_node.iter().map(|(node, bytes)| (*node, accessed_bytes(bytes))).collect());
    let away = |by_node: &BTreeMap<NodeId, u64>| {
        let away = by_node.iter().filter(|(node, _)| locality.is_far(**node, &one.numa_nodes));
        away.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes))
    };
    let findings = audit.findings.iter().filter(|finding| one.findings.contains(&finding.id));
    TopWorkload {
        name: one.name.clone(),
        cgroup: one.cgroup.clone(),
        origin: one.origin.clone(),
        owner: owner(one.owner.as_ref()).name().to_owned(),
        verdict: one.verdict,
        cpus: one.cpus.clone(),
        mems: one.mems.clone(),
        numa_nodes: one.numa_nodes.clone(),
        tasks: one.tasks,
        // Away from nowhere is nowhere: without a node of its CPUs nothing is known to be misplaced.
        misplaced_bytes: bytes.as_ref().filter(|_| !one.numa_nodes.is_empty()).map(away),
        bytes_by_numa: bytes,
        remote_residency: one.remote_residency,
        remote_traffic: one.traffic.as_ref().map(|traffic| traffic.remote_ratio),
        traffic_source: one.traffic.as_ref().map(|traffic| traffic.source),
        traffic_samples: one.traffic.as_ref().map(|traffic| traffic.samples),
        migrations_per_second: rates.migrations_per_second,
        cpus_used: rates.cpus_used,
        misplaced_time: rates.misplaced_time,
        findings: findings
            .take(LINES)
            .map(|finding| cut(&format!("{}: {}; {}", finding.rule, finding.summary, finding.impact)))
            .collect(),
    }
}

/// The first workloads of each order, and the number of omitted ones.
fn worst(workloads: Vec<TopWorkload>) -> (Vec<TopWorkload>, usize) {
    if workloads.len() <= EACH {
        return (workloads, 0);
    }
    let mut kept = vec![false; workloads.len()];
    for sort in Sort::ALL {
        for index in sort.order(&workloads).into_iter().take(EACH) {
            if let Some(kept) = kept.get_mut(index) {
                *kept = true;
            }
        }
    }
    let all = workloads.len();
    let mut kept = kept.into_iter();
    let workloads: Vec<TopWorkload> =
        workloads.into_iter().filter(|_| kept.next().unwrap_or_default()).collect();
    let omitted = all - workloads.len();
    (workloads, omitted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::top::tests::plain;

    proptest! {
        #[test]
        fn the_first_of_every_order_is_kept_and_the_rest_is_counted(
            figures in prop::collection::vec((prop::option::of(0.0f64..1.0), 0u64..1 << 40, 0.0f64..9.0), 0..1200),
        ) {
            let all: Vec<TopWorkload> = figures.iter().zip(0..).map(|((traffic, bytes, moves), n)| TopWorkload {
                remote_traffic: *traffic,
                cpus_used: Some(1.0),
                misplaced_bytes: Some(*bytes),
                migrations_per_second: Some(*moves),
                ..plain(&format!("/{n}"))
            }).collect();
            let (kept, omitted) = worst(all.clone());
            prop_assert_eq!(kept.len() + omitted, all.len());
            prop_assert!(kept.len() <= EACH * Sort::ALL.len());
            for sort in Sort::ALL {
                let first = sort.order(&all).first().map(|index| all[*index].key());
                let still = sort.order(&kept).first().map(|index| kept[*index].key());
                prop_assert_eq!(first, still);
            }
        }
    }
}
