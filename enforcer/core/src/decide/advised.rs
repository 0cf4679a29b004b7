//! Earlier advice of the same audit, which later advice takes into account.
//!
//! Problem: advice that is right for each workload alone promises the same idle CPUs and the same free memory
//! several times; carried out in order, the second remedy undoes the first. Idea: the advice of one audit is
//! a sequence. Each advice is recorded, and the advice for later workloads assumes that it was carried out.
//!
//! Invariants: CPUs and memory that a remedy would free are promised to no later one, so that the remedies
//! may be carried out in any order, or in part. Memory that the daemon would move to several nodes counts on
//! each of them, because it goes by the room of that moment. Of two cgroups of which one contains the other,
//! at most one has a remedy. Cost: each workload walks the remedies before it.

use std::collections::BTreeMap;

use super::{
    Advice,
    advice::busy_cpus,
    pins::{self, Pin, Pins},
};
use crate::{
    model::{WorkloadModel, room_bytes},
    turn::{Decision, Inputs},
    words,
    workload::{CgroupPath, Origin, Workload},
};
use numa_topology::{
    Topology,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Remedies before the next one.
#[derive(Debug, Clone, Default)]
pub struct EarlierAdvice {
    remedies: Vec<Remedy>,
    /// Isolated CPUs that remedies send single threads to.
    isolated: CpuSet,
    /// CPUs that cgroups are pinned to before any remedy.
    pins: Pins,
}

/// Resources that one remedy takes.
#[derive(Debug, Clone)]
struct Remedy {
    cgroup: CgroupPath,
    /// True if it sets the affinity of a process, and no cpuset.
    of_process: bool,
    /// True if the workload had fewer CPUs than all, and gets these exclusively.
    pinned: bool,
    /// New CPUs; empty if it keeps its CPUs.
    cpus: CpuSet,
    /// Number of these that it keeps busy.
    busy: CpuSet,
    /// Most bytes that arrive on each ordinary memory node.
    comes: BTreeMap<NodeId, u64>,
}

impl EarlierAdvice {
    /// Advice of the decision for declared workloads: the decision's allocations have their CPUs already, but
    /// not memory that still has to arrive.
    pub fn of_decision(inputs: &Inputs<'_>, decision: &Decision) -> Self {
        let mut earlier = Self { pins: pins::all(inputs), ..Self::default() };
        for workload in inputs.workloads {
            let Some(target) = decision.targets.get(&workload.cgroup) else { continue };
            let Some(mems) = &target.cpuset.mems else { continue };
            if decision.in_place.contains(&workload.cgroup) {
                continue;
            }
            let comes = comes(&inputs.inventory.machine, inputs.model.of(workload), mems);
            earlier.note_remedy(workload, comes, CpuSet::new(), (true, CpuSet::new()));
        }
        earlier
    }

    /// Records advice for a workload outside of the decision.
    pub fn note(
        &mut self,
        machine: &Topology,
        workload: &Workload,
        figures: Option<&WorkloadModel>,
        advice: &Advice,
    ) {
        let has = figures.and_then(|figures| figures.cpus.as_ref());
        let pinned = has.is_some_and(|has| !machine.online_cpus().is_subset(has));
        let cpus = advice.cpus.clone().unwrap_or_default();
        let count = figures.map_or(1, busy_cpus);
        let free = cpus.iter().filter(|cpu| !self.remedies.iter().any(|one| one.busy.contains(*cpu)));
        let busy = free.take(count).collect();
        self.note_remedy(workload, advice.comes.clone(), cpus, (pinned, busy));
    }

    fn note_remedy(
        &mut self,
        workload: &Workload,
        comes: BTreeMap<NodeId, u64>,
        cpus: CpuSet,
        (pinned, busy): (bool, CpuSet),
    ) {
        let of_process = matches!(workload.origin, Origin::Process { .. });
        let cgroup = workload.cgroup.clone();
        self.remedies.push(Remedy { cgroup, of_process, pinned, cpus, busy, comes });
    }

    /// Reason why the workload must wait until a remedy is carried out: nested cpusets change together.
    pub(super) fn comes_first(&self, workload: &Workload) -> Option<String> {
        let is_process = matches!(workload.origin, Origin::Process { .. });
        let first = self.remedies.iter().find(|one| {
            !is_process && one.cgroup.is_within(&workload.cgroup)
                || !one.of_process && workload.cgroup.is_within(&one.cgroup)
        })?;
        Some(format!(
            "the remedy of {} changes what it may use: carry that out first, and audit again",
            first.cgroup
        ))
    }

    /// CPUs that others than the asking cgroup, which has `own`, are pinned to, before any remedy.
    pub(crate) fn pins_beside(&self, asking: &CgroupPath, own: &CpuSet) -> Pins {
        pins::beside(&self.pins, asking, own)
    }

    /// Adds CPUs that are advised to others to these pins, as pins of their cgroups.
    pub(super) fn pin(&self, pins: &mut Pins, own: &CpuSet, asks_pinned: bool) {
        let none = CpuSet::new();
        for one in self.remedies.iter().filter(|one| asks_pinned || one.pinned) {
            add(pins, &one.cgroup, &one.cpus.difference(if asks_pinned { own } else { &none }));
        }
    }

    /// Adds to these pins the busy CPUs of workloads that may use all CPUs of a node: they are no room for
    /// another workload there.
    pub(super) fn with_busy(&self, mut pins: Pins) -> Pins {
        self.remedies.iter().for_each(|one| add(&mut pins, &one.cgroup, &one.busy));
        pins
    }

    /// Records that threads are sent to these isolated CPUs.
    pub fn note_isolated(&mut self, cpus: &CpuSet) {
        self.isolated.extend(cpus);
    }

    /// Isolated CPUs that threads are sent to.
    pub const fn isolated(&self) -> &CpuSet {
        &self.isolated
    }

    /// CPUs that earlier remedies take, in words; `None` without any.
    pub(super) fn cpus_in_words(&self) -> Option<String> {
        let cpus = self.remedies.iter().fold(CpuSet::new(), |all, one| all.union(&one.cpus));
        let first = self.remedies.iter().find(|one| !one.cpus.is_empty())?;
        Some(format!("remedies before this one take CPUs {cpus}, the first for {}", first.cgroup))
    }

    /// Bytes that arrive on this node.
    pub(super) fn coming_to(&self, node: NodeId) -> u64 {
        self.remedies
            .iter()
            .filter_map(|one| one.comes.get(&node))
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Available bytes of each node without those.
    pub(super) fn leave_of(&self, available: BTreeMap<NodeId, u64>) -> BTreeMap<NodeId, u64> {
        let left = |(node, bytes): (NodeId, u64)| (node, bytes.saturating_sub(self.coming_to(node)));
        available.into_iter().map(left).collect()
    }

    /// Arrivals of earlier remedies on this node, in words; `None` without any.
    pub(super) fn in_words(&self, node: NodeId) -> Option<String> {
        let comes = |one: &&Remedy| one.comes.get(&node).is_some_and(|bytes| *bytes > 0);
        let first = self.remedies.iter().find(comes)?;
        let bytes = words::size(self.coming_to(node));
        Some(format!("{bytes} of it for remedies before this one, the first for {}", first.cgroup))
    }
}

fn add(pins: &mut Pins, cgroup: &CgroupPath, cpus: &CpuSet) {
    if !cpus.is_empty() {
        let none = || Pin { cpus: CpuSet::new(), partition: false };
        pins.entry(cgroup.clone()).or_insert_with(none).cpus.extend(cpus);
    }
}

/// Bytes of a workload that have to come to these nodes, on each that they may come to.
fn comes(machine: &Topology, figures: Option<&WorkloadModel>, mems: &NodeSet) -> BTreeMap<NodeId, u64> {
    let away = |figures: &WorkloadModel| figures.ordinary_bytes_outside(machine, mems, room_bytes).1;
    let bytes = figures.map_or(0, away);
    mems.intersection(&machine.ordinary_memory_nodes()).iter().map(|node| (node, bytes)).collect()
}
