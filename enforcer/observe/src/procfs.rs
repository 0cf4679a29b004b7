//! Threads from `/proc`, where there is no task iterator.
//!
//! The workloads' thread lists tell each thread's cgroup, one file per cgroup. `/proc/TID/cgroup` would be
//! one file per thread, and in a container it names paths of another namespace. Threads of no workload,
//! mostly kernel threads, are skipped before any of their files is opened.
//!
//! Cost: one directory per process of the machine, three files per thread of a workload, 10 to 20 us each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, Read},
    path::Path,
};

use ::procfs::{FromBufRead, ProcError, ProcResult, process::Task, process::all_processes_with_root};
use enforcer_core::{
    parse::{
        task_sched::TaskSched,
        task_stat::{TaskStat, parse_task_stat},
        task_status::TaskStatus,
    },
    sample::TaskSample,
    workload::{CgroupPath, printable},
};
use numa_topology::{
    degraded::{Degraded, DegradedTally},
    id::CpuId,
};

use enforcer_host::HostRoot;

/// Nanoseconds of a clock tick: `USER_HZ` is 100 on every architecture that has NUMA.
const TICK_NS: u64 = 10_000_000;
/// Most threads of a sample.
pub(super) const MAX_TASKS: usize = 1 << 20;

/// The wanted threads, and their workloads.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// Cgroup of each listed thread.
    pub(super) threads: BTreeMap<u32, CgroupPath>,
    /// Processes that are workloads of their own.
    pub(super) processes: BTreeSet<u32>,
}

impl Membership {
    /// Whether no thread is wanted.
    #[cfg(feature = "bpf")]
    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.processes.is_empty()
    }

    fn cgroup(&self, pid: u32, tid: u32) -> Option<CgroupPath> {
        if self.processes.contains(&pid) {
            return Some(CgroupPath::root());
        }
        self.threads.get(&tid).cloned()
    }
}

/// Reads the threads of `members` in ascending order of tid.
pub(super) fn read_tasks(
    host: &HostRoot,
    members: &Membership,
    degraded: &mut DegradedTally,
) -> Vec<TaskSample> {
    let mut tasks = Vec::new();
    // The procfs crate would follow a link in the place of `/proc` to this host's.
    if host.captured && host.proc.read_link().is_some() {
        let reason = format!("{} is a symbolic link, which is not followed", host.proc.display());
        degraded.push(Degraded::new("procfs", reason, "no thread of any workload is seen"));
        return tasks;
    }
    let processes = match all_processes_with_root(host.proc.as_path()) {
        Ok(processes) => processes,
        Err(error) => {
            degraded.push(Degraded::new("procfs", error.to_string(), "no thread of any workload is seen"));
            return tasks;
        }
    };
    // A process or a thread that has ended meanwhile is no loss.
    for process in processes.flatten() {
        let Ok(threads) = process.tasks() else { continue };
        for thread in threads.flatten() {
            let (Ok(pid), Ok(tid)) = (u32::try_from(thread.pid), u32::try_from(thread.tid)) else { continue };
            let Some(cgroup) = members.cgroup(pid, tid) else { continue };
            if tasks.len() == MAX_TASKS {
                let reason = format!("more than {MAX_TASKS} threads");
                degraded.push(Degraded::new("procfs", reason, "the threads beyond are not seen"));
                break;
            }
            match read_task(host, &thread, pid, tid) {
                Ok(task) => tasks.push(TaskSample { cgroup: Some(cgroup), ..task }),
                Err(ProcError::NotFound(_)) => {}
                Err(error) => degraded.add("thread", tid, error, "the thread is not seen"),
            }
        }
    }
    tasks.sort_unstable_by_key(|task| task.tid);
    tasks
}

fn read_task(host: &HostRoot, thread: &Task, pid: u32, tid: u32) -> ProcResult<TaskSample> {
    if host.captured {
        let dir = format!("{pid}/task/{tid}");
        if !["stat", "status"].iter().all(|file| is_plain(host.proc.as_path(), &format!("{dir}/{file}"))) {
            return Err(ProcError::NotFound(Some(host.proc.as_path().join(dir))));
        }
    }
    let ProcStat(stat) = thread.read("stat")?;
    let ProcStatus(status) = thread.read("status")?;
    let sched = read_sched(host, thread, pid, tid);
    Ok(TaskSample {
        tid,
        pid,
        command: printable(&stat.command),
        cgroup: None,
        cpu: stat.cpu.map(CpuId),
        cpus_allowed: status.cpus_allowed,
        cpu_time_ns: Some(stat.user_ticks.saturating_add(stat.system_ticks).saturating_mul(TICK_NS)),
        preferred_node: sched.preferred_node.flatten(),
        faults_by_node: sched.faults_by_node,
    })
}

/// The NUMA balancer's view of a thread. Empty if the file is missing or not understood: it is meant for
/// people.
fn read_sched(host: &HostRoot, thread: &Task, pid: u32, tid: u32) -> TaskSched {
    if host.captured && !is_plain(host.proc.as_path(), &format!("{pid}/task/{tid}/sched")) {
        return TaskSched::default();
    }
    thread.read("sched").map_or_else(|_| TaskSched::default(), |ProcSched(sched)| sched)
}

/// Whether the procfs crate may open this file below `proc`. A captured tree may hold files that block when
/// opened, and symlinks to this host, which that crate would follow; `proc` itself may be one.
pub(super) fn is_plain(proc: &Path, file: &str) -> bool {
    let path = proc.join(file);
    let straight = || {
        let root = fs::canonicalize(proc.parent()?).ok()?;
        Some(fs::canonicalize(&path).ok()? == root.join(proc.file_name()?).join(file))
    };
    fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) && straight() == Some(true)
}

/// [`TaskStat`] for the procfs crate. Its own `Stat` refuses a command that is not UTF-8.
struct ProcStat(TaskStat);

impl FromBufRead for ProcStat {
    fn from_buf_read<R: BufRead>(reader: R) -> ProcResult<Self> {
        let mut bytes = Vec::with_capacity(512);
        reader.take(4_096).read_to_end(&mut bytes)?;
        parse_task_stat(&String::from_utf8_lossy(&bytes)).map(Self).map_err(malformed)
    }
}

/// [`TaskStatus`] for the procfs crate. Its own `Status` needs some sixty lines and parses all.
struct ProcStatus(TaskStatus);

impl FromBufRead for ProcStatus {
    fn from_buf_read<R: BufRead>(reader: R) -> ProcResult<Self> {
        let mut bytes = Vec::with_capacity(2_048);
        reader.take(64 << 10).read_to_end(&mut bytes)?;
        let mut status = TaskStatus::default();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().try_for_each(|line| status.add_line(line)).map_err(malformed)?;
        Ok(Self(status))
    }
}

/// [`TaskSched`] for the procfs crate, which has no reader of its own.
struct ProcSched(TaskSched);

impl FromBufRead for ProcSched {
    fn from_buf_read<R: BufRead>(reader: R) -> ProcResult<Self> {
        let mut bytes = Vec::with_capacity(4_096);
        reader.take(256 << 10).read_to_end(&mut bytes)?;
        let mut sched = TaskSched::default();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().try_for_each(|line| sched.add_line(line)).map_err(malformed)?;
        Ok(Self(sched))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn malformed(error: enforcer_core::parse::ParseError) -> ProcError {
    ProcError::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use numa_topology::id::NodeId;

    use super::*;

    fn own() -> Membership {
        Membership { processes: [std::process::id()].into(), ..Membership::default() }
    }

    #[test]
    fn sees_this_process() {
        let mut degraded = DegradedTally::default();
        let tasks = read_tasks(&HostRoot::live(), &own(), &mut degraded);
        assert!(tasks.iter().all(|task| task.pid == std::process::id()));
        // A process's first thread need not come first: thread ids wrap around.
        let first = tasks.iter().find(|task| task.tid == task.pid).unwrap();
        assert!(first.cpu.is_some() && first.cpus_allowed.as_ref().is_some_and(|cpus| !cpus.is_empty()));
        assert!(tasks.windows(2).all(|pair| pair[0].tid < pair[1].tid));
    }

    #[test]
    fn reads_the_wanted_threads_of_a_copy() {
        let dir = tempfile::TempDir::new().unwrap();
        let stat = |tid: u32| {
            let zeros = "0 ".repeat(23);
            format!("{tid} (w) x) S 1 1 1 0 -1 4194304 0 0 0 0 7 5 {zeros}3 0 0 0\n")
        };
        for (pid, tid) in [(10, 10), (10, 11), (20, 20), (30, 30)] {
            let task = dir.path().join(format!("proc/{pid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("stat"), stat(tid)).unwrap();
            fs::write(task.join("status"), "Tgid:\t10\nCpus_allowed_list:\t0-3\n").unwrap();
        }
        let sched = "numa_preferred_nid : 1\nnuma_faults node=1 task_private=3 task_shared=4\n";
        fs::write(dir.path().join("proc/10/task/11/sched"), sched).unwrap();
        fs::write(dir.path().join("proc/20/task/20/sched"), "numa_preferred_nid : none\n").unwrap();
        fs::write(dir.path().join("proc/30/task/30/status"), "Cpus_allowed_list:\tall of them\n").unwrap();
        let members = Membership {
            threads: [(11, CgroupPath::new("/a")), (30, CgroupPath::new("/b")), (99, CgroupPath::new("/c"))]
                .into(),
            processes: [20].into(),
        };
        let mut degraded = DegradedTally::default();
        let tasks = read_tasks(&HostRoot::captured(dir.path()), &members, &mut degraded);
        let seen: Vec<_> =
            tasks.iter().map(|t| (t.tid, t.cgroup.clone().unwrap(), t.cpu, t.cpu_time_ns)).collect();
        let cpu = Some(CpuId(3));
        let expected = [
            (11, CgroupPath::new("/a"), cpu, Some(120_000_000)),
            (20, CgroupPath::root(), cpu, Some(120_000_000)),
        ];
        assert_eq!(seen, expected);
        let balancer: Vec<_> = tasks.iter().map(|t| (t.preferred_node, t.faults_by_node.clone())).collect();
        let known = (Some(NodeId(1)), Some([(NodeId(1), 7)].into()));
        assert_eq!(balancer, [known, (None, None)]);
        let entries = degraded.into_entries();
        assert_eq!((entries.len(), entries[0].source.as_str()), (1, "thread:30"));
    }

    #[test]
    fn a_link_in_a_copy_does_not_lead_to_a_thread_of_this_host() {
        let dir = tempfile::TempDir::new().unwrap();
        let own = format!("/proc/{}", std::process::id());
        fs::create_dir_all(dir.path().join("proc/10/task/10")).unwrap();
        std::os::unix::fs::symlink(&own, dir.path().join("proc/11")).unwrap();
        for file in ["stat", "status"] {
            let link = dir.path().join("proc/10/task/10").join(file);
            std::os::unix::fs::symlink(format!("{own}/{file}"), link).unwrap();
        }
        let members = Membership { processes: [10, 11, std::process::id()].into(), ..Membership::default() };
        let mut degraded = DegradedTally::default();
        assert!(read_tasks(&HostRoot::captured(dir.path()), &members, &mut degraded).is_empty());
    }

    #[test]
    fn a_copy_whose_proc_is_a_link_has_no_threads_and_says_so() {
        let dir = tempfile::TempDir::new().unwrap();
        std::os::unix::fs::symlink("/proc", dir.path().join("proc")).unwrap();
        let mut degraded = DegradedTally::default();
        assert!(read_tasks(&HostRoot::captured(dir.path()), &own(), &mut degraded).is_empty());
        let entries = degraded.into_entries();
        assert_eq!((entries.len(), entries[0].source.as_str()), (1, "procfs"));
        assert!(entries[0].reason.ends_with("proc is a symbolic link, which is not followed"), "{entries:?}");
        assert!(is_plain(Path::new("/proc"), &format!("{}/stat", std::process::id())));
        assert!(!is_plain(&dir.path().join("proc"), &format!("{}/stat", std::process::id())));
    }

    #[test]
    fn a_host_without_proc_says_so() {
        let mut degraded = DegradedTally::default();
        let nowhere = HostRoot::captured(Path::new("/nonexistent"));
        assert!(read_tasks(&nowhere, &own(), &mut degraded).is_empty());
        assert_eq!(degraded.into_entries()[0].source, "procfs");
    }
}
