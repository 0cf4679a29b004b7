//! Record of pending containers: their originals and grants, from the answer to their runtime until the
//! journal has them.
//!
//! The journal knows a file by the inode of its cgroup, but the cgroup of a container is created after the
//! runtime was told its cpuset. If the daemon were killed in between, the next one would not know what the
//! container has, and would give its CPUs to another container. So a line with the cgroup's path is written
//! here before the answer; the next daemon takes it over into its journal.
//!
//! The runtime was not told of a cut line; damaged lines are set aside and named, as for the journal.
//!
//! Invariants: no file that another user may write is read, no symlink is followed, and no line of another
//! boot is used.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use enforcer_core::workload::CgroupPath;

use super::{
    entry::{LONGEST_NAMES, is_of_another_boot},
    error::JournalError,
    log::{self, Log, LogKind},
    pins_record::PinsRecord,
    reading::{Fold, ForeignRecord},
    record::{Made, Record},
};

/// Longest time from the answer to the creation of a container. Until then some runtimes do not list it
/// (containerd with NRI before 0.12), and a reconnect must not release its CPUs.
pub const MADE_WITHIN: Duration = Duration::from_mins(2);

/// At most some thousand containers, of which none has been recorded yet.
pub(super) static MAKING: LogKind =
    LogKind { name: "making", is_shared: true, long: 64 << 10, limit: 4 << 20 };

/// By the cgroup that is to be created.
pub(super) type PendingContainers = BTreeMap<CgroupPath, Made>;

impl Fold for PendingContainers {
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord> {
        let (cgroup, was) = match record {
            Record::Made { cgroup, made } => (cgroup.clone(), self.insert(cgroup, *made)),
            Record::Over { cgroup } => {
                let was = self.remove(&cgroup);
                (cgroup, was)
            }
            _ => return Err(ForeignRecord),
        };
        Ok(was.map(|made| Record::Made { cgroup, made: Box::new(made) }))
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        self.iter().map(|(cgroup, made)| pending(cgroup, made))
    }
}

fn pending(cgroup: &CgroupPath, made: &Made) -> Record {
    let mut made = made.clone();
    // One that names itself at such length is adopted from its cpuset alone.
    made.granted = made.granted.filter(|had| had.id.len() + cgroup.as_str().len() <= LONGEST_NAMES);
    Record::Made { cgroup: cgroup.clone(), made: Box::new(made) }
}

/// Containers in the making.
#[derive(Debug)]
pub struct MakingRecord {
    log: Log<PendingContainers>,
    boot_id: Option<String>,
    /// Pending containers whose end could not be written yet. It is written with the next line.
    overdue: BTreeSet<CgroupPath>,
}

impl Made {
    /// May its cgroup still be made, `now_ns` after the boot?
    pub fn may_come(&self, now_ns: u64) -> bool {
        Duration::from_nanos(now_ns.saturating_sub(self.told_ns)) < MADE_WITHIN
    }
}

/// Record of an earlier daemon.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftMaking {
    /// Latest line of each cgroup.
    pub made: BTreeMap<CgroupPath, Made>,
    /// Lines that cannot be read, with their numbers.
    pub damaged: Vec<String>,
}

impl LeftMaking {
    /// Is no container pending, and no line damaged?
    pub fn is_empty(&self) -> bool {
        self.made.is_empty() && self.damaged.is_empty()
    }
}

impl MakingRecord {
    /// Below the state directory of a journal that is open; with what a daemon before has left. Lines that
    /// cannot be read are set aside, if there is room for that.
    pub fn open(state_dir: &Path, boot_id: Option<&str>) -> Result<(Self, LeftMaking), JournalError> {
        let mut log: Log<PendingContainers> = Log::open(state_dir, &MAKING)?;
        log.state_mut().retain(|_, made| !is_of_another_boot(made.boot_id.as_deref(), boot_id));
        let left = LeftMaking { made: log.state().clone(), damaged: log.damaged().to_owned() };
        Ok((Self { log, boot_id: boot_id.map(str::to_owned), overdue: BTreeSet::new() }, left))
    }

    /// In a file that is there.
    #[cfg(any(test, feature = "testing"))]
    pub fn at(path: &Path) -> Self {
        Self { log: Log::at(path, &MAKING), boot_id: None, overdue: BTreeSet::new() }
    }

    /// Reads the record of this boot without creating one.
    pub fn left(state_dir: &Path, boot_id: Option<&str>) -> Result<LeftMaking, JournalError> {
        let found = log::read::<PendingContainers>(state_dir, &MAKING)?;
        let mut made = found.state;
        made.retain(|_, made| !is_of_another_boot(made.boot_id.as_deref(), boot_id));
        Ok(LeftMaking { made, damaged: found.damaged })
    }

    /// The boot in which it is written, where that is known.
    pub fn boot_id(&self) -> Option<&str> {
        self.boot_id.as_deref()
    }

    /// The record of pins beside it.
    pub fn of_pins(&self) -> PinsRecord {
        let path = self.log.path();
        PinsRecord::new(path.parent().unwrap_or(path), self.boot_id())
    }

    /// From now on these are pending, and no others, whatever its lines say until it is written anew.
    pub fn take_for_pending(&mut self, made: BTreeMap<CgroupPath, Made>) {
        *self.log.state_mut() = made;
        self.overdue.clear();
    }

    /// A container of this cgroup was made.
    pub fn add(&mut self, cgroup: &CgroupPath, made: &Made) -> Result<(), JournalError> {
        let over = self.overdue.iter().filter(|over| *over != cgroup);
        let over = over.map(|cgroup| Record::Over { cgroup: cgroup.clone() });
        self.log.append(over.chain([pending(cgroup, made)]).collect())?;
        self.overdue.clear();
        Ok(())
    }

    /// These are in the journal, or have ended. What cannot be written is tried again with the next line and
    /// at each check.
    pub fn over(&mut self, cgroups: Vec<CgroupPath>) -> Result<(), JournalError> {
        let pending = self.log.state();
        self.overdue.extend(cgroups.into_iter().filter(|cgroup| pending.contains_key(cgroup)));
        if self.overdue.len() == pending.len() {
            return self.clear();
        }
        self.log
            .append(self.overdue.iter().map(|cgroup| Record::Over { cgroup: cgroup.clone() }).collect())?;
        self.overdue.clear();
        Ok(())
    }

    /// Can lines be written, where a reader will find them? While the latest one could be, it is only looked
    /// whether the file is there; else it is tried. The error says why not.
    pub fn check(&mut self) -> Result<(), String> {
        if !self.overdue.is_empty() {
            self.over(Vec::new()).map_err(|error| error.to_string())?;
        }
        self.log.check()
    }

    /// Replaces the record by these pending containers: all of them are written, or the file stays as it was.
    pub fn keep<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a CgroupPath, &'a Made)>,
    ) -> Result<(), JournalError> {
        self.log.replace(all.map(|(cgroup, made)| (cgroup.clone(), made.clone())).collect())?;
        self.overdue.clear();
        Ok(())
    }

    /// All of them are in the journal, or have ended.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        self.log.clear()?;
        self.overdue.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
