//! What carries out one step of a plan.
//!
//! [`LiveActuator`] changes the host, [`DryRunActuator`] reports the changes that it would make; there is no
//! other difference between a dry run and a live one. A live write is recorded in the journal before it is
//! made, and read back afterwards. If the kernel keeps, or puts in effect, another value than the written
//! one, that is a result of its own.
//!
//! Invariants: an actuator writes no empty set, and no file of the root cgroup.

mod by_systemd;
mod partitions;
mod pins;

use std::collections::BTreeMap;

use enforcer_core::hosted::Cpuset as Original;
use enforcer_core::{
    call_times::CallTimes,
    hosted::GrantRecord,
    owner::OwnSettings,
    plan::{Action, OutcomeResult, Step},
    self_placement::CgroupThreads,
    turn::Partitioned,
    workload::{CgroupPath, printable},
};
use numa_topology::{
    degraded::Degraded,
    id::Id,
    set::{CpuSet, IdSet},
};

use super::{
    above,
    cpuset::{CpusetTree, ManagedFile, OpenCpuset},
    in_the_making,
    journal::{Entry, EntryKey, Journal},
    pages::{PageBudget, PageMove},
    pins::Gives,
    reset, self_placed,
    step_effect::{Next, StepEffect, Undo},
    units::{UnitProperty, Units, own_settings},
};
use enforcer_host::{HostPath, HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::Kernel;

/// Cpuset of a cgroup when its pinned threads were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenPins {
    /// Content of `cpuset.cpus`; empty where the cgroup inherits.
    pub cpus: CpuSet,
    /// Threads that had all their pinned CPUs when they were read; where no pin was restored, also threads
    /// with pins that only the journal knows.
    pub whole: Vec<CgroupThreads>,
    /// Threads that have not, because their cgroup does not have these CPUs: one phrase each.
    pub unkept: Vec<String>,
    /// Why these pins are not in the journal; they were given back nevertheless.
    pub unrecorded: Option<String>,
}

/// Carries out steps.
pub trait Actuator {
    /// A plan begins: what may be spent on one is to be had again.
    fn begin(&mut self) {}

    /// May anything be written: could it be undone? Costs nothing while that is so. The error says why not.
    fn ready(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Is nothing more to be done, because the daemon ends?
    fn is_stopped(&self) -> bool {
        false
    }

    /// Records the originals of cgroups that a runtime sets on our behalf. Returns the cgroups that are
    /// recorded or have expired. The rest do not exist yet, or cannot be read, which is degraded. The error
    /// means that nothing can be recorded; it names operation, path and cause.
    fn record(&mut self, originals: &BTreeMap<CgroupPath, Original>) -> Result<Vec<CgroupPath>, String> {
        Ok(originals.keys().cloned().collect())
    }

    /// Replaces the recorded originals of these cgroups by the present wishes of the runtimes' callers. A
    /// cgroup without a record gets none.
    fn renew(&mut self, _wanted: &BTreeMap<CgroupPath, Original>) -> Result<(), String> {
        Ok(())
    }

    /// Records where threads were pinned `before` a runtime writes CPUs of a cgroup on our behalf, and gives
    /// that back where the kernel has taken it away; `gives` says where, by what the file holds. `None` of a
    /// cgroup that has ended. The error is that nothing can be read; it names operation, path and cause.
    fn keep_pins(
        &mut self,
        _cgroup: &CgroupPath,
        _before: &[CgroupThreads],
        _gives: &dyn Fn(&CpuSet) -> Gives,
    ) -> Result<Option<SeenPins>, String> {
        Ok(None)
    }

    /// Records what memory nodes cgroups are set to now, so that they may be widened without a wait. Those
    /// that are gone are left out.
    fn record_mems(&mut self, _cgroups: &[&CgroupPath]) -> Result<(), String> {
        Ok(())
    }

    /// Has the daemon set this cgroup, at any time, and not put it back?
    fn has_set(&self, _cgroup: &CgroupPath) -> bool {
        false
    }

    /// Partition files that were set and not restored.
    fn partitioned(&self) -> Partitioned {
        Partitioned::default()
    }

    /// Records what containers have been granted, by id, for the next daemon.
    fn note_grants(&mut self, _grants: BTreeMap<String, GrantRecord>) -> Result<(), String> {
        Ok(())
    }

    /// Drops the entries of ended cgroups. Skips cgroups that were seen (`is_there`) and those above them.
    fn tidy(&mut self, _is_there: &dyn Fn(&CgroupPath) -> bool) -> Result<(), String> {
        Ok(())
    }

    /// Properties of systemd units that it has set.
    fn own_settings(&self) -> OwnSettings {
        OwnSettings::default()
    }

    /// Times of the calls that moved pages, since its creation; `None` if it moves none.
    fn page_move_calls(&self) -> Option<&CallTimes> {
        None
    }

    /// A missing or failing source, if any.
    fn degraded(&self) -> Option<Degraded> {
        None
    }

    /// Carries out one step.
    fn apply(&mut self, step: &Step) -> StepEffect;

    /// Takes one write back, unless its cgroup has ended; the error names operation, path, value and cause.
    fn undo(&mut self, undo: &Undo) -> Result<(), String>;
}

/// Changes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct DryRunActuator;

impl Actuator for DryRunActuator {
    fn apply(&mut self, _step: &Step) -> StepEffect {
        StepEffect { result: OutcomeResult::DryRun, undo: Vec::new(), next: Next::Continue }
    }

    fn undo(&mut self, _undo: &Undo) -> Result<(), String> {
        Ok(())
    }
}

/// Changes the host.
pub struct LiveActuator {
    tree: CpusetTree,
    proc: HostPath,
    boot_id: Option<String>,
    journal: Journal,
    kernel: Box<dyn Kernel>,
    budget: PageBudget,
    /// Connection to systemd, where there is one.
    units: Option<Units>,
    /// Containers with unreadable originals.
    unseen: Option<Degraded>,
}

impl LiveActuator {
    /// Writes to the cpuset hierarchy of `layout`, records in `journal`, and moves pages with `kernel`
    /// within `budget`.
    pub fn new(
        host: &HostRoot,
        layout: &CgroupLayout,
        journal: Journal,
        kernel: Box<dyn Kernel>,
        budget: PageBudget,
    ) -> Self {
        Self {
            tree: CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2).with_processes(&host.proc),
            proc: host.proc.clone(),
            boot_id: read_boot_id(host),
            journal,
            kernel,
            budget,
            units: None,
            unseen: None,
        }
    }

    /// Also sets the properties of systemd units.
    #[must_use]
    pub fn with_units(self, units: Units) -> Self {
        Self { units: Some(units), ..self }
    }

    /// The journal, for its open entries and damaged lines.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    fn set<T: Id>(
        &mut self,
        cgroup: &CgroupPath,
        file: ManagedFile,
        wanted: &IdSet<T>,
        undo: &mut Vec<Undo>,
    ) -> Result<OutcomeResult, String> {
        if wanted.is_empty() {
            return Err(format!("{cgroup}: an empty {} is never written", file.name()));
        }
        let cpuset = self.tree.open(cgroup).map_err(text)?;
        if file == ManagedFile::Mems && !cpuset.is_v2() {
            self.let_pages_follow(cgroup, &cpuset, undo)?;
        }
        let before = self.self_placed(cgroup, file, &cpuset, wanted);
        let property = self.units.as_mut().and_then(|units| units.property(cgroup, file));
        let is_told = |property: &UnitProperty| property.is(&wanted.to_string());
        match cpuset.read(file) {
            Ok(text) if text.trim().parse().ok().as_ref() == Some(wanted) => {
                // systemd writes it too when it is told.
                if property.as_ref().is_some_and(|property| !is_told(property)) {
                    self.record_file(cgroup, &cpuset, file, text, undo)?;
                }
            }
            Ok(text) => {
                let entry = Entry { threads: self_placed::to_record(&before), ..Entry::of_file("", None) };
                self.record_entry(cgroup, &cpuset, file, text, entry, undo)?;
                let written = cpuset.write(file, &wanted.to_string()).map_err(|error| error.to_string());
                written.map_err(|error| self.with_above(error, cgroup, file, wanted))?;
            }
            // The controller is off, and systemd switches it on.
            Err(error) if error.is_gone() && property.is_some() => {
                self.record_file(cgroup, &cpuset, file, "\n".to_owned(), undo)?;
            }
            Err(error) => return Err(error.to_string()),
        }
        if let Some(property) = property.filter(|property| !is_told(property)) {
            self.keep_by_systemd(cgroup, &property, &wanted.to_string(), undo)?;
        }
        if file == ManagedFile::Cpus {
            self.give_pins_back(&cpuset, cgroup, &before);
        }
        let now = cpuset.read(file).map_err(text)?;
        let effective = cpuset.read_effective(file).map_err(text)?;
        let as_wanted = |text: &str| text.trim().parse().ok().as_ref() == Some(wanted);
        let now = now.trim().to_owned();
        Ok(match effective {
            _ if !as_wanted(&now) => OutcomeResult::Differs { wanted: wanted.to_string(), read_back: now },
            Some(effective) if !as_wanted(&effective) => OutcomeResult::Differs {
                wanted: wanted.to_string(),
                read_back: self.with_above(
                    format!("{now}, in effect: {}", effective.trim()),
                    cgroup,
                    file,
                    wanted,
                ),
            },
            _ => OutcomeResult::Applied { read_back: now },
        })
    }

    /// Adds which cgroup above it is the reason, if one is.
    fn with_above<T: Id>(
        &self,
        said: String,
        cgroup: &CgroupPath,
        file: ManagedFile,
        wanted: &IdSet<T>,
    ) -> String {
        match above::too_narrow(&self.tree, cgroup, file, wanted) {
            Some(above) => format!("{said}; {above}"),
            None => said,
        }
    }

    /// On v1 pages follow a change of `cpuset.mems` only where `memory_migrate` says so
    /// (Documentation/admin-guide/cgroup-v1/cpusets.rst, 1.4); v2 always moves them.
    fn let_pages_follow(
        &mut self,
        cgroup: &CgroupPath,
        cpuset: &OpenCpuset,
        undo: &mut Vec<Undo>,
    ) -> Result<(), String> {
        let file = ManagedFile::MemoryMigrate;
        match cpuset.read(file) {
            Ok(before) if before.trim() != "1" => self.write(cgroup, cpuset, file, before, "1", undo),
            Ok(_) => Ok(()),
            Err(error) if error.is_gone() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The one place that writes files: journal first.
    fn write(
        &mut self,
        cgroup: &CgroupPath,
        cpuset: &OpenCpuset,
        file: ManagedFile,
        before: String,
        value: &str,
        undo: &mut Vec<Undo>,
    ) -> Result<(), String> {
        self.record_file(cgroup, cpuset, file, before, undo)?;
        cpuset.write(file, value).map_err(text)
    }

    fn record_file(
        &mut self,
        cgroup: &CgroupPath,
        cpuset: &OpenCpuset,
        file: ManagedFile,
        before: String,
        undo: &mut Vec<Undo>,
    ) -> Result<(), String> {
        self.record_entry(cgroup, cpuset, file, before, Entry::of_file("", None), undo)
    }

    /// Records the content of a file, with the other fields of the entry.
    fn record_entry(
        &mut self,
        cgroup: &CgroupPath,
        cpuset: &OpenCpuset,
        file: ManagedFile,
        before: String,
        entry: Entry,
        undo: &mut Vec<Undo>,
    ) -> Result<(), String> {
        let key = EntryKey { cgroup: cgroup.clone(), file, inode: cpuset.inode() };
        let original = self.without_us(cgroup, file, before.clone());
        let entry = Entry { original, boot_id: self.boot_id.clone(), ..entry };
        self.journal.record(key.clone(), entry).map_err(text)?;
        undo.push(Undo { key, before });
        Ok(())
    }
}

impl Actuator for LiveActuator {
    fn begin(&mut self) {
        self.budget.renew();
        // It is looked for again before the next one.
        self.unseen = None;
    }

    fn ready(&mut self) -> Result<(), String> {
        self.journal.check()
    }

    fn is_stopped(&self) -> bool {
        self.budget.is_stopped()
    }

    fn record(&mut self, originals: &BTreeMap<CgroupPath, Original>) -> Result<Vec<CgroupPath>, String> {
        let (mut there, mut entries, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
        for (cgroup, original) in originals {
            match in_the_making::originals(&self.tree, self.boot_id.as_deref(), cgroup, original) {
                Ok(files) => entries.extend(files),
                Err(error) if error.is_gone() => continue,
                Err(error) if error.is_never() => {
                    let error = printable(&error.to_string());
                    tracing::warn!(
                        "no original is recorded for a container whose cgroup cannot exist: {error}"
                    );
                }
                Err(error) => {
                    unseen.push(error.to_string());
                    continue;
                }
            }
            there.push(cgroup.clone());
        }
        self.unseen = unseen_originals(&unseen);
        self.journal.record_all(entries).map_err(text)?;
        Ok(there)
    }

    fn renew(&mut self, wanted: &BTreeMap<CgroupPath, Original>) -> Result<(), String> {
        let renewed = in_the_making::renewed(self.journal.entries(), wanted);
        if renewed.is_empty() { Ok(()) } else { self.journal.renew_all(renewed).map_err(text) }
    }

    fn keep_pins(
        &mut self,
        cgroup: &CgroupPath,
        before: &[CgroupThreads],
        gives: &dyn Fn(&CpuSet) -> Gives,
    ) -> Result<Option<SeenPins>, String> {
        self.keep_pins_of(cgroup, before, gives)
    }

    fn record_mems(&mut self, cgroups: &[&CgroupPath]) -> Result<(), String> {
        let file = ManagedFile::Mems;
        let mut entries = Vec::new();
        for cgroup in cgroups {
            let read = self.tree.open(cgroup).and_then(|cpuset| Ok((cpuset.inode(), cpuset.read(file)?)));
            match read {
                Ok((inode, found)) => {
                    let key = EntryKey { cgroup: (*cgroup).clone(), file, inode };
                    let original = self.without_us(cgroup, file, found);
                    entries.push((key, Entry::of_file(original, self.boot_id.as_deref())));
                }
                Err(error) if error.is_gone() || error.is_never() => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.journal.record_all(entries).map_err(text)
    }

    fn has_set(&self, cgroup: &CgroupPath) -> bool {
        self.journal.has_set(cgroup)
    }

    fn partitioned(&self) -> Partitioned {
        self.with_partition_files()
    }

    fn note_grants(&mut self, grants: BTreeMap<String, GrantRecord>) -> Result<(), String> {
        self.journal.note_grants(grants).map_err(text)
    }

    fn tidy(&mut self, is_there: &dyn Fn(&CgroupPath) -> bool) -> Result<(), String> {
        let mut ended = Vec::new();
        // A controller is the business of a restore, and its cgroup may be the root; a property outlives the
        // cgroup.
        let of_cgroups = |key: &&EntryKey| key.file != ManagedFile::SubtreeControl && !key.file.is_property();
        let mut keys = self.journal.entries().keys().filter(of_cgroups).peekable();
        while let Some(first) = keys.next() {
            let mut of_it = vec![first];
            while let Some(key) = keys.next_if(|key| key.cgroup == first.cgroup) {
                of_it.push(key);
            }
            // Of one that was made again there are entries of two lives.
            let one_life = of_it.iter().all(|key| key.inode == first.inode);
            let partitions = of_it.iter().any(|key| partitions::is_of_partitions(key.file));
            if one_life && !partitions && is_there(&first.cgroup) {
                continue;
            }
            let inode = match self.tree.open(&first.cgroup) {
                Ok(cpuset) => {
                    let as_before = of_it.iter().filter(|key| self.is_as_before(key, &cpuset));
                    ended.extend(as_before.map(|key| (*key).clone()));
                    Some(cpuset.inode())
                }
                Err(error) if error.is_gone() => None,
                // Unknown whether the cgroup still exists: keep its entries.
                Err(_) => continue,
            };
            ended.extend(of_it.into_iter().filter(|key| Some(key.inode) != inode).cloned());
        }
        self.journal.close_all(&ended).map_err(text)?;
        self.reset_ended_units()
    }

    fn own_settings(&self) -> OwnSettings {
        own_settings(self.journal.entries())
    }

    fn page_move_calls(&self) -> Option<&CallTimes> {
        Some(self.budget.calls())
    }

    fn degraded(&self) -> Option<Degraded> {
        self.unseen.clone().or_else(|| self.units.as_ref()?.degraded())
    }

    fn apply(&mut self, step: &Step) -> StepEffect {
        let effect = self.carry_out(step);
        if matches!(effect.result, OutcomeResult::Failed { .. }) && self.has_ended(step, &effect.undo) {
            return StepEffect { result: OutcomeResult::Gone, next: Next::Gone, ..effect };
        }
        effect
    }

    fn undo(&mut self, undo: &Undo) -> Result<(), String> {
        if undo.key.file.is_property() {
            return self.set_back(undo);
        }
        match self.tree.open(&undo.key.cgroup) {
            Ok(cpuset) if cpuset.inode() == undo.key.inode => self.write_back(undo, &cpuset)?,
            // It has ended, or is another one now.
            Ok(_) => return self.journal.close(&undo.key).map_err(text),
            Err(error) if error.is_gone() => return self.journal.close(&undo.key).map_err(text),
            Err(error) => return Err(error.to_string()),
        }
        self.close_original(undo)
    }
}

impl LiveActuator {
    /// Has the cgroup ended since the step began, or before?
    fn has_ended(&self, step: &Step, undo: &[Undo]) -> bool {
        match self.tree.open(step.action.cgroup()) {
            Ok(cpuset) => {
                let mut files = undo.iter().filter(|undo| !undo.key.file.is_property());
                files.any(|undo| undo.key.inode != cpuset.inode())
            }
            Err(error) => error.is_gone(),
        }
    }

    fn carry_out(&mut self, step: &Step) -> StepEffect {
        let mut undo = Vec::new();
        let outcome = match &step.action {
            Action::SetCpus { cgroup, cpus } => self.set(cgroup, ManagedFile::Cpus, cpus, &mut undo),
            Action::SetMems { cgroup, mems } => self.set(cgroup, ManagedFile::Mems, mems, &mut undo),
            Action::SetExclusive { cgroup, cpus } => self.set_exclusive(cgroup, cpus, &mut undo),
            Action::SetPartition { cgroup, kind } => return self.set_partition(cgroup, *kind),
            Action::MovePages { cgroup, from, to, most_bytes } => {
                return PageMove::new(&*self.kernel, &self.proc, &mut self.budget)
                    .at_most(*most_bytes)
                    .carry_out(&self.tree.path_of(cgroup), from, *to)
                    .into_effect(from, *to);
            }
        };
        let result = outcome.unwrap_or_else(|error| OutcomeResult::Failed { error });
        let next = match result {
            OutcomeResult::Applied { .. } => Next::Continue,
            // The plan reckoned with something else than the kernel gives.
            _ => Next::RollBack,
        };
        StepEffect { result, undo, next }
    }

    /// Drops the journal entry of a file that holds its original again. The original of an earlier plan
    /// stays.
    fn close_original(&mut self, undo: &Undo) -> Result<(), String> {
        let original =
            self.journal.entries().get(&undo.key).is_some_and(|entry| entry.original == undo.before);
        if original { self.journal.close(&undo.key).map_err(text) } else { Ok(()) }
    }

    fn write_back(&mut self, undo: &Undo, cpuset: &OpenCpuset) -> Result<(), String> {
        match cpuset.read(undo.key.file) {
            Ok(now) if now == undo.before => return Ok(()),
            // systemd has switched the controller off again.
            Err(error) if error.is_gone() && undo.before.trim().is_empty() => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        let written = cpuset.write(undo.key.file, &undo.before).map_err(text);
        if written.is_err() && undo.before.trim().is_empty() && cpuset.is_v2() {
            let parent = undo.key.cgroup.parent().unwrap_or_else(CgroupPath::root);
            let boot_id = self.boot_id.as_deref();
            return reset::empty(&self.tree, &parent, &[&undo.key], boot_id, &mut self.journal);
        }
        written
    }
}

/// Degraded entry for containers with unreadable originals, which cannot be restored.
fn unseen_originals(errors: &[String]) -> Option<Degraded> {
    let (first, more) = errors.split_first()?;
    let reason = match more.len() {
        0 => first.clone(),
        more => format!("{first}; and {more} more"),
    };
    let effect =
        "what a runtime set for these containers is not put back by restore; it is tried again each turn";
    Some(Degraded::new("journal", reason, effect))
}

/// `/proc/sys/kernel/random/boot_id`.
pub fn read_boot_id(host: &HostRoot) -> Option<String> {
    let text = host.proc.join("sys/kernel/random/boot_id").read_text().ok()?;
    Some(text.trim().to_owned())
}

fn text(error: impl std::error::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
