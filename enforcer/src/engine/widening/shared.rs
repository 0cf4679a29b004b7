//! What the turns and the threads of widening share: guarded workloads, added nodes, and events.
//!
//! Invariant: the lock is held for copies only, never during a read or a write.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use enforcer_core::{
    model::Model,
    policy::{Policy, WideningSettings},
    sample::Sample,
    turn::Widened,
    widening::{Calmness, Narrowing, OomCandidates, ProtectedWorkload},
    workload::{CgroupPath, Workload},
};
use numa_placement::Inventory;
use numa_topology::{degraded::Degraded, set::NodeSet};

use super::{guard_event::GuardEvent, relief_move::ReliefMove};
use enforcer_kernel::waker::Waker;
use enforcer_report::{
    decision::{DecisionRecord, DecisionSubject},
    widening::WideningReport,
};

/// Most events kept until a turn takes them; later ones are dropped.
pub(super) const MOST_TOLD: usize = 1_024;

/// Handle to the widening state; clones share it.
#[derive(Debug, Clone)]
pub struct Widening {
    state: Arc<Mutex<WideningState>>,
    pub(super) waker: Waker,
    /// Wakes the thread that makes room on full nodes.
    pub(super) relief_waker: Waker,
}

/// Guarded workloads and the settings for them.
#[derive(Debug, Default)]
pub(super) struct Guards {
    pub(super) settings: WideningSettings,
    pub(super) guarded: Vec<ProtectedWorkload>,
}

impl Guards {
    /// Whether a workload is declared to stay on its nodes.
    pub(super) fn has_strict(&self) -> bool {
        self.guarded.iter().any(|one| one.strict)
    }
}

#[derive(Debug, Default)]
pub(super) struct WideningState {
    pub(super) guards: Arc<Guards>,
    /// The thread that adds nodes has not taken the new guards yet.
    pub(super) anew: bool,
    /// Nodes added to each cgroup and not taken back yet.
    pub(super) added: Widened,
    /// Number of cpuset writes in progress.
    pub(super) busy: usize,
    pub(super) told: Vec<GuardEvent>,
    pub(super) moved: Vec<ReliefMove>,
    /// Processes that the OOM killer may choose because of added nodes.
    pub(super) exposed: Vec<OomCandidates>,
    /// Why workloads are not slowed down although the configuration asks for it.
    pub(super) brake_degraded: Option<Degraded>,
    pub(super) report: WideningReport,
}

impl Widening {
    /// No workload is guarded yet.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { state: Arc::default(), waker: Waker::new()?, relief_waker: Waker::new()? })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, WideningState> {
        // Poisoning is ignored: every update leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs an event, and keeps it for the next turn.
    pub(super) fn note(&self, event: GuardEvent) {
        event.log();
        let mut state = self.lock();
        if state.told.len() < MOST_TOLD {
            state.told.push(event);
        }
    }

    /// Configured features that do not work.
    pub(in crate::engine) fn degraded(&self) -> Option<Degraded> {
        self.lock().brake_degraded.clone()
    }

    /// Nodes added to each cgroup.
    pub(in crate::engine) fn added(&self) -> Widened {
        self.lock().added.clone()
    }

    /// Extends `mems` by the nodes added to this cgroup.
    pub(in crate::engine) fn add_to(&self, cgroup: &CgroupPath, mems: &mut NodeSet) {
        if let Some(added) = self.lock().added.get(cgroup) {
            mems.extend(added);
        }
    }

    /// Takes over nodes that an earlier daemon has added.
    pub(in crate::engine) fn adopt(&self, cgroup: &CgroupPath, added: NodeSet) {
        tracing::info!("{cgroup}: nodes {added} were added before the daemon was started again");
        self.lock().added.insert(cgroup.clone(), added);
        self.relief_waker.wake();
    }

    /// Forgets workloads that have ended.
    pub(in crate::engine) fn only(&self, workloads: &[Workload]) {
        let there: BTreeSet<&CgroupPath> = workloads.iter().map(|one| &one.cgroup).collect();
        self.lock().added.retain(|cgroup, _| there.contains(cgroup));
    }

    /// Takes the added nodes back, unless a write is in progress.
    fn give_back(&self, cgroup: &CgroupPath) -> bool {
        let mut state = self.lock();
        state.busy == 0 && state.added.remove(cgroup).is_some()
    }

    /// Replaces the guarded workloads.
    pub fn guard(&self, settings: &WideningSettings, mut guarded: Vec<ProtectedWorkload>) {
        let mut state = self.lock();
        for one in &mut guarded {
            // A node may have been added since the turn read the cpusets.
            if let Some(added) = state.added.get(&one.cgroup) {
                one.mems.extend(added);
            }
        }
        let guards = Arc::new(Guards { settings: settings.clone(), guarded });
        // The relief thread starts with the first workload that is declared to stay.
        let wakes = guards.has_strict() && !state.guards.has_strict();
        state.guards = guards;
        state.anew = true;
        drop(state);
        self.waker.wake();
        if wakes {
            self.relief_waker.wake();
        }
    }

    /// Events of these workloads since the last call.
    pub(in crate::engine) fn take_records(
        &self,
        workloads: &[Workload],
    ) -> Vec<(DecisionSubject, DecisionRecord)> {
        let (told, moved) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.told), std::mem::take(&mut state.moved))
        };
        let of = |cgroup: &CgroupPath| workloads.iter().find(|one| one.cgroup == *cgroup);
        let told = told.iter().filter_map(|one| Some(one.record(of(&one.cgroup)?)));
        let moved = moved.iter().filter_map(|one| Some(one.record(of(&one.cgroup)?)));
        told.chain(moved).collect()
    }

    /// Totals since the daemon started.
    pub(in crate::engine) fn report(&self) -> WideningReport {
        let state = self.lock();
        let (widened, exposed) = (state.added.clone(), state.exposed.clone());
        WideningReport { widened, exposed, ..state.report.clone() }
    }

    /// Takes back nodes that are no longer needed, so that they leave the goals from this turn on. `hindered`
    /// gets a cgroup, its own nodes and the added nodes. It returns which memory policy of its processes the
    /// change would alter. The result names each workload that keeps its nodes, with the reason.
    pub(in crate::engine) fn review(
        &self,
        narrowing: &mut Narrowing,
        inventory: &Inventory,
        (workloads, model): (&[Workload], &Model),
        (sample, before): (&Sample, Option<&Sample>),
        policy: &Policy,
        hindered: &mut dyn FnMut(&CgroupPath, &NodeSet, &NodeSet) -> Option<String>,
    ) -> BTreeMap<CgroupPath, String> {
        let added = self.added();
        narrowing.retain(|cgroup| workloads.iter().any(|one| one.cgroup == *cgroup));
        let mut waiting = BTreeMap::new();
        for workload in workloads {
            let cgroup = &workload.cgroup;
            let Some(extra) = added.get(cgroup) else { continue };
            let figures = model.of(workload);
            let seen = Calmness::of(&inventory.machine, (before, sample), cgroup, figures, extra);
            let busy = self.lock().busy > 0;
            let now_ns = sample.monotonic_ns;
            let home = figures.and_then(|figures| Some(figures.mems.as_ref()?.difference(extra)));
            let hindered = || hindered(cgroup, home.as_ref()?, extra);
            match narrowing.review(cgroup, &seen, busy, &policy.memory.widening, now_ns, hindered) {
                Ok(()) if self.give_back(cgroup) => {
                    tracing::info!("{cgroup}: there is room on its own nodes: {extra} is given back");
                }
                Ok(()) => {}
                Err(reason) => {
                    waiting.insert(cgroup.clone(), reason);
                }
            }
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::{
        sample::{CgroupSample, NodeBytes, NodeSample},
        workload::Origin,
    };
    use numa_placement::Inventory;
    use numa_topology::{id::NodeId, synth::Machine};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// `/a`, with room at home on node 0 and nothing on node 1, which was added.
    fn sample(second: u64) -> Sample {
        let bytes = NodeBytes { anon: 100 << 20, ..NodeBytes::default() };
        let cgroup = CgroupSample {
            cpus_effective: Some("0-1".parse().unwrap()),
            mems_effective: Some("0-1".parse().unwrap()),
            memory_by_node: Some([(NodeId(0), bytes)].into()),
            ..CgroupSample::default()
        };
        let node = NodeSample {
            mem_total_bytes: Some(16 << 30),
            mem_free_bytes: Some(12 << 30),
            lru_file_bytes: Some(0),
            ..NodeSample::default()
        };
        Sample {
            monotonic_ns: second * SECOND,
            cgroups: [(CgroupPath::new("/a"), cgroup)].into(),
            nodes: [(NodeId(0), node.clone()), (NodeId(1), node)].into(),
            ..Sample::default()
        }
    }

    #[test]
    fn nodes_that_were_added_stay_while_to_take_them_would_change_a_memory_policy() {
        let policy = Policy::default();
        let machine = Machine::new().sockets(2).cores(2).threads(1).memory_gib(16).build();
        let inventory = Inventory::new(machine, Vec::new(), &policy.placement).unwrap();
        let a = CgroupPath::new("/a");
        let workloads =
            [Workload { cgroup: a.clone(), cgroup_id: None, name: "a".into(), origin: Origin::Cgroup }];
        let widening = Widening::new().unwrap();
        widening.adopt(&a, "1".parse().unwrap());
        let mut narrowing = Narrowing::default();
        let mut asked = Vec::new();
        let mut review = |second: u64, hindered: Option<&str>| {
            let (before, now) = (sample(second - 1), sample(second));
            let model = Model::new(&inventory.machine, &workloads, &now, Some(&before));
            let (seen, samples) = ((&workloads[..], &model), (&now, Some(&before)));
            let mut ask = |cgroup: &CgroupPath, home: &NodeSet, extra: &NodeSet| {
                asked.push(format!("{cgroup} {home} {extra}"));
                hindered.map(str::to_owned)
            };
            let waiting = widening.review(&mut narrowing, &inventory, seen, samples, &policy, &mut ask);
            (waiting.get(&a).cloned(), widening.added().contains_key(&a))
        };
        let (waits, added) = review(100, Some("not asked"));
        assert!(waits.unwrap().contains("all it has again in") && added);
        let bound = "process 7 is bound";
        assert_eq!(review(200, Some(bound)), (Some(bound.to_owned()), true));
        assert_eq!(review(210, None), (None, false));
        assert_eq!(asked, ["/a 0 1", "/a 0 1"], "only when it is due");
    }
}
