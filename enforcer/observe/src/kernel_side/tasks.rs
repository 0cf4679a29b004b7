//! Threads from the task iterator, each with its workload.
//!
//! `/proc` supplies what the iterator lacks: single fields missing from this kernel's records, and workloads
//! without a listed thread, which the report mentions. No upstream kernel skips a task of the reader's pid
//! namespace (`task_seq_get_next` in `kernel/bpf/task_iter.c`), but kernels of managed virtual machines hide
//! the provider's own processes.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    sample::TaskSample,
    workload::{CgroupPath, printable},
};
use numa_topology::degraded::{Degraded, DegradedTally};

use crate::{
    index::Index,
    procfs::{Membership, read_tasks},
};
use enforcer_host::{HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::bpf::{IteratedTask, TaskIterator};

/// Threads of the workloads in ascending order of tid, and their source.
pub(super) fn read(
    records: Vec<IteratedTask>,
    host: &HostRoot,
    layout: &CgroupLayout,
    index: &Index,
    degraded: &mut DegradedTally,
) -> (Vec<TaskSample>, &'static str) {
    let with_id = index.with_id();
    let members = index.members(host, layout, |path| !with_id.contains(path), degraded);
    let mut tasks = of_workloads(records, index, &members);
    let mut source = "bpf iterator";
    if tasks.iter().any(|task| task.cpu.is_none() || task.cpus_allowed.is_none()) {
        complete(host, &mut tasks, degraded);
        source = "bpf iterator; CPUs from procfs";
    }
    let hidden = hidden(&tasks, host, layout, index, degraded);
    if !hidden.is_empty() {
        tasks.extend(hidden);
        tasks.sort_unstable_by_key(|task| task.tid);
    }
    (tasks, source)
}

/// The threads that belong to a workload, in ascending order of tid.
fn of_workloads(records: Vec<IteratedTask>, index: &Index, members: &Membership) -> Vec<TaskSample> {
    let mut tasks: Vec<TaskSample> = records
        .into_iter()
        .filter(|record| !record.kernel_thread)
        .filter_map(|record| {
            let cgroup = cgroup_of(&record, index, members)?;
            Some(task(record, cgroup))
        })
        .collect();
    tasks.sort_unstable_by_key(|task| task.tid);
    tasks
}

fn cgroup_of(record: &IteratedTask, index: &Index, members: &Membership) -> Option<CgroupPath> {
    if index.processes.contains(&record.pid) {
        return Some(CgroupPath::root());
    }
    // The root's other threads belong to no workload.
    let by_id = || index.ids.get(&record.cgroup?).filter(|path| !path.is_root());
    members.threads.get(&record.tid).or_else(by_id).cloned()
}

fn task(record: IteratedTask, cgroup: CgroupPath) -> TaskSample {
    TaskSample {
        tid: record.tid,
        pid: record.pid,
        command: printable(&record.command),
        cgroup: Some(cgroup),
        cpu: record.cpu,
        cpus_allowed: record.cpus_allowed,
        cpu_time_ns: Some(record.run_ns),
        preferred_node: record.preferred_node,
        faults_by_node: record.faults_by_node,
    }
}

/// Fills in the CPU fields that the iterator lacks.
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

/// Threads of workloads without a thread in the iterator.
fn hidden(
    listed: &[TaskSample],
    host: &HostRoot,
    layout: &CgroupLayout,
    index: &Index,
    degraded: &mut DegradedTally,
) -> Vec<TaskSample> {
    let cgroups: BTreeSet<&CgroupPath> = listed.iter().filter_map(|task| task.cgroup.as_ref()).collect();
    let processes: BTreeSet<u32> = listed.iter().map(|task| task.pid).collect();
    let mut members = index.members(host, layout, |path| !cgroups.contains(path), degraded);
    members.processes.retain(|pid| !processes.contains(pid));
    if members.is_empty() {
        return Vec::new();
    }
    let found = read_tasks(host, &members, degraded);
    if let Some(first) = found.first() {
        let reason = format!(
            "this kernel does not show {} threads of workloads to BPF, the first is {} ({})",
            found.len(),
            first.command,
            first.tid
        );
        let effect = "these are read from /proc";
        degraded.push(Degraded::new(TaskIterator::SOURCE, reason, effect));
    }
    found
}

#[cfg(test)]
mod tests {
    use numa_topology::id::CpuId;

    use super::*;

    fn record(tid: u32, pid: u32, cgroup: u64) -> IteratedTask {
        IteratedTask {
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
            faults_by_node: None,
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

    /// A pod of 300,000 threads fits the memory limit of the shipped pod: two samples are kept while the
    /// third is built from the records, and no thread has a path of its own.
    #[test]
    fn threads_share_the_path_of_their_cgroup_and_fit_into_the_pods_memory() {
        const THREADS: usize = 300_000;
        const LIMIT: usize = 256 << 20;
        // Name and mask of 256 CPUs, each with what the allocator adds.
        const HEAP: usize = 24 + 40;
        let path = CgroupPath::new(&format!("/kubepods.slice/{}", "long".repeat(60)));
        let index = Index { ids: [(7, path)].into(), ..Index::default() };
        let tasks = of_workloads(vec![record(1, 1, 7), record(2, 2, 7)], &index, &Membership::default());
        let address = |task: &TaskSample| task.cgroup.as_ref().unwrap().as_str().as_ptr();
        assert_eq!(address(&tasks[0]), address(&tasks[1]));
        let (sample, record) = (size_of::<TaskSample>() + HEAP, size_of::<IteratedTask>() + HEAP);
        let all = THREADS * (3 * sample + record);
        assert!(all < LIMIT, "{all} bytes: {sample} of a sample, {record} of a record");
    }

    #[test]
    fn kernel_threads_are_left_out_and_the_rest_is_in_order() {
        let index = Index { processes: [2, 3, 4].into(), ..Index::default() };
        let kernel_thread = IteratedTask { kernel_thread: true, ..record(2, 2, 1) };
        let records = vec![record(4, 4, 1), kernel_thread, record(3, 3, 1)];
        let tasks = of_workloads(records, &index, &Membership::default());
        assert_eq!(tasks.iter().map(|task| task.tid).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn a_process_that_the_iterator_hides_is_read_from_proc_and_named() {
        let host = HostRoot::live();
        let layout = CgroupLayout::read(&host).unwrap();
        let index = Index { processes: [std::process::id(), 4_194_304].into(), ..Index::default() };
        let mut degraded = DegradedTally::default();
        let found = hidden(&[], &host, &layout, &index, &mut degraded);
        assert!(found.iter().any(|task| task.tid == std::process::id()));
        let entries = degraded.into_entries();
        assert_eq!((entries.len(), entries[0].source.as_str()), (1, TaskIterator::SOURCE));
        let listed = vec![task(record(1, std::process::id(), 1), CgroupPath::root())];
        let mut degraded = DegradedTally::default();
        assert!(hidden(&listed, &host, &layout, &index, &mut degraded).is_empty(), "4194304 is no thread");
        assert!(degraded.into_entries().is_empty());
    }
}
