//! What was done about memory that ran out, since the daemon was started.

use std::collections::BTreeMap;

use enforcer_core::{
    decide::Widened,
    set::NodeSet,
    widening::{Exposed, Latencies, Refusal, Relieved, Stage},
    workload::CgroupPath,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::WidenedWorkload;

/// Workloads that were given memory nodes because theirs were nearly full.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WideningReport {
    /// What was added to whom and is not given back yet.
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
    /// Bytes that were moved off full nodes, by whose they were.
    pub relieved: BTreeMap<&'static str, u64>,
    /// Who can be chosen by the OOM killer because of what was added.
    pub exposed: Vec<Exposed>,
    /// Who was slowed down; none where the configuration never asked for that.
    pub brake: Option<BrakeUse>,
    /// From what made a widening necessary until it was written.
    pub latency: Option<Quantiles>,
    /// All of these times.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// Workloads that were slowed down because they filled their memory nodes faster than one is added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrakeUse {
    /// What the configuration says: `off`, `freeze` or `high`.
    pub wanted: String,
    /// Process that releases what the daemon does not; `null` where none does, and nobody is slowed down.
    pub watchdog: Option<u32>,
    /// Times that somebody was slowed down.
    pub applied: u64,
    /// Times that somebody should have been and was not.
    pub failed: u64,
    /// How long that was together, in ns.
    pub slowed_ns: u64,
    /// Those that are slowed down now.
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
    pub fn widened_at(&mut self, stage: Stage, applied: bool, since_trigger_ns: u64) {
        let counts = if applied { &mut self.applied } else { &mut self.failed };
        *counts.entry(stage.name()).or_default() += 1;
        if applied {
            self.latencies.note(since_trigger_ns);
        }
        let both = self.latencies.quantile(50).zip(self.latencies.quantile(99));
        self.latency = both.map(|(p50_ns, p99_ns)| Quantiles { p50_ns, p99_ns });
    }

    /// Somebody got no node.
    pub fn refused(&mut self, refusal: Refusal) {
        *self.refused.entry(refusal.name()).or_default() += 1;
    }

    /// Somebody was killed.
    pub fn killed(&mut self, by_limit: bool) {
        *self.kills.entry(if by_limit { "memory-limit" } else { "memory-nodes" }).or_default() += 1;
    }

    /// Pages went elsewhere.
    pub fn relieved(&mut self, whose: Relieved, bytes: u64) {
        let sum = self.relieved.entry(whose.name()).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// Processes that can be chosen because of what was added, each once.
    pub fn exposed_processes(&self) -> usize {
        let by_cgroup: BTreeMap<_, _> = self.exposed.iter().map(|one| (&one.cgroup, one.processes)).collect();
        by_cgroup.values().sum()
    }

    /// Who has what beside its own nodes, and why it keeps that.
    pub fn workloads(&self) -> Vec<WidenedWorkload> {
        let one = |(cgroup, nodes): (&CgroupPath, &NodeSet)| WidenedWorkload {
            cgroup: cgroup.clone(),
            nodes: nodes.clone(),
            keeps: self.waiting.get(cgroup).cloned(),
        };
        self.widened.iter().map(one).collect()
    }
}
