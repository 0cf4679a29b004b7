//! Memory nodes for workloads that run short, beside the turns: what the turns and the thread that widens
//! know of each other.
//!
//! A turn takes as long as the kernel lets it, and a node that fills up does not wait for it. So a thread of
//! its own ([`guardian`]) looks at the nodes, decides (`enforcer_core::widening`) and has cpusets written.
//! The turns say whom it guards, with the originals recorded already; it says what it has added, which the
//! turns keep as part of each goal, and give back when there is room again. Both hold this lock for a look at
//! it, never while anything is read or written.
//!
//! Never: somebody is guarded whose original is not in the journal, or while the daemon may not write.

mod brake;
mod exposure;
mod guardian;
mod relief;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use enforcer_core::{
    decide::Widened,
    degraded::Degraded,
    model::Model,
    place::Inventory,
    policy::{Policy, WideningSettings},
    sample::Sample,
    set::NodeSet,
    widening::{Calmness, Exposed, Guarded, Narrowing},
    workload::{CgroupPath, Workload},
};

pub(super) use self::relief::PACE as RELIEF_PACE;
pub use self::{brake::BrakeParts, relief::ReliefSenses};
use self::{
    brake::Lever,
    guardian::Guardian,
    relief::{Moved, Relief},
    told::Told,
};
use super::{Demotion, Gate};
use crate::{
    observe::{MemoryLimits, PressureTap, Rooms},
    threads::{self, Role},
    waker::Waker,
};
use enforcer_act::cpuset::CpusetTree;
use enforcer_kernel::linux::Linux;
use enforcer_report::{
    decision::{DecisionRecord, Subject},
    widening::WideningReport,
};

/// What was told and nobody has taken: more than this is forgotten.
const MOST_TOLD: usize = 1_024;

/// What the thread that adds nodes looks with.
pub struct Senses {
    /// Memory pressure.
    pub tap: PressureTap,
    /// What the nodes have left.
    pub rooms: Rooms,
    /// Limits of workloads.
    pub limits: MemoryLimits,
}

/// A handle to what was added; clones refer to the same.
#[derive(Debug, Clone)]
pub struct Widening {
    state: Arc<Mutex<State>>,
    waker: Waker,
    /// Wakes the thread that makes room on full nodes.
    relief_waker: Waker,
}

/// Who is guarded, and by which figures.
#[derive(Debug, Default)]
struct Guards {
    settings: WideningSettings,
    guarded: Vec<Guarded>,
}

impl Guards {
    /// Is anybody declared to stay on their nodes?
    fn anybody_stays(&self) -> bool {
        self.guarded.iter().any(|one| one.strict)
    }
}

#[derive(Debug, Default)]
struct State {
    guards: Arc<Guards>,
    /// The thread that adds nodes has not taken these yet.
    anew: bool,
    /// What was added to each, and is not to be taken away yet.
    added: Widened,
    /// Writes under way.
    busy: usize,
    told: Vec<Told>,
    moved: Vec<Moved>,
    /// Who can be chosen by the OOM killer because of what was added.
    exposed: Vec<Exposed>,
    /// Why nobody is slowed down although that is wanted.
    brake_degraded: Option<Degraded>,
    report: WideningReport,
}

impl Widening {
    /// Starts the threads. They guard nobody yet.
    pub fn start(
        senses: Senses,
        relief: ReliefSenses,
        brake: BrakeParts,
        tree: CpusetTree,
        gate: Gate,
        demotion: Demotion,
    ) -> io::Result<Self> {
        let widening = Self { state: Arc::default(), waker: Waker::new()?, relief_waker: Waker::new()? };
        senses.tap.listen(widening.waker.clone());
        let relief = Relief::new(Linux, widening.clone(), relief, tree.clone(), gate.clone(), demotion);
        threads::spawn(Role::Relief, move || relief.run())?;
        let lever = Lever::start(widening.clone(), brake)?;
        let guardian = Guardian::new(widening.clone(), senses, lever, tree, gate);
        threads::spawn(Role::Widening, move || guardian.run())?;
        Ok(widening)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left what is whole: each change of it is one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it cannot do as the configuration says.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        self.lock().brake_degraded.clone()
    }

    /// What was added to whom.
    pub(super) fn added(&self) -> Widened {
        self.lock().added.clone()
    }

    /// Adds to these nodes of a cgroup what was added to it.
    pub(super) fn add_to(&self, cgroup: &CgroupPath, mems: &mut NodeSet) {
        if let Some(added) = self.lock().added.get(cgroup) {
            mems.extend(added);
        }
    }

    /// Something that an earlier daemon has added.
    pub(super) fn adopt(&self, cgroup: &CgroupPath, added: NodeSet) {
        tracing::info!("{cgroup}: nodes {added} were added before the daemon was started again");
        self.lock().added.insert(cgroup.clone(), added);
        self.relief_waker.wake();
    }

    /// Whoever is not among these has ended.
    pub(super) fn only(&self, workloads: &[Workload]) {
        let there: BTreeSet<&CgroupPath> = workloads.iter().map(|one| &one.cgroup).collect();
        self.lock().added.retain(|cgroup, _| there.contains(cgroup));
    }

    /// Its own nodes are all that it is to have again, unless something is being added anywhere.
    fn give_back(&self, cgroup: &CgroupPath) -> bool {
        let mut state = self.lock();
        state.busy == 0 && state.added.remove(cgroup).is_some()
    }

    /// Guards these from now on, and nobody else.
    pub fn guard(&self, settings: &WideningSettings, mut guarded: Vec<Guarded>) {
        let mut state = self.lock();
        for one in &mut guarded {
            // It may have been added since they were looked at.
            if let Some(added) = state.added.get(&one.cgroup) {
                one.mems.extend(added);
            }
        }
        let guards = Arc::new(Guards { settings: settings.clone(), guarded });
        // Room is made for those who stay, from when there are any.
        let wakes = guards.anybody_stays() && !state.guards.anybody_stays();
        state.guards = guards;
        state.anew = true;
        drop(state);
        self.waker.wake();
        if wakes {
            self.relief_waker.wake();
        }
    }

    /// What happened since this was last asked, to these.
    pub(super) fn take_records(&self, workloads: &[Workload]) -> Vec<(Subject, DecisionRecord)> {
        let (told, moved) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.told), std::mem::take(&mut state.moved))
        };
        let of = |cgroup: &CgroupPath| workloads.iter().find(|one| one.cgroup == *cgroup);
        let told = told.iter().filter_map(|one| Some(one.record(of(&one.cgroup)?)));
        let moved = moved.iter().filter_map(|one| Some(one.record(of(&one.cgroup)?)));
        told.chain(moved).collect()
    }

    /// All that happened since the daemon was started.
    pub(super) fn report(&self) -> WideningReport {
        let state = self.lock();
        let (widened, exposed) = (state.added.clone(), state.exposed.clone());
        WideningReport { widened, exposed, ..state.report.clone() }
    }

    /// Gives back what is not needed any longer: from this turn on it is no part of any goal. `hindered` says
    /// of a cgroup, its own nodes and those that were added what that would change of what its processes have
    /// set.
    pub(super) fn review(
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
        id::NodeId,
        place::Inventory,
        sample::{CgroupSample, NodeBytes, NodeSample},
        topology::synth::Machine,
        workload::Origin,
    };

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
        let widening = Widening {
            state: Arc::default(),
            waker: Waker::new().unwrap(),
            relief_waker: Waker::new().unwrap(),
        };
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
