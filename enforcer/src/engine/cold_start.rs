//! The part of a turn about containers that began on slow memory.
//!
//! The core decides when a cold start is over, and the same turn's plan sets the memory nodes. This module
//! hands in the turn's figures and announces the end.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    cold_start::{ColdStartLook, ColdStarts},
    model::{Model, TrafficSource, WorkloadModel},
    sample::{NodeSample, Sample},
    workload::{CgroupPath, Workload},
};
use numa_placement::{Grant, Holder};
use numa_topology::{id::NodeId, set::NodeSet};

use super::{
    decisions::{entry, subject},
    placed::{HeldResources, Ledger},
};
use enforcer_report::decision::DecisionState;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Observations of a turn.
#[derive(Clone, Copy)]
pub(super) struct ColdStartInputs<'a> {
    pub(super) workloads: &'a [Workload],
    pub(super) model: &'a Model,
    pub(super) sample: &'a Sample,
    pub(super) before: Option<&'a Sample>,
    /// Holders that have reported ready.
    pub(super) ready: &'a BTreeSet<Holder>,
}

/// Ends the cold starts that are over, and logs them.
pub(super) fn turn(state: &mut Ledger, starts: &mut ColdStarts, seen: ColdStartInputs<'_>, now_ns: u64) {
    let HeldResources { allocations, containers, .. } = &mut state.held;
    let look = |holder: &Holder, grant: &Grant| ColdStartLook {
        slow: room(&grant.mems, &seen.sample.nodes),
        is_ready: seen.ready.contains(holder),
        ..containers.cgroup_of(holder).map(|cgroup| seen.look(cgroup)).unwrap_or_default()
    };
    let (ended, changed) = starts.turn(allocations, look, now_ns);
    for one in ended {
        let cgroup = state.held.containers.cgroup_of(&one.update.holder);
        let Some(workload) = cgroup.and_then(|cgroup| seen.workload(cgroup)) else { continue };
        let reason = format!("its cold start is over: {}", one.why);
        tracing::info!("{}: {reason}", workload.name);
        let mut record = entry("turn", DecisionState::Changed);
        record.reason = reason;
        state.trace.decisions().note(subject(workload), record);
    }
    if changed {
        state.held.mark_changed();
    }
}

/// Available and total bytes of these nodes; `None` if one of them is unknown.
fn room(mems: &NodeSet, nodes: &BTreeMap<NodeId, NodeSample>) -> Option<(u64, u64)> {
    let of =
        |node: NodeId| nodes.get(&node).and_then(|node| node.available_bytes().zip(node.mem_total_bytes));
    mems.iter().map(of).try_fold((0u64, 0u64), |(free, all), one| {
        let (more_free, more) = one?;
        Some((free.saturating_add(more_free), all.saturating_add(more)))
    })
}

impl ColdStartInputs<'_> {
    fn workload(&self, cgroup: &CgroupPath) -> Option<&Workload> {
        self.workloads.iter().find(|workload| workload.cgroup == *cgroup)
    }

    fn look(&self, cgroup: &CgroupPath) -> ColdStartLook {
        let figures = self.workload(cgroup).and_then(|workload| self.model.of(workload));
        let faults = figures
            .and_then(|figures| figures.traffic.as_ref())
            .filter(|traffic| traffic.source == TrafficSource::HintFaults);
        let elapsed = self.before.map(|before| self.sample.monotonic_ns.saturating_sub(before.monotonic_ns));
        let touched = faults.zip(elapsed.filter(|elapsed| *elapsed > 0)).map(|(traffic, elapsed)| {
            let bytes = u128::from(self.sample.page.bytes(traffic.samples)) * u128::from(NS_PER_SECOND);
            u64::try_from(bytes / u128::from(elapsed)).unwrap_or(u64::MAX)
        });
        ColdStartLook {
            resident_bytes: figures.and_then(WorkloadModel::accessed_bytes),
            touched_bytes_per_second: touched,
            ..ColdStartLook::default()
        }
    }
}
