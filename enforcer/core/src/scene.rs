//! A host in a test: a machine, workloads on it, and two samples ten seconds apart.
//!
//! A test states what matters to it; the rest is an idle host with a root cgroup that passes everything on.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    decide::decide,
    declarations::Declarations,
    finding::{AdvisedWrites, Finding, Judged, assess_with_writes},
    hosted::Containers,
    model::Model,
    owner::OwnershipFacts,
    owners::Owners,
    partition::PartitionState,
    plan::{Action, Plan},
    policy::Policy,
    sample::{
        CgroupSample, HardwareAccesses, HintFaults, NodeBytes, NodeSample, RunTime, Sample, TaskSample,
    },
    turn::{Decision, History, Inputs, Partitioned, SelfPlacedWorkloads, Widened, WrittenCgroups},
    workload::{CgroupPath, Origin, Workload},
};
use numa_placement::{Allocations, Inventory};
use numa_topology::{
    Topology,
    id::{CpuId, NodeId},
};

const MIB: u64 = 1 << 20;
const TICK_NS: u64 = 10_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) machine: Topology,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) before: Sample,
    pub(crate) now: Sample,
    pub(crate) policy: Policy,
    pub(crate) facts: OwnershipFacts,
    /// Cgroups that the daemon has set.
    pub(crate) written: BTreeSet<CgroupPath>,
    /// Cgroups with a partition that the daemon has set.
    pub(crate) partitioned: Partitioned,
    /// Memory nodes that were added because a workload ran short.
    pub(crate) widened: Widened,
    /// Workloads that stay because of settings of their own processes.
    pub(crate) self_placed: SelfPlacedWorkloads,
}

impl Scene {
    pub(crate) fn new(machine: Topology) -> Self {
        let nodes = machine.nodes.iter().map(|node| {
            let free = NodeSample {
                mem_total_bytes: node.mem_total_bytes,
                mem_free_bytes: node.mem_free_bytes,
                file_bytes: Some(0),
                lru_file_bytes: Some(0),
                ..NodeSample::default()
            };
            (node.id, free)
        });
        let mut before = Sample { monotonic_ns: 100 * SECOND, nodes: nodes.collect(), ..Sample::default() };
        before.settings.numa_balancing = Some(1);
        let root = CgroupSample {
            cpus_effective: Some(machine.online_cpus()),
            mems_effective: Some(machine.memory_nodes()),
            ..CgroupSample::default()
        };
        before.cgroups.insert(CgroupPath::root(), root);
        let now = Sample { monotonic_ns: 110 * SECOND, ..before.clone() };
        Self {
            machine,
            workloads: Vec::new(),
            before,
            now,
            policy: Policy::default(),
            facts: OwnershipFacts::default(),
            written: BTreeSet::new(),
            partitioned: Partitioned::default(),
            widened: Widened::new(),
            self_placed: SelfPlacedWorkloads::new(),
        }
    }

    /// A workload in a cgroup of its own with these effective sets.
    pub(crate) fn workload(mut self, path: &str, cpus: &str, mems: &str) -> Self {
        let cgroup = CgroupPath::new(path);
        self.workloads.push(Workload {
            cgroup: cgroup.clone(),
            cgroup_id: None,
            name: path.trim_start_matches('/').to_owned(),
            origin: Origin::Cgroup,
        });
        let sample = CgroupSample {
            cpus_effective: Some(cpus.parse().unwrap()),
            mems_effective: Some(mems.parse().unwrap()),
            run_time: Some(BTreeMap::new()),
            ..CgroupSample::default()
        };
        self.before.cgroups.insert(cgroup.clone(), sample.clone());
        self.now.cgroups.insert(cgroup, sample);
        self
    }

    /// Adds anonymous memory and page cache on each node, in MiB.
    pub(crate) fn memory(mut self, path: &str, mebibytes: &[(u32, u64, u64)]) -> Self {
        let bytes = mebibytes.iter().map(|(node, anon, file)| {
            (NodeId(*node), NodeBytes { anon: anon * MIB, file: file * MIB, ..NodeBytes::default() })
        });
        self.now_mut(path).memory_by_node = Some(bytes.collect());
        self
    }

    /// Adds milliseconds of run time on each node between the samples.
    pub(crate) fn ran(mut self, path: &str, milliseconds: &[(u32, u64)]) -> Self {
        let run_time = milliseconds.iter().map(|(node, ms)| {
            let ns = ms * 1_000_000;
            (NodeId(*node), RunTime { ns, misplaced_ns: 0, samples: ns / TICK_NS })
        });
        self.now_mut(path).run_time = Some(run_time.collect());
        self
    }

    /// Adds pages faulted between the samples: node of the CPU, local, remote.
    pub(crate) fn faults(mut self, path: &str, pages: &[(u32, u64, u64)]) -> Self {
        let faults = pages.iter().map(|(node, local, remote)| {
            (NodeId(*node), HintFaults { local: *local, remote: *remote, ..HintFaults::default() })
        });
        self.now_mut(path).hint_faults = Some(faults.collect());
        self.before.cgroups.get_mut(&CgroupPath::new(path)).unwrap().hint_faults = Some(BTreeMap::new());
        self
    }

    /// Adds accesses counted between the samples: node of the CPU, local, remote, overflows.
    pub(crate) fn accesses(mut self, path: &str, accesses: &[(u32, u64, u64, u64)]) -> Self {
        let accesses = accesses.iter().map(|(node, local, remote, samples)| {
            (NodeId(*node), HardwareAccesses { local: *local, remote: *remote, samples: *samples })
        });
        self.now_mut(path).hardware = Some(accesses.collect());
        self.before.cgroups.get_mut(&CgroupPath::new(path)).unwrap().hardware = Some(BTreeMap::new());
        self
    }

    /// Adds a thread: its id, its affinity, the CPU it was last seen on, and its CPU time before and now in
    /// milliseconds.
    pub(crate) fn thread(mut self, path: &str, tid: u32, affinity: &str, cpu: u32, ms: (u64, u64)) -> Self {
        let task = |ms: u64| TaskSample {
            tid,
            pid: tid,
            command: "worker".into(),
            cgroup: Some(CgroupPath::new(path)),
            cpu: Some(CpuId(cpu)),
            cpus_allowed: Some(affinity.parse().unwrap()),
            cpu_time_ns: Some(ms * 1_000_000),
            preferred_node: None,
            faults_by_node: None,
        };
        self.before.tasks.push(task(ms.0));
        self.now.tasks.push(task(ms.1));
        self
    }

    /// Declares the workloads that the glob matches.
    pub(crate) fn declared(self, glob: &str, cpus: u32, memory: Option<&str>) -> Self {
        let memory = memory.map_or(String::new(), |memory| format!("memory = '{memory}'"));
        self.declares(&format!("cgroup = '{glob}'\ncpus = {cpus}\n{memory}"))
    }

    /// Adds an entry with these keys to the configuration.
    pub(crate) fn declares(mut self, keys: &str) -> Self {
        let number = self.policy.workloads.len();
        self.policy.workloads.push(toml::from_str(&format!("name = 'rule{number}'\n{keys}")).unwrap());
        self
    }

    /// Declares CPUs for a cgroup.
    pub(crate) fn cpus_of(&self, path: &CgroupPath) -> usize {
        let declarations = self.declarations();
        let (_, rule) = declarations.rule(&self.policy, path).unwrap();
        rule.cpus.unwrap().get() as usize
    }

    pub(crate) fn now_mut(&mut self, path: &str) -> &mut CgroupSample {
        self.now.cgroups.get_mut(&CgroupPath::new(path)).unwrap()
    }

    pub(crate) fn inventory(&self) -> Inventory {
        Inventory::new(self.machine.clone(), Vec::new(), &self.policy.placement).unwrap()
    }

    pub(crate) fn model(&self) -> Model {
        Model::new(&self.machine, &self.workloads, &self.now, Some(&self.before))
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.findings_and_writes().0
    }

    pub(crate) fn findings_and_writes(&self) -> (Vec<Finding>, AdvisedWrites) {
        let owners = self.owners(&Containers::default());
        let declarations = self.declarations();
        assess_with_writes(Judged {
            inventory: &self.inventory(),
            workloads: &self.workloads,
            sample: &self.now,
            model: &self.model(),
            policy: &self.policy,
            owners: &owners,
            declarations: &declarations,
        })
    }

    pub(crate) fn declarations(&self) -> Declarations {
        Declarations::find(&self.policy, &self.workloads, &self.now.tasks, &self.facts)
    }

    pub(crate) fn owners(&self, containers: &Containers) -> Owners {
        let placed: Vec<&CgroupPath> =
            containers.cgroups().filter(|(_, holder)| !holder.is_given()).map(|(path, _)| path).collect();
        let is_placed = |cgroup: &CgroupPath| placed.contains(&cgroup);
        Owners::find(&self.facts, &self.workloads, &self.model(), &self.declarations(), is_placed)
    }

    pub(crate) fn decide(&self) -> Decision {
        self.decide_with(&History::default(), &mut Allocations::default())
    }

    pub(crate) fn decide_with(&self, history: &History, allocations: &mut Allocations) -> Decision {
        self.decide_beside(&Containers::default(), history, allocations)
    }

    /// The same with containers that a runtime announced.
    pub(crate) fn decide_beside(
        &self,
        containers: &Containers,
        history: &History,
        allocations: &mut Allocations,
    ) -> Decision {
        self.with_inputs(containers, history, |inputs| decide(inputs, allocations))
    }

    /// Input of a decision.
    pub(crate) fn with_inputs<T>(
        &self,
        containers: &Containers,
        history: &History,
        then: impl FnOnce(&Inputs<'_>) -> T,
    ) -> T {
        let inputs = Inputs {
            inventory: &self.inventory(),
            workloads: &self.workloads,
            sample: &self.now,
            model: &self.model(),
            policy: &self.policy,
            declarations: &self.declarations(),
            containers,
            owners: &self.owners(containers),
            history,
            widened: &self.widened,
            written: WrittenCgroups(&|cgroup| self.written.contains(cgroup)),
            partitioned: &self.partitioned,
            self_placed: &self.self_placed,
            now_ns: self.now.monotonic_ns,
        };
        then(&inputs)
    }

    /// Carries the plan out like a kernel that does everything it is asked.
    pub(crate) fn carry_out(&mut self, plan: &Plan) {
        for step in &plan.steps {
            let cgroup = self.now.cgroups.get_mut(step.action.cgroup()).unwrap();
            match &step.action {
                Action::SetCpus { cpus, .. } => cgroup.cpus_effective = Some(cpus.clone()),
                Action::SetMems { mems, .. } => cgroup.mems_effective = Some(mems.clone()),
                Action::SetExclusive { cpus, .. } => cgroup.cpus_exclusive = Some(cpus.clone()),
                Action::SetPartition { kind, .. } => {
                    cgroup.partition = Some(PartitionState { kind: *kind, invalid: None });
                }
                Action::MovePages { from, to, most_bytes, .. } => {
                    let Some(bytes) = &mut cgroup.memory_by_node else { continue };
                    let mut left = most_bytes.unwrap_or(u64::MAX);
                    let mut moved = NodeBytes::default();
                    for node in from.iter() {
                        let Some(held) = bytes.get_mut(&node) else { continue };
                        let anon = held.anon.min(left);
                        let file = held.file_mapped.unwrap_or(held.file).min(held.file).min(left - anon);
                        (held.anon, held.file, left) =
                            (held.anon - anon, held.file - file, left - anon - file);
                        (moved.anon, moved.file) = (moved.anon + anon, moved.file + file);
                        if let Some(mapped) = held.file_mapped {
                            held.file_mapped = Some(mapped - file);
                            moved.file_mapped = Some(moved.file_mapped.unwrap_or(0) + file);
                        }
                        if let Some(shared) = held.shmem {
                            let shared_moved = shared.min(file);
                            held.shmem = Some(shared - shared_moved);
                            moved.shmem = Some(moved.shmem.unwrap_or(0) + shared_moved);
                        }
                    }
                    bytes.retain(|_, held| held.anon + held.file > 0);
                    let there = bytes.entry(*to).or_default();
                    (there.anon, there.file) = (there.anon + moved.anon, there.file + moved.file);
                    if let Some(mapped) = moved.file_mapped {
                        there.file_mapped = Some(there.file_mapped.unwrap_or(0) + mapped);
                    }
                    if let Some(shared) = moved.shmem {
                        there.shmem = Some(there.shmem.unwrap_or(0) + shared);
                    }
                }
            }
        }
    }
}
