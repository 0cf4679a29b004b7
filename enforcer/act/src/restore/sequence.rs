//! The sequence that puts back what a daemon changed on a host.
//!
//! Problem: originals are in several records: the journal, and beside it those of pending containers, of pins
//! and of brakes. `numa-enforcer restore` and a daemon that ends must restore them in the same order.
//! Idea: [`RestoreSurvey::read`] reads the records without a lock and without a write. From what it found,
//! [`preview`](RestoreSurvey::preview) reports what a restore would do, and
//! [`carry_out`](RestoreSurvey::carry_out) does it under the journal's lock.
//! Order: the journal takes over the records of pending containers and of pins; slowed workloads are
//! released; interrupts get their CPUs back; the kubelet's present wishes take the place of older originals;
//! properties of units come before
//! files, because restoring the files shows what systemd makes of them.
//! Invariants: a record beside the journal that cannot be used is in the report and blocks nothing else; an
//! entry leaves a record only when the journal has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use enforcer_core::workload::CgroupPath;
use enforcer_host::{HostRoot, systemd::Systemd};
use enforcer_kernel::clock;

use super::{
    RestoreReport, RestoreResult, Restored, preview, restore, restore_within, retain_within,
    wanted_now::{self, ReadKubelet},
};
use crate::{
    actuator::read_boot_id,
    brake::undo as brake,
    cpuset::{CpusetTree, ManagedFile},
    in_the_making::{LeftBehind, left_behind, renewed},
    interrupts,
    journal::{
        BrakeRecord, DriftRecord, Entry, EntryKey, Journal, JournalContents, JournalError, LeftMaking,
        LeftPins, MakingRecord, NotedPins, PinsRecord, RecordedBrakes, RecordedInterrupts,
    },
    pins,
    units::{self as properties, UnitProperties, restore::SystemdOrReason},
};

/// What a restore asks and writes.
pub struct RestoreSources<'a> {
    /// Host whose systemd has properties of units.
    pub host: &'a HostRoot,
    /// Cpuset hierarchy of the host.
    pub tree: &'a CpusetTree,
    /// Called only if one of its containers has an entry.
    pub kubelet: ReadKubelet<'a>,
}

/// Whether a restore releases slowed workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrakeRelease {
    /// It does.
    Release,
    /// It does not: the daemon that ends releases them itself, or the process that watches it does.
    LeaveToDaemon,
}

/// Records of a state directory before a restore, read without a lock.
#[derive(Debug)]
pub struct RestoreSurvey<'a> {
    state_dir: &'a Path,
    boot_id: Option<String>,
    journal: JournalContents,
    pending: LeftBehind,
    brakes: Result<RecordedBrakes, JournalError>,
    interrupts: Result<RecordedInterrupts, JournalError>,
    pins: BTreeMap<CgroupPath, NotedPins>,
    /// The restore is about this cgroup and those below it; about all if absent.
    top: Option<CgroupPath>,
}

impl<'a> RestoreSurvey<'a> {
    /// Reads the records in `state_dir`. The cpuset hierarchy is needed only if containers are pending.
    ///
    /// # Errors
    ///
    /// If the journal cannot be read, or `tree` fails.
    pub fn read<E: From<JournalError>>(
        host: &HostRoot,
        state_dir: &'a Path,
        tree: impl FnOnce() -> Result<CpusetTree, E>,
    ) -> Result<Self, E> {
        let mut journal = Journal::peek(state_dir)?;
        // Read first: later steps may take long.
        let boot_id = read_boot_id(host);
        let pending = match MakingRecord::left(state_dir, boot_id.as_deref()) {
            Ok(left) if left.is_empty() => LeftBehind::default(),
            left => pending_containers(&tree()?, boot_id.as_deref(), left),
        };
        for (key, entry) in &pending.entries {
            journal.entries.entry(key.clone()).or_insert_with(|| entry.clone());
        }
        journal.entries.extend(renewed(&journal.entries, &pending.renewed));
        let brakes = BrakeRecord::read(state_dir);
        let interrupts = interrupts::recorded(state_dir);
        let pins = PinsRecord::left(state_dir, boot_id.as_deref()).pins;
        Ok(Self { state_dir, boot_id, journal, pending, brakes, interrupts, pins, top: None })
    }

    /// Contents of the journal, with the entries of pending containers; only of the part that is restored.
    pub fn journal(&self) -> &JournalContents {
        &self.journal
    }

    /// Cgroups that any record is about, in order.
    pub fn cgroups(&self) -> Vec<&CgroupPath> {
        let slowed = self.brakes.iter().flat_map(|brakes| brakes.slowed.iter()).map(|brake| &brake.cgroup);
        let of_journal = self.journal.entries.keys().map(|key| &key.cgroup);
        let cgroups: BTreeSet<&CgroupPath> =
            of_journal.chain(self.pending.awaited.keys()).chain(slowed).chain(self.pins.keys()).collect();
        cgroups.into_iter().collect()
    }

    /// Restricts the restore to a cgroup and those below it.
    pub fn narrow_to(&mut self, top: CgroupPath) {
        retain_within(&mut self.journal.entries, &top);
        self.top = Some(top);
    }

    /// Could all lines of the journal and of pending containers be read, and is no container awaited?
    pub fn is_conclusive(&self) -> bool {
        self.journal.damaged.is_empty() && self.pending_report().is_complete()
    }

    /// Is there nothing to restore, and nothing to report?
    pub fn is_empty(&self) -> bool {
        self.journal.entries.is_empty()
            && self.journal.damaged.is_empty()
            && self.pending_report() == RestoreReport::default()
            && self.brakes.as_ref().is_ok_and(RecordedBrakes::is_empty)
            && (self.top.is_some() || self.interrupts.as_ref().is_ok_and(RecordedInterrupts::is_empty))
    }

    /// Reports what [`Self::carry_out`] would do. Needs no lock, so it works while a daemon runs.
    pub fn preview(mut self, sources: &RestoreSources<'_>) -> RestoreReport {
        let boot_id = self.boot_id.as_deref();
        let pending = self.pending_report();
        let (kubelet, unread) = wanted_now::ask_kubelet(self.journal.entries.keys(), sources.kubelet);
        let wanted = wanted_now::changed(&self.journal.entries, &kubelet);
        self.journal.entries.extend(wanted);
        let units = with_systemd(sources.host, |systemd| {
            properties::restore::preview(systemd, boot_id, &self.journal)
        });
        let slowed = usable(brake::preview(sources.tree, boot_id, self.state_dir, self.top.as_ref()));
        let interrupts = self.put_interrupts_back(sources.host, true);
        let files = preview(sources.tree, boot_id, &self.journal);
        pending.and(unread).and(slowed).and(units).and(interrupts).and(files)
    }

    /// Restores, under the journal's lock. Errors of single files and records are in the report.
    ///
    /// # Errors
    ///
    /// If the journal cannot be opened, or another process holds it.
    pub fn carry_out(
        self,
        sources: &RestoreSources<'_>,
        brakes: BrakeRelease,
    ) -> Result<RestoreReport, JournalError> {
        let mut journal = Journal::open(self.state_dir)?;
        let report = self
            .pending_report()
            .and(self.take_over_pending(&mut journal))
            .and(self.take_over_pins(sources.tree, &mut journal))
            .and(match brakes {
                BrakeRelease::Release => self.release_brakes(sources.tree),
                BrakeRelease::LeaveToDaemon => RestoreReport::default(),
            })
            .and(self.put_interrupts_back(sources.host, false))
            .and(self.put_back(sources, &mut journal));
        Ok(report)
    }

    /// Pending containers of the part that is restored.
    fn pending_report(&self) -> RestoreReport {
        let is_wanted = |cgroup: &&CgroupPath| self.top.as_ref().is_none_or(|top| cgroup.is_within(top));
        let awaited = self.pending.awaited.keys().filter(is_wanted).cloned().collect();
        let (damaged, unusable) = (self.pending.damaged.clone(), self.pending.unusable.clone());
        RestoreReport { damaged, awaited, unusable, ..RestoreReport::default() }
    }

    /// Journals the pending containers that exist, and drops counts of drift.
    fn take_over_pending(&self, journal: &mut Journal) -> RestoreReport {
        let nothing = |()| RestoreReport::default();
        let forgotten = usable(DriftRecord::remove(self.state_dir).map(nothing));
        let mut taken = usable(self.journal_pending(journal).map(nothing));
        if !taken.is_complete() {
            let cgroups: BTreeSet<&CgroupPath> = self.pending.entries.keys().map(|key| &key.cgroup).collect();
            let not_taken = cgroups.into_iter().filter(|cgroup| !journal.has_set(cgroup));
            taken
                .unusable
                .extend(not_taken.map(|cgroup| format!("{cgroup} is not put back because of that")));
        }
        forgotten.and(taken)
    }

    /// Containers that do not exist, or cannot be read, stay in the record: they may still be created, or
    /// become readable.
    fn journal_pending(&self, journal: &mut Journal) -> Result<(), JournalError> {
        let LeftBehind { entries, renewed: wanted, awaited, unseen, damaged, .. } = &self.pending;
        if entries.is_empty() && wanted.is_empty() && damaged.is_empty() {
            return Ok(());
        }
        journal.record_all(entries.clone().into_iter().collect())?;
        journal.renew_all(renewed(journal.entries(), wanted))?;
        let (mut record, _) = MakingRecord::open(self.state_dir, self.boot_id.as_deref())?;
        record.keep(awaited.iter().chain(unseen))
    }

    /// Journals thread pins recorded by a daemon that was killed after its answer, for cgroups with entries.
    /// Pins of cgroups outside a narrowed restore stay in the record; all stay while a cgroup cannot be read.
    fn take_over_pins(&self, tree: &CpusetTree, journal: &mut Journal) -> RestoreReport {
        let LeftPins { pins, unread, .. } = PinsRecord::open(self.state_dir, self.boot_id.as_deref());
        let mut journal_pins = |(cgroup, noted): (&CgroupPath, &NotedPins)| {
            let journalled = match tree.open(cgroup) {
                // An ended container has no pins to lose.
                Err(error) if error.is_gone() || error.is_never() => Ok(()),
                Err(error) => Err(error.to_string()),
                Ok(cpuset) => {
                    let key =
                        EntryKey { cgroup: cgroup.clone(), file: ManagedFile::Cpus, inode: cpuset.inode() };
                    pins::record(journal, &key, &noted.before).map_err(|error| error.to_string())
                }
            };
            journalled.err().map(|error| {
                format!("where threads of {cgroup} had pinned themselves is not given back: {error}")
            })
        };
        let mut failed: Vec<String> = pins.iter().filter_map(&mut journal_pins).collect();
        // A file that is no record stays where it is.
        let is_usable = unread.is_empty() || !pins.is_empty();
        if self.top.is_none() && failed.is_empty() && is_usable {
            failed.extend(PinsRecord::remove(self.state_dir).err().map(|error| error.to_string()));
        }
        let unusable = unread.into_iter().chain(failed).collect();
        RestoreReport { unusable, ..RestoreReport::default() }
    }

    fn release_brakes(&self, tree: &CpusetTree) -> RestoreReport {
        usable(brake::undo(tree, self.boot_id.as_deref(), self.state_dir, self.top.as_ref()))
    }

    /// Interrupts belong to no cgroup: a restore of one leaves them.
    fn put_interrupts_back(&self, host: &HostRoot, is_preview: bool) -> RestoreReport {
        if self.top.is_some() {
            return RestoreReport::default();
        }
        let done = interrupts::put_back(host, self.boot_id.as_deref(), self.state_dir, is_preview);
        usable(done.map(|(interrupts, damaged)| RestoreReport {
            damaged,
            interrupts,
            ..RestoreReport::default()
        }))
    }

    /// Restores properties of units, then files.
    fn put_back(&self, sources: &RestoreSources<'_>, journal: &mut Journal) -> RestoreReport {
        let (boot_id, top) = (self.boot_id.as_deref(), self.top.as_ref());
        let renewed = usable(wanted_now::renew(journal, sources.kubelet, top));
        let guessed = if renewed.is_complete() { BTreeMap::new() } else { journal.entries().clone() };
        let units = with_systemd(sources.host, |systemd| {
            properties::restore::restore(systemd, boot_id, journal, top)
        });
        let files = match top {
            Some(top) => restore_within(sources.tree, boot_id, journal, top),
            None => restore(sources.tree, boot_id, journal),
        };
        let kept = keep_guessed(journal, guessed, &files);
        renewed.and(units).and(files).and(kept)
    }
}

/// Pending containers of a daemon that was killed before it could journal them.
fn pending_containers(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    left: Result<LeftMaking, JournalError>,
) -> LeftBehind {
    match left {
        Ok(left) => left_behind(tree, boot_id, left, clock::now_ns()),
        Err(error) => LeftBehind { unusable: vec![error.to_string()], ..LeftBehind::default() },
    }
}

/// Reports a record beside the journal that cannot be used; the rest of the restore goes on.
fn usable(result: Result<RestoreReport, JournalError>) -> RestoreReport {
    result.unwrap_or_else(|error| RestoreReport {
        unusable: vec![error.to_string()],
        ..RestoreReport::default()
    })
}

/// Where the kubelet's wishes are unknown, restored containers stay in the journal: a later restore that can
/// read its state gives them the right cpusets.
fn keep_guessed(
    journal: &mut Journal,
    mut guessed: BTreeMap<EntryKey, Entry>,
    files: &RestoreReport,
) -> RestoreReport {
    let is_there = |key: &EntryKey| {
        let of_it = |file: &&Restored| file.cgroup == key.cgroup && file.file == key.file;
        let result = files.files.iter().find(of_it).map(|file| &file.result);
        result.is_some_and(|result| !matches!(result, RestoreResult::Skipped { .. }))
    };
    guessed.retain(|key, _| wanted_now::is_of_kubelet(key) && is_there(key));
    usable(journal.record_all(guessed.into_iter().collect()).map(|()| RestoreReport::default()))
}

fn with_systemd<T>(host: &HostRoot, ask: impl FnOnce(SystemdOrReason<'_>) -> T) -> T {
    let found = Systemd::of_host(host).and_then(|found| found.ok_or(properties::restore::NO_SYSTEMD.into()));
    ask(found.as_ref().map(|found| found as &dyn UnitProperties).map_err(String::as_str))
}

#[cfg(test)]
mod tests;
