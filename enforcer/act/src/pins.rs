//! Pins of threads, checked after a write of their cpuset and restored.
//!
//! Problem: up to Linux 6.1 a write of `cpuset.cpus` sets the affinity of each thread to all CPUs of its
//! cgroup, and forgets what the thread had set (`update_tasks_cpumask`, kernel/cgroup/cpuset.c; remembered
//! since 8f9ea86fdf99 in 6.2). Idea: what was read before the write is compared with what each thread has
//! now. An affinity that is all CPUs of the cgroup is what the kernel leaves; any other one the thread has
//! set since, and it stays. The journal knows what a thread had pinned itself to before the CPUs that it has
//! now, also where nothing was left of it.
//!
//! Invariants: a thread is told by number and time of its start; none gets CPUs that its cgroup does not
//! have, or that it has not asked for. On a kernel that remembers pins nothing is set: there a thread that
//! runs on all CPUs has set that itself. Cost: two files of each thread that was pinned.

use enforcer_core::{
    self_placement::{CgroupThreads, SelfPlacedThread, kept_pin},
    workload::{CgroupPath, printable},
};
use numa_topology::set::CpuSet;

use super::{
    cpuset::{CpusetTree, ManagedFile},
    journal::{Entry, EntryKey, Journal, JournalError},
    self_placed::{self, Depth, read_thread, to_record},
};
use enforcer_host::HostPath;
use enforcer_kernel::affinity;

/// Result of restoring pins of threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinsNow {
    /// Threads that had all their pinned CPUs when they were read.
    pub whole: Vec<CgroupThreads>,
    /// Threads that have not, because their cgroup does not have these CPUs: one phrase each.
    pub unkept: Vec<String>,
    /// Affinities that could not be set: thread, CPUs and cause.
    pub failed: Vec<String>,
}

/// How pins are restored that the kernel may have reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// Nothing was written.
    Nowhere,
    /// In cgroups that have other CPUs than before one write: in the others it took nothing away.
    WhereChanged,
    /// Several writes may have ended at the CPUs of before.
    Everywhere,
}

/// Looks at threads that were pinned `before` a write, and gives them the CPUs that they had pinned
/// themselves to, as far as it left them.
pub(super) fn restore_pins(
    tree: &CpusetTree,
    before: &[CgroupThreads],
    recorded: &[SelfPlacedThread],
    gives: Gives,
) -> PinsNow {
    let mut now = PinsNow::default();
    let Some(proc) = tree.proc() else { return now };
    for one in before {
        let effective = tree.read_effective(&one.cgroup, ManagedFile::Cpus);
        let Some(to) = effective.ok().flatten().and_then(|text| text.trim().parse::<CpuSet>().ok()) else {
            continue;
        };
        let gives = tree.forgets_pins()
            && match gives {
                Gives::Nowhere => false,
                Gives::WhereChanged => to != one.cpus,
                Gives::Everywhere => true,
            };
        let mut whole = Vec::new();
        for thread in &one.threads {
            let original = recorded.iter().find(|recorded| recorded.is(thread));
            if now.had_whole(proc, (thread, original), &one.cpus, &to, gives) {
                whole.push(thread.clone());
            }
        }
        if !whole.is_empty() {
            now.whole.push(CgroupThreads { threads: whole, ..one.clone() });
        }
    }
    now
}

/// Threads of a cgroup, and of those below it, that run on all of its CPUs and had pinned themselves before:
/// only what is `recorded` knows them where the CPUs before the write that was looked at had left nothing of
/// their pins.
pub(super) fn known(
    tree: &CpusetTree,
    cgroup: &CgroupPath,
    before: &[CgroupThreads],
    recorded: &[SelfPlacedThread],
) -> Vec<CgroupThreads> {
    let noted =
        |thread: &SelfPlacedThread| before.iter().flat_map(|one| &one.threads).any(|one| one.is(thread));
    let pinned: Vec<_> = recorded.iter().filter(|thread| thread.cpus.is_some() && !noted(thread)).collect();
    if !tree.forgets_pins() || pinned.is_empty() {
        return Vec::new();
    }
    let mut found = self_placed::read(tree, cgroup, Depth::Affinity).unwrap_or_default();
    for CgroupThreads { cpus, threads, .. } in &mut found {
        threads.retain(|thread| {
            thread.cpus.as_ref() == Some(&*cpus) && pinned.iter().any(|pinned| pinned.is(thread))
        });
    }
    found.retain(|one| !one.threads.is_empty());
    found
}

/// Adds pins to what is recorded of a cgroup; nothing where nothing of it is.
pub fn record(journal: &mut Journal, key: &EntryKey, before: &[CgroupThreads]) -> Result<(), JournalError> {
    let Some(first) = journal.entries().get(key) else { return Ok(()) };
    let entry = Entry { threads: to_record(before), ..first.clone() };
    journal.record(key.clone(), entry)
}

impl PinsNow {
    /// Did a thread have all that it had pinned itself to `before`, in a cgroup that had CPUs `from` and has
    /// `to`?
    fn had_whole(
        &mut self,
        proc: &HostPath,
        (before, original): (&SelfPlacedThread, Option<&SelfPlacedThread>),
        from: &CpuSet,
        to: &CpuSet,
        gives: bool,
    ) -> bool {
        let Some(now) = read_thread(proc, before.tid).filter(|now| now.is(before)) else { return false };
        let kept = kept_pin(before, original, from, to);
        // What else it may run on it has set itself since.
        let is_rewritten = now.cpus.as_ref() == Some(to);
        if let Some(cpus) = kept.as_ref().filter(|_| gives && is_rewritten)
            && let Ok(tid) = i32::try_from(before.tid)
            && let Err(error) = affinity::set_affinity(tid, cpus)
            && error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error())
        {
            self.failed.push(format!("{}: setting its affinity to {cpus}: {error}", before.name()));
        }
        let Some(pin) = before.pinned(from) else { return false };
        if !pin.is_subset(to) && (is_rewritten || now.cpus == kept) {
            let keeps = kept.map_or_else(|| "runs on all of them".to_owned(), |kept| format!("keeps {kept}"));
            self.unkept.push(format!("{} to {pin} ({keeps})", printable(&before.name())));
        }
        now.cpus.as_ref() == Some(pin)
    }
}
