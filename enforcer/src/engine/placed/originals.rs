//! What containers would be set to without us, from the moment that a runtime is told something else on.
//!
//! `restore` puts it back from the journal, which has an entry for a cgroup that is there. Until one is, the original is in a record
//! of its own, for the next daemon, should this one be killed in between. It is written before the answer: what could not be noted
//! is not told.
//!
//! Never: anything is set here.

use enforcer_core::{
    place::{Announced, Cpuset},
    workload::CgroupPath,
};

use super::State;
use crate::enforce::journal::{JournalError, MakingRecord};

impl State {
    /// A container is made with our cpuset instead of what it was to have. False where that cannot be noted.
    pub(in crate::engine) fn made(&mut self, one: &Announced) -> bool {
        let placed = self.containers.holder(&one.id).is_some();
        one.cgroup.as_ref().is_none_or(|cgroup| !placed || self.note_original(cgroup, &one.now))
    }

    /// A container is made without what was decided for it.
    pub(in crate::engine) fn made_without(&mut self, id: &str) {
        if let Some(held) = &mut self.held {
            held.remove(id);
        }
    }

    /// What a cgroup would be set to, for the journal, and for the next daemon, should this one be killed before the journal has
    /// it. Where that cannot be written nothing is set from now on, and false is returned.
    fn note_original(&mut self, cgroup: &CgroupPath, original: &Cpuset) -> bool {
        if let Err(error) = self.write_original(cgroup, original) {
            if !self.barred {
                tracing::warn!("a runtime is told nothing until it can be recorded: {error}");
            }
            self.barred = true;
            self.hold(false);
            return false;
        }
        self.unrecorded.insert(cgroup.clone(), original.clone());
        true
    }

    fn write_original(&mut self, cgroup: &CgroupPath, original: &Cpuset) -> Result<(), JournalError> {
        let Some(record) = &mut self.making_record else { return Ok(()) };
        if record.is_long(self.unrecorded.len()) {
            record.keep(self.unrecorded.iter().filter(|(other, _)| *other != cgroup))?;
        }
        record.add(cgroup, original)
    }

    /// Nobody is left to be remembered.
    pub(super) fn forget_recorded(&mut self) {
        let record = self.making_record.as_mut().filter(|_| self.unrecorded.is_empty());
        if let Some(Err(error)) = record.map(MakingRecord::clear) {
            tracing::warn!("{error}");
        }
    }

    /// These are all that run, and what they are set to.
    pub(in crate::engine) fn are_set_to(&mut self, all: impl Iterator<Item = (CgroupPath, Cpuset)>) {
        self.untouched = all.collect();
    }

    /// So does this one, of which nobody was told.
    pub(in crate::engine) fn is_set_to(&mut self, cgroup: CgroupPath, cpuset: Cpuset) {
        self.untouched.insert(cgroup, cpuset);
    }

    /// Containers that run are about to be set by their runtime. Those that were set by us before are recorded already. False
    /// where what they are set to by now cannot be noted.
    pub(in crate::engine) fn changes<'a>(&mut self, ids: impl Iterator<Item = &'a String>) -> bool {
        let mut noted = true;
        if self.is_held() {
            return noted;
        }
        for id in ids {
            let cgroup = self.containers.cgroup(id);
            let Some((cgroup, before)) = cgroup.and_then(|cgroup| self.untouched.remove_entry(cgroup)) else {
                continue;
            };
            noted = noted && (self.unrecorded.contains_key(&cgroup) || self.note_original(&cgroup, &before));
            if let Some(held) = &mut self.held {
                held.insert(id.clone(), before.clone());
                self.untouched.insert(cgroup, before);
            }
        }
        self.started();
        noted
    }

    /// A container runs, so its cgroup is there.
    pub(in crate::engine) fn started(&mut self) {
        if !self.unrecorded.is_empty() {
            self.wants_turn();
        }
    }

    /// There is something for a turn to do that should not wait.
    pub(in crate::engine) fn wants_turn(&mut self) {
        self.started = true;
        self.starts.notify_one();
    }
}
