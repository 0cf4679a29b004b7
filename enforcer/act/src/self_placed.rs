//! Pins and memory policies that processes of a cgroup have set, read before a write.
//!
//! They are read from `/proc` here; the core computes what a write changes ([`hindrance`]). Pins that the
//! kernel has reset are restored ([`super::pins`]). A memory policy can only be set by the process itself, so
//! a rewritten one is named and not restored ([`lost`]).
//!
//! Limits. Threads of at most [`MAX_CGROUPS`] cgroups are looked at, [`MAX_THREADS`] of them, and the
//! mappings of [`MAX_PROCESSES`] processes within [`LONGEST`] bytes; what is left out is counted.
//! `numa_maps` walks the page tables of a process with its mmap lock held: all of it is read only for cgroups
//! that are about to be written, its first lines, which tell the policy of the thread itself, for those that
//! may be.
//!
//! Invariant: a thread is told by number and time of its start, so that nothing is given to a later one.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    time::Instant,
};

use enforcer_core::{
    self_placement::{
        CgroupThreads, CpusetWrites, OwnPolicy, SelfPlacedThread, hindrance, lost, pinned_cpus,
    },
    turn::{SelfPlaced, SelfPlacedWorkloads},
    workload::{CgroupPath, printable},
};
use numa_topology::{degraded::Degraded, set::CpuSet};

use super::{
    cpuset::{CpusetError, CpusetTree, ManagedFile, OpenCpuset},
    journal::{ThreadRoom, say_left_out},
};
use enforcer_host::{HostPath, processes::start_ticks};
use enforcer_kernel::affinity;

/// Most cgroups of one subtree that are read.
const MAX_CGROUPS: usize = 1_024;
/// Most threads of one subtree with affinities that are read.
const MAX_THREADS: usize = 16_384;
/// Most processes of one subtree with policies that are read, and as many other threads.
const MAX_PROCESSES: usize = 1_024;
/// Bytes of `numa_maps` of a process, and of one line.
const LONGEST: u64 = 16 << 20;
const LONGEST_LINE: u64 = 32 << 10;
/// Bytes that have the policy of the thread itself: that of the first mappings, which are of the program.
const FIRST_LINES: u64 = 2 << 10;

/// How much is read of each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Its affinity, and nothing of those that may run on all CPUs of their cgroup.
    Pinned,
    /// Its affinity.
    Affinity,
    /// The policy that it has set for itself, too.
    ThreadPolicy,
    /// And those of the mappings of its process.
    AllPolicies,
}

/// Reads the threads of a cgroup and of those below it, a cgroup before those below it.
pub fn read(tree: &CpusetTree, cgroup: &CgroupPath, depth: Depth) -> Result<Vec<CgroupThreads>, CpusetError> {
    let Some(proc) = tree.proc() else { return Ok(Vec::new()) };
    Reader::new(proc, depth).subtree(tree, cgroup)
}

/// Threads that have pinned themselves in these cgroups and below them, as far as that can be read before
/// `until`, by cgroup; and how many threads and cgroups could not be looked at.
pub fn pinned<'a>(
    tree: &CpusetTree,
    cgroups: impl Iterator<Item = &'a CgroupPath>,
    until: Instant,
) -> (BTreeMap<CgroupPath, Vec<CgroupThreads>>, usize) {
    let (mut pinned, mut left_out) = (BTreeMap::new(), 0);
    let Some(proc) = tree.proc() else { return (pinned, left_out) };
    // One budget for all.
    let mut reader = Reader { until: Some(until), ..Reader::new(proc, Depth::Pinned) };
    for cgroup in cgroups {
        if reader.is_late() {
            left_out += 1;
            continue;
        }
        let mut found = match reader.subtree(tree, cgroup) {
            Ok(found) => found,
            // One that has ended has nothing to lose.
            Err(error) if error.is_gone() => continue,
            Err(error) => {
                tracing::warn!("{}", printable(&error.to_string()));
                left_out += 1;
                continue;
            }
        };
        for one in &mut found {
            left_out += one.left_out;
            one.threads.retain(|thread| thread.pinned(&one.cpus).is_some());
        }
        found.retain(|one| !one.threads.is_empty());
        if !found.is_empty() {
            pinned.insert(cgroup.clone(), found);
        }
    }
    (pinned, left_out)
}

struct Reader<'a> {
    proc: &'a HostPath,
    depth: Depth,
    threads: usize,
    processes: usize,
    others: usize,
    /// Nothing more is read then.
    until: Option<Instant>,
}

impl<'a> Reader<'a> {
    fn new(proc: &'a HostPath, depth: Depth) -> Self {
        let (threads, processes, others) = (MAX_THREADS, MAX_PROCESSES, MAX_PROCESSES);
        Self { proc, depth, threads, processes, others, until: None }
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// A cgroup, and those below it.
    fn subtree(&mut self, tree: &CpusetTree, cgroup: &CgroupPath) -> Result<Vec<CgroupThreads>, CpusetError> {
        let mut found = vec![self.cgroup(&tree.open(cgroup)?, cgroup)?];
        let mut waiting = vec![(tree.path_of(cgroup), cgroup.clone())];
        while let Some((dir, path)) = waiting.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().filter_map(Result::ok) {
                let name = entry.file_name();
                let (true, Some(name)) = (entry.file_type().is_ok_and(|kind| kind.is_dir()), name.to_str())
                else {
                    continue;
                };
                let below = path.child(name);
                if found.len() == MAX_CGROUPS || self.is_late() {
                    if let Some(first) = found.first_mut() {
                        first.left_out += 1;
                    }
                    return Ok(found);
                }
                // One that ends meanwhile has nothing to lose.
                if let Ok(threads) = tree.open(&below).and_then(|cpuset| self.cgroup(&cpuset, &below)) {
                    found.push(threads);
                    waiting.push((entry.path(), below));
                }
            }
        }
        Ok(found)
    }

    fn cgroup(&mut self, cpuset: &OpenCpuset, cgroup: &CgroupPath) -> Result<CgroupThreads, CpusetError> {
        let list = |file| match cpuset.read(file) {
            Err(error) if error.is_gone() => Ok(String::new()),
            read => read,
        };
        let (own_cpus, own_mems) = (list(ManagedFile::Cpus)?, list(ManagedFile::Mems)?);
        let effective = |file, own: &str| {
            Ok::<_, CpusetError>(cpuset.read_effective(file)?.unwrap_or_else(|| own.to_owned()))
        };
        let cpus = effective(ManagedFile::Cpus, &own_cpus)?.trim().parse().unwrap_or_default();
        let mems = effective(ManagedFile::Mems, &own_mems)?.trim().parse().unwrap_or_default();
        let name = if cpuset.is_v2() { "cgroup.threads" } else { "tasks" };
        let tids = cpuset.read_name(name).unwrap_or_default();
        let (mut threads, mut left_out, mut unreadable) = (Vec::new(), 0, 0);
        for tid in tids.split_ascii_whitespace().filter_map(|tid| tid.parse().ok()).filter(|tid| *tid != 0) {
            if self.threads == 0 || self.is_late() {
                left_out += 1;
                continue;
            }
            self.threads -= 1;
            if self.depth == Depth::Pinned && is_free(tid, &cpus) {
                continue;
            }
            let Some(mut thread) = read_thread(self.proc, tid) else { continue };
            match self.policies(&mut thread) {
                Looked::Whole => {}
                Looked::Part => left_out += 1,
                Looked::Forbidden => unreadable += 1,
            }
            threads.push(thread);
        }
        Ok(CgroupThreads {
            cgroup: cgroup.clone(),
            own_cpus: own_cpus.trim().parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty()),
            own_mems: own_mems
                .trim()
                .parse()
                .ok()
                .filter(|mems: &numa_topology::set::NodeSet| !mems.is_empty()),
            cpus,
            mems,
            threads,
            left_out,
            unreadable,
        })
    }

    /// Adds its policies.
    fn policies(&mut self, thread: &mut SelfPlacedThread) -> Looked {
        if self.depth <= Depth::Affinity {
            return Looked::Whole;
        }
        let is_first = thread.pid == thread.tid;
        let left = if is_first { &mut self.processes } else { &mut self.others };
        let Some(fewer) = left.checked_sub(1) else { return Looked::Part };
        *left = fewer;
        let all = is_first && self.depth == Depth::AllPolicies;
        let limit = if all { LONGEST } else { FIRST_LINES };
        let path = self.proc.join(format!("{}/task/{}/numa_maps", thread.pid, thread.tid));
        let looked;
        (thread.policies, looked) = read_policies(path.as_path(), limit);
        looked
    }
}

/// May a thread run on all of these CPUs? An ended thread is an error of its files.
fn is_free(tid: u32, cpus: &CpuSet) -> bool {
    i32::try_from(tid).is_ok_and(|tid| affinity::affinity(tid).is_ok_and(|now| now == *cpus))
}

/// How much of the policies of a thread was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Whole,
    Part,
    /// `numa_maps` of another user's process takes `CAP_SYS_PTRACE`.
    Forbidden,
}

/// The distinct policies that name nodes, and how much was read; none of a kernel without NUMA.
fn read_policies(path: &Path, limit: u64) -> (BTreeSet<OwnPolicy>, Looked) {
    let mut policies = BTreeSet::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return (policies, unopened(&error)),
    };
    let mut reader = BufReader::with_capacity(4096, file).take(limit);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            // Its first lines are all that is wanted of a thread.
            Ok(0) if reader.limit() > 0 || limit == FIRST_LINES => return (policies, Looked::Whole),
            Ok(0) => return (policies, Looked::Part),
            // Some kernels ask for the right with the first read.
            Err(error) => return (policies, unopened(&error)),
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                policies.extend(text.split_once(' ').and_then(|(_, rest)| OwnPolicy::parse_start(rest)));
            }
        }
    }
}

/// It has ended, or the kernel knows no NUMA, if it is not that it may not be read.
fn unopened(error: &std::io::Error) -> Looked {
    if error.kind() == std::io::ErrorKind::PermissionDenied { Looked::Forbidden } else { Looked::Whole }
}

/// Name, process, affinity and start of a thread; `None` of one that has ended.
pub(super) fn read_thread(proc: &HostPath, tid: u32) -> Option<SelfPlacedThread> {
    let status = proc.join(format!("{tid}/status")).read_text().ok()?;
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let stat = proc.join(format!("{tid}/stat")).read_text().ok()?;
    let start_ticks = start_ticks(&stat)?;
    Some(SelfPlacedThread {
        pid: value("Tgid")?.parse().ok()?,
        tid,
        start_ticks,
        command: value("Name").unwrap_or_default().to_owned(),
        cpus: value("Cpus_allowed_list").and_then(|list| list.parse().ok()),
        policies: BTreeSet::new(),
    })
}

/// Why each of these writes would change what processes have set themselves, of those cgroups that `respects`
/// names; and what could not be looked at. Policies are read where memory is written or moved.
pub fn hindrances(
    tree: &CpusetTree,
    writes: &BTreeMap<CgroupPath, CpusetWrites>,
    respects: &dyn Fn(&CgroupPath) -> bool,
    depth: Depth,
) -> (SelfPlacedWorkloads, Option<Degraded>) {
    let (mut found, mut too_many, mut forbidden) = (SelfPlacedWorkloads::new(), Vec::new(), Vec::new());
    for (cgroup, writes) in writes {
        let of_cpus = writes.mems.is_empty() && writes.moves.is_empty();
        let depth = if of_cpus { Depth::Affinity } else { depth };
        // A cgroup above a workload is written for it; others below it are asked all the same.
        let Ok(mut threads) = read(tree, cgroup, depth) else { continue };
        threads.retain(|one| respects(&one.cgroup));
        let sum = |of: fn(&CgroupThreads) -> usize| threads.iter().map(of).sum::<usize>();
        let (left_out, unreadable) = (sum(|one| one.left_out), sum(|one| one.unreadable));
        if let Some(reason) = hindrance(&threads, writes) {
            let pinned = pinned_cpus(&threads);
            found.insert(cgroup.clone(), SelfPlaced { reason, pinned, keeps_place: false });
            continue;
        }
        if left_out > 0 {
            too_many.push(format!("{left_out} threads or processes of {cgroup}"));
        }
        if unreadable > 0 {
            forbidden.push(format!("{unreadable} threads or processes of {cgroup}"));
        }
    }
    (found, of_unseen(&too_many, &forbidden))
}

/// Degraded entry for unread threads, with the reason.
fn of_unseen(too_many: &[String], forbidden: &[String]) -> Option<Degraded> {
    let reasons = [
        ("too many to look at before a write", too_many),
        ("numa_maps may not be read (CAP_SYS_PTRACE)", forbidden),
    ];
    let reasons = reasons.into_iter().filter(|(_, of)| !of.is_empty());
    let reasons: Vec<String> = reasons.map(|(why, of)| format!("{why}: {}", of.join(", "))).collect();
    (!reasons.is_empty()).then(|| {
        let effect = "memory policies or pins that they have set may change";
        Degraded::new("self-placement", reasons.join("; "), effect)
    })
}

/// Those of which there is something to lose, as many as one entry of the journal has room for; says how many
/// it has not.
pub(super) fn to_record(before: &[CgroupThreads]) -> Vec<SelfPlacedThread> {
    let placed = before.iter().flat_map(|one| {
        let with_pin = |thread: &SelfPlacedThread| SelfPlacedThread {
            cpus: thread.pinned(&one.cpus).cloned(),
            ..thread.clone()
        };
        one.threads.iter().map(with_pin)
    });
    let placed = placed.filter(|thread| !thread.policies.is_empty() || thread.cpus.is_some());
    let mut room = ThreadRoom::default();
    let (kept, left_out): (Vec<_>, Vec<_>) = placed.partition(|thread| room.takes(thread));
    if !left_out.is_empty() {
        say_left_out(left_out.len());
    }
    kept
}

/// What a restore cannot give back: policies that were recorded before the first write, or were there before
/// the restore, and are not there after it.
pub(super) fn not_given_back(
    tree: &CpusetTree,
    before: &[CgroupThreads],
    recorded: &[SelfPlacedThread],
    tops: &BTreeSet<CgroupPath>,
) -> Vec<String> {
    let now: Vec<SelfPlacedThread> = tops
        .iter()
        .filter_map(|top| read(tree, top, Depth::AllPolicies).ok())
        .flatten()
        .flat_map(|one| one.threads)
        .collect();
    let is_whole = before.iter().all(|one| one.left_out == 0 && one.unreadable == 0);
    let before: Vec<SelfPlacedThread> = before.iter().flat_map(|one| &one.threads).cloned().collect();
    lost(recorded, &before, is_whole, &now)
}
