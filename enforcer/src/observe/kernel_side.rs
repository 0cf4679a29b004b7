//! The kernel side's part of a sample: threads from the task iterator, counters from the programs.
//!
//! Both name a cgroup by its id in the hierarchy of the cpuset controller; the [`Index`] says whose id
//! that is. A field that the iterator cannot give on this kernel is read from `/proc` for that field
//! alone.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    degraded::{Degraded, DegradedTally},
    id::NodeId,
    parse::scalar,
    sample::{CgroupSample, HintFaults, Placements, Sample, TaskSample},
    topology::Topology,
    workload::{CgroupPath, printable},
};

use super::{
    bpf::{
        AttachOptions, CgroupAxis, CountersError, Hook, KernelCounters, Programs, TICK_NS, TaskIterator,
        TaskRecord,
    },
    index::Index,
    procfs::{Membership, read_tasks},
    sampler::SamplerOptions,
};
use crate::host::{HostRoot, cgroup::CgroupLayout, read_text};

/// What could be loaded and attached.
pub(super) struct KernelSide {
    iterator: Option<TaskIterator>,
    programs: Option<Programs>,
    /// Cgroup ids of the last sample.
    live: BTreeSet<u64>,
}

impl KernelSide {
    /// Loads what the options ask for; what is missing is added to `standing`.
    pub(super) fn start(
        host: &HostRoot,
        layout: &CgroupLayout,
        topology: &Topology,
        options: &SamplerOptions,
        standing: &mut Vec<Degraded>,
    ) -> Self {
        let axis = if layout.cpuset.v2 { CgroupAxis::Unified } else { CgroupAxis::Cpuset };
        let possible = read_text(&host.sys.join("devices/system/cpu/possible"))
            .ok()
            .and_then(|text| scalar::list(&text).ok())
            .unwrap_or_else(|| topology.online_cpus());
        let iterator = TaskIterator::open(axis, possible)
            .map_err(|error| {
                let reason = with_causes(&error);
                standing.push(Degraded::new(TaskIterator::SOURCE, reason, TaskIterator::EFFECT));
            })
            .ok();
        let programs = options.counters.then(|| {
            let attach =
                AttachOptions { cpu_node: topology.node_of_cpu(), cgroups: axis, log: options.bpf_log };
            let (programs, missing) = Programs::attach(&attach);
            standing.extend(missing);
            programs
        });
        Self { iterator, programs, live: BTreeSet::new() }
    }

    /// Threads of the workloads in ascending order of tid, and their source; `None` without an iterator.
    ///
    /// `members` are the threads of cgroups without an id.
    pub(super) fn tasks(
        &self,
        host: &HostRoot,
        index: &Index,
        members: &Membership,
        degraded: &mut DegradedTally,
    ) -> Option<(Vec<TaskSample>, &'static str)> {
        let records = match self.iterator.as_ref()?.read() {
            Ok(records) => records,
            Err(error) => {
                let reason = with_causes(&error);
                degraded.push(Degraded::new(TaskIterator::SOURCE, reason, TaskIterator::EFFECT));
                return None;
            }
        };
        let mut tasks: Vec<TaskSample> = records
            .into_iter()
            .filter(|record| !record.kernel_thread)
            .filter_map(|record| {
                let cgroup = cgroup_of(&record, index, members)?;
                Some(task(record, cgroup))
            })
            .collect();
        tasks.sort_unstable_by_key(|task| task.tid);
        if tasks.iter().all(|task| task.cpu.is_some() && task.cpus_allowed.is_some()) {
            return Some((tasks, "bpf iterator"));
        }
        complete(host, &mut tasks, degraded);
        Some((tasks, "bpf iterator; CPUs from procfs"))
    }

    /// Adds the counters to the cgroups of the sample.
    pub(super) fn counters(&mut self, index: &Index, sample: &mut Sample, degraded: &mut DegradedTally) {
        let Some(programs) = &mut self.programs else { return };
        let attached = Hook::ALL.into_iter().any(|hook| programs.has(hook));
        match programs.read() {
            Ok(counters) => {
                for (id, path) in &index.ids {
                    if let Some(cgroup) = sample.cgroups.get_mut(path) {
                        add(cgroup, &nothing_counted(programs));
                        add(cgroup, counters.get(id).unwrap_or(&KernelCounters::default()));
                    }
                }
            }
            Err(error) => degraded.push(unreadable(&error)),
        }
        for (hook, kind) in [
            (Hook::RunTime, "run time"),
            (Hook::Placement, "placements"),
            (Hook::HintFaults, "hinting faults"),
        ] {
            if programs.has(hook) {
                sample.sources.insert(kind.into(), hook.source().into());
            }
        }
        let known: BTreeSet<&CgroupPath> = index.ids.values().collect();
        let uncounted = sample.cgroups.keys().filter(|path| !known.contains(path)).count();
        if attached && uncounted > 0 {
            let reason =
                format!("{uncounted} cgroups are not set apart in the hierarchy of the cpuset controller");
            degraded.push(Degraded::new(
                "bpf:cgroups",
                reason,
                "run time and faults of these are not counted",
            ));
        }
        match programs.drops() {
            Ok(Some(drops)) if drops.total() > 0 => {
                let reason = format!(
                    "{} events with a full map, {} on an unknown CPU, {} of an unknown cgroup, since attached",
                    drops.map_full, drops.unknown_cpu, drops.unknown_cgroup
                );
                degraded.push(Degraded::new("bpf:drops", reason, "these events are in no figure"));
            }
            Ok(_) => {}
            Err(error) => degraded.push(unreadable(&error)),
        }
        let live: BTreeSet<u64> = index.ids.keys().copied().collect();
        if live != self.live {
            if let Err(error) = programs.retain(&live) {
                degraded.push(unreadable(&error));
            }
            self.live = live;
        }
    }
}

fn unreadable(error: &CountersError) -> Degraded {
    Degraded::new("bpf:counters", with_causes(error), "what the kernel side counted is partly missing")
}

/// Error and causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn cgroup_of(record: &TaskRecord, index: &Index, members: &Membership) -> Option<CgroupPath> {
    if index.processes.contains(&record.pid) {
        return Some(CgroupPath::root());
    }
    // The root's other threads are nobody's.
    let by_id = || index.ids.get(&record.cgroup?).filter(|path| !path.is_root());
    members.threads.get(&record.tid).or_else(by_id).cloned()
}

fn task(record: TaskRecord, cgroup: CgroupPath) -> TaskSample {
    TaskSample {
        tid: record.tid,
        pid: record.pid,
        command: printable(&record.command),
        cgroup: Some(cgroup),
        cpu: record.cpu,
        cpus_allowed: record.cpus_allowed,
        cpu_time_ns: Some(record.run_ns),
        preferred_node: record.preferred_node,
        numa_faults: record.numa_faults,
    }
}

/// Fills in the CPU fields that the iterator does not have.
fn complete(host: &HostRoot, tasks: &mut [TaskSample], degraded: &mut DegradedTally) {
    let threads = tasks.iter().filter_map(|task| Some((task.tid, task.cgroup.clone()?))).collect();
    let members = Membership { threads, ..Membership::default() };
    let read: BTreeMap<u32, TaskSample> =
        read_tasks(host, &members, degraded).into_iter().map(|task| (task.tid, task)).collect();
    for task in tasks {
        if let Some(found) = read.get(&task.tid) {
            task.cpu = task.cpu.or(found.cpu);
            task.cpus_allowed = task.cpus_allowed.take().or_else(|| found.cpus_allowed.clone());
        }
    }
}

/// What a cgroup has when the attached programs saw nothing of it.
fn nothing_counted(programs: &Programs) -> KernelCounters {
    KernelCounters {
        run_ticks: programs.has(Hook::RunTime).then(BTreeMap::new),
        placements: programs.has(Hook::Placement).then(Vec::new),
        hint_faults: programs.has(Hook::HintFaults).then(BTreeMap::new),
    }
}

/// Adds counters to a cgroup; several kernel cgroups can be one workload.
fn add(cgroup: &mut CgroupSample, counters: &KernelCounters) {
    if let Some(ticks) = &counters.run_ticks {
        let run_ns = cgroup.run_ns.get_or_insert_default();
        for (node, ticks) in ticks {
            let sum: &mut u64 = run_ns.entry(*node).or_default();
            *sum = sum.saturating_add(ticks.saturating_mul(TICK_NS));
        }
        let ticks = ticks.values().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
        cgroup.run_ticks = Some(cgroup.run_ticks.unwrap_or(0).saturating_add(ticks));
    }
    if let Some(placements) = &counters.placements {
        add_placements(cgroup.placements.get_or_insert_default(), placements);
    }
    if let Some(faults) = &counters.hint_faults {
        add_faults(cgroup.hint_faults.get_or_insert_default(), faults);
    }
}

fn add_placements(sum: &mut Vec<Placements>, more: &[Placements]) {
    for placements in more {
        let route = |p: &Placements| (p.src_numa, p.dst_numa);
        match sum.binary_search_by_key(&route(placements), route) {
            Ok(at) => sum[at].count = sum[at].count.saturating_add(placements.count),
            Err(at) => sum.insert(at, *placements),
        }
    }
}

fn add_faults(sum: &mut BTreeMap<NodeId, HintFaults>, more: &BTreeMap<NodeId, HintFaults>) {
    for (node, faults) in more {
        let total = sum.entry(*node).or_default();
        total.local = total.local.saturating_add(faults.local);
        total.remote = total.remote.saturating_add(faults.remote);
        total.migrated = total.migrated.saturating_add(faults.migrated);
        total.migrate_failed = total.migrate_failed.saturating_add(faults.migrate_failed);
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::id::CpuId;

    use super::*;

    fn record(tid: u32, pid: u32, cgroup: u64) -> TaskRecord {
        TaskRecord {
            tid,
            pid,
            command: "a\nb".into(),
            cgroup: Some(cgroup),
            cpu: Some(CpuId(1)),
            cpus_allowed: None,
            run_ns: 7,
            utime_ns: 0,
            stime_ns: 0,
            voluntary_switches: 0,
            involuntary_switches: 0,
            state: 0,
            policy: 0,
            kernel_thread: false,
            preferred_node: None,
            numa_faults: None,
        }
    }

    #[test]
    fn a_thread_belongs_to_its_process_then_to_its_list_then_to_its_id() {
        let path = CgroupPath::new;
        let index = Index {
            ids: [(1, CgroupPath::root()), (7, path("/a"))].into(),
            processes: [10].into(),
            ..Index::default()
        };
        let members = Membership { threads: [(30, path("/listed"))].into(), ..Membership::default() };
        let of = |tid, pid, id| cgroup_of(&record(tid, pid, id), &index, &members);
        assert_eq!(of(11, 10, 1), Some(CgroupPath::root()));
        assert_eq!(of(30, 29, 1), Some(path("/listed")));
        assert_eq!(of(40, 40, 7), Some(path("/a")));
        assert_eq!(of(41, 41, 1), None);
        assert_eq!(of(42, 42, 99), None);
        assert_eq!(task(record(1, 1, 1), path("/a")).command, r"a\nb");
    }

    #[test]
    fn counters_of_several_cgroups_add_up() {
        let counters = KernelCounters {
            run_ticks: Some([(NodeId(0), 2), (NodeId(1), 1)].into()),
            placements: Some(vec![Placements { src_numa: NodeId(1), dst_numa: NodeId(0), count: 4 }]),
            hint_faults: Some(
                [(NodeId(0), HintFaults { local: 1, remote: 2, ..HintFaults::default() })].into(),
            ),
        };
        let mut cgroup = CgroupSample::default();
        add(&mut cgroup, &counters);
        add(&mut cgroup, &counters);
        add(&mut cgroup, &KernelCounters::default());
        assert_eq!(cgroup.run_ns, Some([(NodeId(0), 4 * TICK_NS), (NodeId(1), 2 * TICK_NS)].into()));
        assert_eq!(cgroup.run_ticks, Some(6));
        assert_eq!(cgroup.placements.unwrap()[0].count, 8);
        assert_eq!(cgroup.hint_faults.unwrap()[&NodeId(0)].remote, 4);
    }

    #[test]
    fn nothing_attached_counts_nothing() {
        let mut cgroup = CgroupSample::default();
        add(&mut cgroup, &KernelCounters::default());
        assert_eq!(cgroup, CgroupSample::default());
    }
}
