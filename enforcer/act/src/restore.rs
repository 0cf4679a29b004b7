//! Puts back what every file held before the daemon wrote to it.
//!
//! Two passes make an order that the kernel accepts whatever the values are. On v1 a cgroup's set must
//! lie within its parent's and hold its children's. Going down from the root, every file that lacks
//! something of its original is first widened to the union of what it has and what it had; going up
//! from the leaves, every file then gets its exact original. In the union state each cgroup holds all
//! that it and those below it have had or will have, so no write on the way is refused. Memory comes
//! before CPUs: a wider memory set costs nothing, and narrowing it is what moves pages.
//!
//! On v2 a file that was empty cannot be emptied while its cgroup has tasks; [`reset`] is the way
//! around that, and the last pass.
//!
//! Partitions are ended before all of that: in one that lives not every write has the effect that it says.
//!
//! Properties of systemd units are restored before ([`super::units::restore`]).
//!
//! Each file is read back. Only entries of files that hold their original text, byte for byte, or are gone,
//! are closed in the journal; the rest stay for the next time. A second restore is harmless.
//!
//! The order of all records of a host is in [`sequence`].

pub mod sequence;
mod wanted_now;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use enforcer_core::{
    self_placement::{CgroupThreads, SelfPlacedThread},
    workload::CgroupPath,
};
use numa_topology::set::CpuSet;

use super::{
    cpuset::{CpusetTree, ManagedFile, OpenCpuset},
    interrupts::RestoredInterrupt,
    journal::{Entry, EntryKey, Journal, JournalContents, is_of_another_boot},
    pins::{self, Gives},
    reset,
    self_placed::{self, Depth},
};

pub use self::wanted_now::ReadKubelet;

/// One file of the journal, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Which file.
    pub file: ManagedFile,
    /// The text it had.
    pub original: String,
    /// Its result.
    pub result: RestoreResult,
}

/// Result for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreResult {
    /// It holds its original again.
    PutBack {
        /// Content before the restore.
        from: String,
    },
    /// It inherited; it is set to all that it would inherit, as the file cannot be emptied now.
    Widened {
        /// Content before the restore.
        from: String,
        /// All that the cgroup above it has.
        to: String,
        /// Why it cannot be emptied.
        reason: String,
    },
    /// It would be restored; only of [`preview`].
    WouldPutBack {
        /// Present content.
        from: String,
    },
    /// It held its original already.
    Unchanged,
    /// The cgroup is gone or is another one now; there is nothing to restore.
    Skipped {
        /// Why.
        reason: String,
    },
    /// It could not be restored; it stays in the journal.
    Failed {
        /// Operation, path, value and cause.
        error: String,
    },
}

/// Report of a [`restore`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Every file of the journal, in the order of paths.
    pub files: Vec<Restored>,
    /// Lines of the journal, and of the record of brakes, that could not be read.
    pub damaged: Vec<String>,
    /// Containers that a runtime is still creating with the daemon's cpuset: they can be restored once they
    /// exist.
    pub awaited: Vec<CgroupPath>,
    /// Records beside the journal that could not be used, and why.
    pub unusable: Vec<String>,
    /// Policies of processes that the kernel has rewritten for good, one sentence each.
    pub lost: Vec<String>,
    /// Interrupts whose CPUs the daemon had set, in the order of their numbers.
    pub interrupts: Vec<RestoredInterrupt>,
}

impl RestoreReport {
    /// Errors of single files: operation, path, value and cause.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        let results = self.files.iter().map(|file| &file.result);
        results.chain(self.interrupts.iter().map(|one| &one.result)).filter_map(|result| match result {
            RestoreResult::Failed { error } => Some(error.as_str()),
            _ => None,
        })
    }

    /// Adds what became of others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.files.extend(others.files);
        self.damaged.extend(others.damaged);
        self.awaited.extend(others.awaited);
        self.unusable.extend(others.unusable);
        self.lost.extend(others.lost);
        self.interrupts.extend(others.interrupts);
        self
    }

    /// Is every original back, as far as its cgroup still exists?
    pub fn is_complete(&self) -> bool {
        let Self { damaged, awaited, unusable, lost, .. } = self;
        let nothing_left = damaged.is_empty() && awaited.is_empty() && unusable.is_empty() && lost.is_empty();
        nothing_left && self.failures().next().is_none()
    }
}

/// Puts back every original of the journal that belongs to this boot.
///
/// Errors of single files are in the report.
pub fn restore(tree: &CpusetTree, boot_id: Option<&str>, journal: &mut Journal) -> RestoreReport {
    let entries = journal.entries().clone();
    restore_entries(tree, boot_id, journal, &entries)
}

/// The same for one cgroup and those below it. The effects of a crash on others are undone too ([`recover`]).
pub fn restore_within(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    journal: &mut Journal,
    top: &CgroupPath,
) -> RestoreReport {
    let mut entries = journal.entries().clone();
    retain_within(&mut entries, top);
    restore_entries(tree, boot_id, journal, &entries)
}

/// Leaves what [`restore_within`] puts back.
pub fn retain_within(entries: &mut BTreeMap<EntryKey, Entry>, top: &CgroupPath) {
    let parents = taken_controllers(entries);
    entries.retain(|key, _| key.cgroup.is_within(top) || is_lost(key, &parents));
}

/// Undoes a crash in the middle of emptying cpusets ([`reset`]), and nothing else: the controller is given
/// back, and the cgroups that had lost their cpusets with it get what the journal has of them.
///
/// Runs when a daemon starts, so that neighbours are not unconfined until the next restore.
pub fn recover(tree: &CpusetTree, boot_id: Option<&str>, journal: &mut Journal) -> RestoreReport {
    let mut entries = journal.entries().clone();
    let parents = taken_controllers(&entries);
    entries.retain(|key, _| is_lost(key, &parents));
    restore_entries(tree, boot_id, journal, &entries)
}

/// Cgroups with children that a crash may have left without the cpuset controller.
fn taken_controllers(entries: &BTreeMap<EntryKey, Entry>) -> BTreeSet<CgroupPath> {
    entries.keys().filter(|key| is_controller(key)).map(|key| key.cgroup.clone()).collect()
}

/// Is it such a controller, or a file that was lost with it?
fn is_lost(key: &EntryKey, parents: &BTreeSet<CgroupPath>) -> bool {
    let below = || key.cgroup.parent().is_some_and(|parent| parents.contains(&parent));
    is_controller(key) || (!key.file.is_property() && below())
}

/// Is it about the cpuset controller of a cgroup's children, and not about a cpuset?
fn is_controller(key: &EntryKey) -> bool {
    key.file == ManagedFile::SubtreeControl
}

fn restore_entries(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    journal: &mut Journal,
    entries: &BTreeMap<EntryKey, Entry>,
) -> RestoreReport {
    let mut results: BTreeMap<&EntryKey, RestoreResult> = BTreeMap::new();
    let mut open = Vec::new();
    let processes = SelfPlacedBefore::read(tree, boot_id, entries);
    // A controller that a crash left taken away: without it the children have no files.
    for (key, entry) in entries.iter().filter(|(key, _)| is_controller(key)) {
        results.insert(key, give_back(tree, boot_id, key, entry));
    }
    for (key, entry) in entries.iter().filter(|(key, _)| !is_controller(key) && !key.file.is_property()) {
        match open_entry(tree, boot_id, key, entry) {
            Ok(pending) => open.push(pending),
            Err(result) => {
                results.insert(key, result);
            }
        }
    }
    // What lives could not be changed.
    for pending in open.iter().filter(|pending| pending.key.file == ManagedFile::Partition) {
        results.insert(pending.key, put_back(pending));
    }
    open.retain(|pending| pending.key.file != ManagedFile::Partition);
    for pending in order(&mut open, Direction::Down) {
        // A refusal here shows up again, with its cause, when the original is written.
        let _widened = widen(pending);
    }
    for pending in order(&mut open, Direction::Up) {
        results.insert(pending.key, put_back(pending));
    }
    empty_what_has_tasks(tree, boot_id, journal, &open, &mut results);
    let is_failed = |result: &RestoreResult| matches!(result, RestoreResult::Failed { .. });
    // By its controller the next start of a daemon knows that they still lack their cpusets.
    let unfinished: BTreeSet<CgroupPath> = results
        .iter()
        .filter(|(_, result)| is_failed(result))
        .filter_map(|(key, _)| key.cgroup.parent())
        .collect();
    let damaged = journal.damaged().to_vec();
    let mut report = RestoreReport { damaged, lost: processes.give_back(tree), ..RestoreReport::default() };
    for (key, entry) in entries {
        let Some(mut result) = results.remove(key) else { continue };
        if !(is_failed(&result) || is_controller(key) && unfinished.contains(&key.cgroup))
            && let Err(error) = journal.close(key)
        {
            // A full disk: the next restore finds it as it should be.
            result = RestoreResult::Failed { error: format!("it is as it was, but {error}") };
        }
        let (cgroup, original) = (key.cgroup.clone(), entry.original.clone());
        report.files.push(Restored { cgroup, file: key.file, original, result });
    }
    report
}

/// Pins and policies of processes before their cpusets are restored.
struct SelfPlacedBefore {
    /// Cgroups that are read, with those below them.
    tops: BTreeSet<CgroupPath>,
    before: Vec<CgroupThreads>,
    recorded: Vec<SelfPlacedThread>,
}

impl SelfPlacedBefore {
    fn read(tree: &CpusetTree, boot_id: Option<&str>, entries: &BTreeMap<EntryKey, Entry>) -> Self {
        let written = |(key, entry): &(&EntryKey, &Entry)| {
            matches!(key.file, ManagedFile::Mems | ManagedFile::Cpus)
                && !is_of_another_boot(entry.boot_id.as_deref(), boot_id)
                && tree.open(&key.cgroup).is_ok_and(|cpuset| cpuset.inode() == key.inode)
        };
        let (mut tops, mut recorded) = (BTreeSet::new(), Vec::new());
        // A cgroup comes before those below it.
        for (key, entry) in entries.iter().filter(written) {
            merge(&mut recorded, &entry.threads);
            if !tops.iter().any(|top| key.cgroup.is_within(top)) {
                tops.insert(key.cgroup.clone());
            }
        }
        let read = tops.iter().filter_map(|top| self_placed::read(tree, top, Depth::AllPolicies).ok());
        Self { before: read.flatten().collect(), recorded, tops }
    }

    /// Restores pins, and returns lost policies.
    fn give_back(&self, tree: &CpusetTree) -> Vec<String> {
        let mut lost = pins::restore_pins(tree, &self.before, &self.recorded, Gives::Everywhere).failed;
        lost.extend(self_placed::not_given_back(tree, &self.before, &self.recorded, &self.tops));
        lost
    }
}

/// Adds threads of the entry of another file: the one of `cpuset.mems` has policies, that of `cpuset.cpus`
/// has pins.
fn merge(recorded: &mut Vec<SelfPlacedThread>, threads: &[SelfPlacedThread]) {
    for thread in threads {
        let Some(known) = recorded.iter_mut().find(|known| known.is(thread)) else {
            recorded.push(thread.clone());
            continue;
        };
        if known.policies.is_empty() {
            known.policies.clone_from(&thread.policies);
        }
        known.follow_pin(thread);
    }
}

/// Reports what [`restore`] would do, as far as that is known without writing. Needs no lock, so it works
/// while the daemon runs.
pub fn preview(tree: &CpusetTree, boot_id: Option<&str>, contents: &JournalContents) -> RestoreReport {
    let files = contents.entries.iter().filter(|(key, _)| !key.file.is_property());
    let files = files.map(|(key, entry)| {
        let result = match open_entry(tree, boot_id, key, entry) {
            Ok(pending) if pending.found == pending.original => RestoreResult::Unchanged,
            Ok(pending) => RestoreResult::WouldPutBack { from: pending.found },
            Err(result) => result,
        };
        Restored { cgroup: key.cgroup.clone(), file: key.file, original: entry.original.clone(), result }
    });
    RestoreReport { files: files.collect(), damaged: contents.damaged.clone(), ..RestoreReport::default() }
}

struct Pending<'a> {
    key: &'a EntryKey,
    original: &'a str,
    found: String,
    cpuset: OpenCpuset,
}

/// Gives the children of a cgroup their cpuset controller back.
fn give_back(tree: &CpusetTree, boot_id: Option<&str>, key: &EntryKey, entry: &Entry) -> RestoreResult {
    if is_of_another_boot(entry.boot_id.as_deref(), boot_id) {
        return skipped(ANOTHER_BOOT);
    }
    match reset::resume(tree, key) {
        Ok(Some(from)) => RestoreResult::PutBack { from },
        Ok(None) => RestoreResult::Unchanged,
        Err(_) if tree.open_or_root(&key.cgroup).is_err_and(|error| error.is_gone()) => {
            skipped("the cgroup is gone")
        }
        Err(error) => RestoreResult::Failed { error },
    }
}

pub(super) const ANOTHER_BOOT: &str = "the host has been started again since";

/// A cgroup and in which life of it something was set.
pub(super) struct Life<'a> {
    pub(super) cgroup: &'a CgroupPath,
    /// Inode of its directory.
    pub(super) inode: u64,
    /// The boot that the inode is of.
    pub(super) boot_id: Option<&'a str>,
}

impl Life<'_> {
    /// The cgroup, while it lasts; what has become of its files else.
    pub(super) fn open(&self, tree: &CpusetTree, boot_id: Option<&str>) -> Result<OpenCpuset, RestoreResult> {
        if is_of_another_boot(self.boot_id, boot_id) {
            return Err(skipped(ANOTHER_BOOT));
        }
        match tree.open(self.cgroup) {
            Ok(cpuset) if cpuset.inode() == self.inode => Ok(cpuset),
            Ok(_) => Err(skipped("the cgroup was removed and made again")),
            Err(error) if error.is_gone() => Err(skipped("the cgroup is gone")),
            Err(error) => Err(RestoreResult::Failed { error: error.to_string() }),
        }
    }
}

pub(super) fn skipped(reason: &str) -> RestoreResult {
    RestoreResult::Skipped { reason: reason.into() }
}

fn open_entry<'a>(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    key: &'a EntryKey,
    entry: &'a Entry,
) -> Result<Pending<'a>, RestoreResult> {
    let life = Life { cgroup: &key.cgroup, inode: key.inode, boot_id: entry.boot_id.as_deref() };
    let cpuset = life.open(tree, boot_id)?;
    match cpuset.read(key.file) {
        Ok(found) => Ok(Pending { key, original: &entry.original, found, cpuset }),
        // Without the controller it has no cpuset of its own, and when it is switched on again the file is
        // empty.
        Err(error) if error.is_gone() && cpuset.is_v2() && entry.original.trim().is_empty() => {
            Err(RestoreResult::Unchanged)
        }
        // With the cgroup still there: the controller is switched off, and may be switched on again.
        Err(error) => Err(RestoreResult::Failed { error: error.to_string() }),
    }
}

/// Third pass, for v2: files that were empty and that the kernel refused to empty because of tasks.
fn empty_what_has_tasks<'a>(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    journal: &mut Journal,
    open: &[Pending<'a>],
    results: &mut BTreeMap<&'a EntryKey, RestoreResult>,
) {
    let mut by_parent: BTreeMap<CgroupPath, Vec<&Pending<'a>>> = BTreeMap::new();
    for pending in open {
        let failed = matches!(results.get(pending.key), Some(RestoreResult::Failed { .. }));
        let confines = matches!(pending.key.file, ManagedFile::Mems | ManagedFile::Cpus);
        if failed && confines && pending.original.trim().is_empty() && pending.cpuset.is_v2() {
            by_parent
                .entry(pending.key.cgroup.parent().unwrap_or_else(CgroupPath::root))
                .or_default()
                .push(pending);
        }
    }
    for (parent, pending) in by_parent {
        let files: Vec<&EntryKey> = pending.iter().map(|pending| pending.key).collect();
        let emptied = reset::empty(tree, &parent, &files, boot_id, journal);
        for pending in pending {
            let result = match &emptied {
                Ok(()) => read_back(pending),
                Err(error) => widen_to_all(tree, &parent, pending).map_or_else(
                    |failed| {
                        let error = format!("emptying {}: {error}; {failed}", pending.key.cgroup);
                        RestoreResult::Failed { error }
                    },
                    |to| {
                        let (from, reason) = (pending.found.clone(), error.clone());
                        RestoreResult::Widened { from, to, reason }
                    },
                ),
            };
            results.insert(pending.key, result);
        }
    }
}

/// Gives a cgroup all that the one above it has, where its file cannot be emptied: that of a sibling with
/// cgroups below keeps the controller from being taken away (`-EBUSY`, kernel/cgroup/cgroup.c). Its processes
/// may run everywhere again, as intended. Returns the present content.
fn widen_to_all(tree: &CpusetTree, parent: &CgroupPath, pending: &Pending<'_>) -> Result<String, String> {
    let file = pending.key.file;
    let text = |error: super::cpuset::CpusetError| error.to_string();
    let all = tree.read_effective(parent, file).map_err(text)?;
    let all = all.ok_or_else(|| format!("{parent} does not say what it has"))?.trim().to_owned();
    pending.cpuset.write(file, &all).map_err(text)?;
    let now = pending.cpuset.read_effective(file).map_err(text)?;
    match now {
        Some(now) if now.trim() != all => Err(format!("{all} was written, {} is in effect", now.trim())),
        _ => Ok(all),
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Down,
    Up,
}

/// Parents before children or the other way round; of one cgroup `memory_migrate` first, so that
/// pages do not follow where they originally would not, then memory, then CPUs.
fn order<'p, 'a>(
    pending: &'p mut [Pending<'a>],
    direction: Direction,
) -> impl Iterator<Item = &'p Pending<'a>> + use<'p, 'a> {
    let depth = |entry: &Pending<'_>| entry.key.cgroup.depth();
    let rank = |entry: &Pending<'_>| match entry.key.file {
        ManagedFile::Mems => 1,
        ManagedFile::Cpus => 2,
        _ => 0,
    };
    match direction {
        Direction::Down => pending.sort_by_key(|entry| (depth(entry), rank(entry))),
        Direction::Up => pending.sort_by_key(|entry| (Reverse(depth(entry)), rank(entry))),
    }
    pending.iter()
}

/// First pass: sets the union of the present and the original value.
fn widen(pending: &Pending<'_>) -> Result<(), String> {
    if pending.key.file == ManagedFile::MemoryMigrate {
        return Ok(());
    }
    // Ids of nodes and of CPUs have the same text form; which of them it is does not matter here.
    let parse = |text: &str| text.trim().parse::<CpuSet>().map_err(|error| error.to_string());
    let (has, had) = (parse(&pending.found)?, parse(pending.original)?);
    // An empty set on v2 means all that the parent has: nothing is wider.
    if (has.is_empty() && pending.cpuset.is_v2()) || had.is_subset(&has) {
        return Ok(());
    }
    let union: CpuSet = has.union(&had);
    pending.cpuset.write(pending.key.file, &union.to_string()).map_err(|error| error.to_string())
}

/// Second pass: the exact original.
fn put_back(pending: &Pending<'_>) -> RestoreResult {
    let file = pending.key.file;
    if pending.found == pending.original {
        return RestoreResult::Unchanged;
    }
    match pending.cpuset.write(file, pending.original) {
        Ok(()) => read_back(pending),
        Err(error) => RestoreResult::Failed { error: error.to_string() },
    }
}

/// Does the file hold its original now?
fn read_back(pending: &Pending<'_>) -> RestoreResult {
    let file = pending.key.file;
    match pending.cpuset.read(file) {
        Ok(now) if now == pending.original => RestoreResult::PutBack { from: pending.found.clone() },
        Ok(now) => RestoreResult::Failed {
            error: format!(
                "{path}: {wanted:?} was written, the kernel says {now:?}",
                path = pending.cpuset.path().join(file.name()).display(),
                wanted = pending.original,
            ),
        },
        Err(error) => RestoreResult::Failed { error: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
