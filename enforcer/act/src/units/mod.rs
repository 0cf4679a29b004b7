//! CPUs and memory nodes as properties of systemd's units, for this boot only.
//!
//! Problem: systemd owns the cgroup of a unit. A value written there without it is lost at the next
//! daemon-reload (systemd 262, not 257), or when systemd next sets a property of the unit. A unit without CPU
//! or memory limits has no cpuset files at all, because systemd enables the controller only where a unit
//! needs it. Idea: besides the file, set `AllowedCPUs=` and `AllowedMemoryNodes=` of the unit to the same
//! value. Then systemd writes what is there already.
//!
//! The file comes first where there is one: moving the pages of a workload may take the kernel seconds, and
//! process 1 must not be the one that waits for it. Where systemd cannot be asked, the file is all there is,
//! and that is named ([`Units::degraded`]).
//!
//! Invariants: a property is set only if the unit's cgroup is that of the workload, and only until the next
//! boot.

#[cfg(test)]
pub(crate) mod fake;
pub mod restore;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use enforcer_core::{
    owner::{OwnSettings, is_same_list},
    workload::{CgroupPath, UnitName},
};
use numa_topology::degraded::Degraded;

use super::{
    cpuset::ManagedFile,
    journal::{Entry, EntryKey, Journal},
};
use enforcer_host::systemd::{Systemd, SystemdError, UnitState};

/// Time for which systemd is not asked again when it could not be.
const PAUSE: Duration = Duration::from_mins(1);

/// Inode in the key of a property: it outlives the cgroup.
const NO_INODE: u64 = 0;

/// systemd, as far as cpusets of its units go.
pub trait UnitProperties: Send {
    /// Properties of a unit; empty for an unknown one.
    fn show(&self, unit: &UnitName) -> Result<UnitState, SystemdError>;

    /// Sets a property until the next boot; an empty value resets it.
    fn set(&self, unit: &UnitName, property: ManagedFile, value: &str) -> Result<(), SystemdError>;
}

impl UnitProperties for Systemd {
    fn show(&self, unit: &UnitName) -> Result<UnitState, SystemdError> {
        Ok(Self::show(self, &[unit])?.pop().unwrap_or_default())
    }

    fn set(&self, unit: &UnitName, property: ManagedFile, value: &str) -> Result<(), SystemdError> {
        Self::set(self, unit, property.name(), value)
    }
}

/// Value of the property behind this.
pub(super) fn value_of(state: &UnitState, property: ManagedFile) -> &str {
    if property == ManagedFile::AllowedCpus { &state.cpus } else { &state.mems }
}

/// A property of the unit that a cgroup belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnitProperty {
    pub(super) unit: UnitName,
    /// The file that says the same.
    pub(super) file: ManagedFile,
    pub(super) property: ManagedFile,
    /// Its value.
    pub(super) value: String,
}

impl UnitProperty {
    /// How the journal knows it.
    pub(super) fn key(&self, cgroup: &CgroupPath) -> EntryKey {
        key_of(cgroup, self.property)
    }

    /// Is it set to this?
    pub(super) fn is(&self, wanted: &str) -> bool {
        is_same_list(&self.value, wanted)
    }
}

/// How the journal knows a property of the unit that a cgroup belongs to.
pub(super) fn key_of(cgroup: &CgroupPath, property: ManagedFile) -> EntryKey {
    EntryKey { cgroup: cgroup.clone(), file: property, inode: NO_INODE }
}

/// Connection to systemd, with its failures.
pub struct Units {
    systemd: Box<dyn UnitProperties>,
    /// Reason of a missing answer, and the time until which it is not asked again.
    silent: Option<(String, Instant)>,
    /// Units with refused properties, and why.
    refused: BTreeMap<UnitName, String>,
}

impl Units {
    /// Asks this systemd.
    pub fn new(systemd: Box<dyn UnitProperties>) -> Self {
        Self { systemd, silent: None, refused: BTreeMap::new() }
    }

    /// The property that says the same as `file` of this cgroup; `None` where systemd does not own the
    /// cgroup, or cannot be asked.
    pub(super) fn property(&mut self, cgroup: &CgroupPath, file: ManagedFile) -> Option<UnitProperty> {
        let property = file.property()?;
        let unit = UnitName::of_cgroup(cgroup)?;
        let state = self.ask(&unit, |systemd| systemd.show(&unit)).ok()?;
        let value = value_of(&state, property).to_owned();
        (state.control_group == cgroup.as_str()).then_some(UnitProperty { unit, file, property, value })
    }

    /// Sets a property.
    pub(super) fn set(&mut self, unit: &UnitName, property: ManagedFile, value: &str) -> Result<(), String> {
        self.ask(unit, |systemd| systemd.set(unit, property, value))?;
        self.refused.remove(unit);
        Ok(())
    }

    /// Gives a property of a unit that has ended back, unless the unit is gone with everything that was set
    /// of it.
    pub(super) fn reset(
        &mut self,
        unit: &UnitName,
        property: ManagedFile,
        original: &str,
    ) -> Result<(), String> {
        self.refused.remove(unit);
        let known = self.ask(unit, |systemd| systemd.show(unit))?.known;
        if known { self.set(unit, property, original) } else { Ok(()) }
    }

    /// Degraded entry while systemd refuses: units lose their cpusets at the next daemon-reload.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        let silent = self.silent.as_ref().map(|(reason, _)| reason);
        Some(not_kept(silent.or_else(|| self.refused.values().next())?))
    }

    /// A systemd that does not answer is not asked again for a while: a plan has many steps.
    fn ask<T>(
        &mut self,
        unit: &UnitName,
        question: impl FnOnce(&dyn UnitProperties) -> Result<T, SystemdError>,
    ) -> Result<T, String> {
        if let Some((reason, until)) = &self.silent
            && Instant::now() < *until
        {
            return Err(reason.clone());
        }
        let answer = question(&*self.systemd);
        self.silent = None;
        answer.map_err(|error| {
            let reason = error.to_string();
            if matches!(error, SystemdError::Refused { .. }) {
                self.refused.insert(unit.clone(), reason.clone());
            } else {
                self.silent = Some((reason.clone(), Instant::now() + PAUSE));
            }
            reason
        })
    }
}

/// systemd cannot be asked.
pub fn not_kept(reason: &str) -> Degraded {
    let effect = "cpusets of its units are written to their files alone: they are lost at the next daemon-reload, until \
                  that is noticed, and units without cpuset files cannot be placed";
    Degraded::new("systemd", reason, effect)
}

/// Properties of units that we have set, by the journal.
pub fn own_settings(entries: &BTreeMap<EntryKey, Entry>) -> OwnSettings {
    let mut own = OwnSettings::default();
    for (key, entry) in entries {
        let Some(unit) = UnitName::of_cgroup(&key.cgroup).filter(|_| key.file.is_property()) else {
            continue;
        };
        for value in &entry.set {
            own.add(unit.as_str(), key.file.name(), value);
        }
    }
    own
}

/// The same from a journal that another process may hold; empty where there is no readable one.
pub fn recorded_settings(state_dir: &Path) -> OwnSettings {
    Journal::peek(state_dir).map(|contents| own_settings(&contents.entries)).unwrap_or_default()
}
