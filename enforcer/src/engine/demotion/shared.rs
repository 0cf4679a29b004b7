//! What the turns and the thread that moves pages share: the work of the turns, and its results.
//!
//! Invariant: the lock is held for copies only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::Thread,
    time::Duration,
};

use enforcer_core::{
    declarations::Declarations,
    demotion::{DemotionInput, NodeMemory, target},
    pacing::CallPacerLimits,
    policy::{DemotionSettings, Policy},
    sample::Sample,
    widening::PressedNodes,
    workload::{CgroupPath, Workload},
};
use numa_placement::Inventory;
use numa_topology::{Topology, degraded::Degraded, id::NodeId, set::NodeSet};

use crate::engine::decisions::subject;
use enforcer_act::pages::PageMoveLimits;
use enforcer_observe::{cold::ColdLook, page_size};
use enforcer_report::{decision::DecisionSubject, demotion::DemotionReport};

/// Longest time for moves between one pair of nodes in one round.
pub(super) const FLOW: Duration = Duration::from_secs(2);

/// Each call of `move_pages(2)` waits for all CPUs to drain their page caches (`lru_cache_disable`,
/// mm/swap.c). That takes longer the less memory is free, so few large calls beat many small ones. The
/// process would otherwise be killed, so it bears the stall.
pub(in crate::engine) const RELIEF_PACE: CallPacerLimits = CallPacerLimits {
    bytes_per_second: None,
    call: Duration::from_millis(50),
    smallest: 8 << 20,
    largest: 32 << 20,
};

/// Handle shared by the turns and the thread; clones share its state.
#[derive(Debug, Clone, Default)]
pub struct Demotion(Arc<Mutex<DemotionState>>);

#[derive(Debug, Default)]
pub(super) struct DemotionState {
    pub(super) wanted: Option<Arc<DemotionWork>>,
    /// The thread that moves pages, once it runs.
    pub(super) mover: Option<Thread>,
    pub(super) report: DemotionReport,
    pub(super) degraded: Vec<Degraded>,
    /// Nodes that declared workloads run short of, until the thread takes them.
    pub(super) pressed: PressedNodes,
    /// Bytes moved down for workloads that ran short.
    pub(super) relieved: u64,
}

/// Work that the turns hand in.
#[derive(Debug)]
pub(super) struct DemotionWork {
    pub(super) inventory: Arc<Inventory>,
    pub(super) settings: DemotionSettings,
    pub(super) limits: PageMoveLimits,
    pub(super) kernel_promotes: bool,
    pub(super) of: Vec<DemotionTarget>,
}

/// One workload with cold pages that may go down.
#[derive(Debug)]
pub(super) struct DemotionTarget {
    pub(super) subject: DecisionSubject,
    pub(super) cgroup: CgroupPath,
    pub(super) allowed: NodeSet,
    pub(super) home: NodeSet,
}

impl Demotion {
    pub(super) fn lock(&self) -> MutexGuard<'_, DemotionState> {
        // Poisoning is ignored: every update leaves the values consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the workloads to move pages of; none while the daemon may not write.
    pub(in crate::engine) fn set_targets(
        &self,
        inventory: &Arc<Inventory>,
        workloads: &[Workload],
        sample: &Sample,
        declarations: &Declarations,
        policy: &Policy,
        writes: bool,
    ) {
        let settings = policy.memory.demotion.clone();
        let wish = |workload: &Workload| {
            let (_, rule) = declarations.rule(policy, &workload.cgroup)?;
            let cgroup = sample.cgroups.get(&workload.cgroup).filter(|_| settings.is_for(rule))?;
            let home = cgroup.cpus_effective.as_ref().map(|cpus| inventory.machine.nodes_of(cpus));
            Some(DemotionTarget {
                subject: subject(workload),
                cgroup: workload.cgroup.clone(),
                allowed: cgroup.mems_effective.clone()?,
                home: home.unwrap_or_default(),
            })
        };
        let of: Vec<DemotionTarget> = workloads.iter().filter(|_| writes).filter_map(wish).collect();
        let kernel_promotes = sample.settings.promotes() == Some(true);
        let mut pace = policy.memory.moves.pace();
        pace.bytes_per_second = Some(settings.bytes_per_second.0);
        let limits = PageMoveLimits { pace, time: FLOW, ..PageMoveLimits::default() };
        let there: BTreeSet<&CgroupPath> = of.iter().map(|wish| &wish.cgroup).collect();
        let mut shared = self.lock();
        shared.report.retain(|cgroup, _| there.contains(cgroup));
        let rested = shared.wanted.is_none();
        shared.wanted = (!of.is_empty()).then(|| {
            Arc::new(DemotionWork { inventory: Arc::clone(inventory), settings, limits, kernel_promotes, of })
        });
        if rested && shared.wanted.is_some() {
            shared.mover.iter().for_each(Thread::unpark);
        }
    }

    /// Moves so far, by workload.
    pub(in crate::engine) fn report(&self) -> DemotionReport {
        self.lock().report.clone()
    }

    /// Replaces the nodes that run short.
    pub(in crate::engine) fn press(&self, pressed: PressedNodes) {
        self.lock().pressed = pressed;
    }

    /// Bytes moved down for workloads that ran short.
    pub(in crate::engine) fn relieved(&self) -> u64 {
        self.lock().relieved
    }

    /// The nodes that run short.
    #[cfg(test)]
    pub(in crate::engine) fn pressed(&self) -> PressedNodes {
        self.lock().pressed.clone()
    }

    /// Idle detectors that are missing while workloads are watched.
    pub(in crate::engine) fn degraded(&self) -> Vec<Degraded> {
        self.lock().degraded.clone()
    }
}

impl DemotionTarget {
    /// Nodes that its cold pages may leave.
    pub(super) fn upper(&self, machine: &Topology) -> NodeSet {
        let upper = |node: &NodeId| target::below(machine, *node, &self.allowed).is_some();
        self.allowed.iter().filter(upper).collect()
    }

    /// Inputs of a round, without rate and time.
    pub(super) fn situation<'a>(
        &'a self,
        wanted: &'a DemotionWork,
        look: &'a ColdLook,
        rooms: &'a BTreeMap<NodeId, NodeMemory>,
    ) -> DemotionInput<'a> {
        DemotionInput {
            topology: &wanted.inventory.machine,
            allowed: &self.allowed,
            home: &self.home,
            rooms,
            watched: &look.watched,
            estimate: look.estimate,
            idle: wanted.settings.idle.get(),
            page: page_size::of_this_machine(),
            rate: 0,
            kernel_promotes: wanted.kernel_promotes,
            now_ns: 0,
        }
    }
}
