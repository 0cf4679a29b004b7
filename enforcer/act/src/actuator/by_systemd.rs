//! The systemd side of a write: sets the property, so that systemd keeps the written value
//! ([`units`](super::super::units)).
//!
//! As with files, the journal is written first and the previous value can be restored. A property outlives
//! the cgroup: when the unit starts again, systemd creates a new cgroup and sets it to our value. That value
//! must not be recorded as the original.

use enforcer_core::{
    owner::{as_in_file, is_same_list},
    workload::{CgroupPath, UnitName},
};

use super::{LiveActuator, Undo, text};
use crate::{
    cpuset::ManagedFile,
    journal::{Entry, EntryKey},
    units::{UnitProperty, key_of},
};

impl LiveActuator {
    /// Sets a property to the new value of the cgroup's file. The file's original is recorded already. If
    /// systemd refuses but the file is written, the workload has its place and the daemon reports what it
    /// lost.
    pub(super) fn keep_by_systemd(
        &mut self,
        cgroup: &CgroupPath,
        property: &UnitProperty,
        wanted: &str,
        undo: &mut Vec<Undo>,
    ) -> Result<(), String> {
        let Some(units) = &mut self.units else { return Ok(()) };
        let key = property.key(cgroup);
        let entry = Entry {
            original: property.value.clone(),
            boot_id: self.boot_id.clone(),
            set: vec![wanted.to_owned()],
            threads: Vec::new(),
        };
        self.journal.record(key.clone(), entry).map_err(text)?;
        undo.push(Undo { key, before: property.value.clone() });
        match units.set(&property.unit, property.property, wanted) {
            Err(error) if !self.has_file(cgroup, property) => Err(error),
            _ => Ok(()),
        }
    }

    /// Content that a file without an entry would have without us. The file of a restarted unit holds our
    /// property's value; its original is in the entry of its earlier life ([`Self::keep_by_systemd`]).
    pub(super) fn without_us(&self, cgroup: &CgroupPath, file: ManagedFile, found: String) -> String {
        let told = file.property().and_then(|property| self.journal.entries().get(&key_of(cgroup, property)));
        let is_ours = |entry: &&Entry| {
            entry.boot_id == self.boot_id && entry.set.iter().any(|set| is_same_list(set, found.trim()))
        };
        told.filter(is_ours).and_then(|entry| as_in_file(&entry.original)).unwrap_or(found)
    }

    /// Is there a file that was written?
    fn has_file(&self, cgroup: &CgroupPath, property: &UnitProperty) -> bool {
        self.tree.open(cgroup).is_ok_and(|cpuset| cpuset.read(property.file).is_ok())
    }

    /// Takes a property back.
    pub(super) fn set_back(&mut self, undo: &Undo) -> Result<(), String> {
        if let (Some(units), Some(unit)) = (&mut self.units, UnitName::of_cgroup(&undo.key.cgroup)) {
            units.set(&unit, undo.key.file, &undo.before)?;
        }
        self.close_original(undo)
    }

    /// Resets the properties of ended units, so that a restart does not bring our values back.
    pub(super) fn reset_ended_units(&mut self) -> Result<(), String> {
        let Some(units) = &mut self.units else { return Ok(()) };
        let ended = |key: &&EntryKey| {
            key.file.is_property() && self.tree.open(&key.cgroup).is_err_and(|error| error.is_gone())
        };
        let keys: Vec<EntryKey> = self.journal.entries().keys().filter(ended).cloned().collect();
        let mut closed = Vec::new();
        for key in keys {
            let (Some(unit), Some(entry)) =
                (UnitName::of_cgroup(&key.cgroup), self.journal.entries().get(&key))
            else {
                continue;
            };
            // What fails is named by `degraded`, and tried again the next time.
            if units.reset(&unit, key.file, &entry.original).is_ok() {
                closed.push(key);
            }
        }
        self.journal.close_all(&closed).map_err(text)
    }
}
