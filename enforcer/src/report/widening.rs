//! What was done about memory that ran out, since the daemon was started.

use std::collections::BTreeMap;

use enforcer_core::{
    decide::Widened,
    widening::{Latencies, Refusal, Stage},
    workload::CgroupPath,
};
use serde::Serialize;

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
    /// From what made a widening necessary until it was written.
    pub latency: Option<Quantiles>,
    /// All of these times.
    #[serde(skip)]
    pub latencies: Latencies,
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
}
