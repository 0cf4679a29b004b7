//! Actions against full memory nodes, since the daemon started.

use std::collections::BTreeMap;

use enforcer_core::{
    named::Named as _,
    turn::Widened,
    widening::{Latencies, OomCandidates, PressureLevel, ReclaimSource, WideningRefusal},
    workload::CgroupPath,
};
use numa_topology::set::NodeSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Workloads that were given memory nodes because theirs were nearly full.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WideningReport {
    /// Memory nodes that are added at present, by workload.
    pub widened: Widened,
    /// Why they keep it.
    pub waiting: BTreeMap<CgroupPath, String>,
    /// Nodes that were added, by stage.
    pub applied: BTreeMap<&'static str, u64>,
    /// Those that could not be.
    pub failed: BTreeMap<&'static str, u64>,
    /// Workloads that got none, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// OOM kills because of full memory nodes, and because of a limit.
    pub kills: BTreeMap<&'static str, u64>,
    /// Bytes moved off full nodes, by kind of their owner.
    pub relieved: BTreeMap<&'static str, u64>,
    /// Workloads that the OOM killer can choose because of added nodes.
    pub exposed: Vec<OomCandidates>,
    /// Use of the brake; `null` where it was never configured.
    pub brake: Option<BrakeUse>,
    /// From what made a widening necessary until it was written.
    pub latency: Option<Quantiles>,
    /// All of these times.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// A workload to which memory nodes were added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WidenedWorkload {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Added nodes.
    pub nodes: NodeSet,
    /// Why it keeps that for now; `null` where that is not known yet.
    pub keeps: Option<String>,
}

/// Workloads that were slowed down because they filled their memory nodes faster than one is added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrakeUse {
    /// Configured brake: `off`, `freeze` or `high`.
    pub wanted: String,
    /// Id of the process that releases a workload if the daemon does not; `null` without one: then no
    /// workload is slowed down.
    pub watchdog: Option<u32>,
    /// Brakes applied.
    pub applied: u64,
    /// Brakes that failed.
    pub failed: u64,
    /// How long that was together, in ns.
    pub slowed_ns: u64,
    /// Workloads that are slowed down at present.
    pub slowed: Vec<CgroupPath>,
}

/// Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantiles {
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
}

impl WideningReport {
    /// A write has returned.
    pub fn widened_at(&mut self, stage: PressureLevel, applied: bool, since_trigger_ns: u64) {
        let counts = if applied { &mut self.applied } else { &mut self.failed };
        *counts.entry(stage.name()).or_default() += 1;
        if applied {
            self.latencies.note(since_trigger_ns);
        }
        let both = self.latencies.quantile(50).zip(self.latencies.quantile(99));
        self.latency = both.map(|(p50_ns, p99_ns)| Quantiles { p50_ns, p99_ns });
    }

    /// Counts a workload that got no node.
    pub fn refused(&mut self, refusal: WideningRefusal) {
        *self.refused.entry(refusal.name()).or_default() += 1;
    }

    /// Counts a kill by the OOM killer.
    pub fn killed(&mut self, by_limit: bool) {
        *self.kills.entry(if by_limit { "memory-limit" } else { "memory-nodes" }).or_default() += 1;
    }

    /// Pages went elsewhere.
    pub fn relieved(&mut self, owner: ReclaimSource, bytes: u64) {
        let sum = self.relieved.entry(owner.name()).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// Number of processes that the OOM killer can choose because of added nodes, each once.
    pub fn exposed_processes(&self) -> usize {
        let by_cgroup: BTreeMap<_, _> = self.exposed.iter().map(|one| (&one.cgroup, one.processes)).collect();
        by_cgroup.values().sum()
    }

    /// Workloads with added nodes, and why they keep them.
    pub fn workloads(&self) -> Vec<WidenedWorkload> {
        let one = |(cgroup, nodes): (&CgroupPath, &NodeSet)| WidenedWorkload {
            cgroup: cgroup.clone(),
            nodes: nodes.clone(),
            keeps: self.waiting.get(cgroup).cloned(),
        };
        self.widened.iter().map(one).collect()
    }
}
