//! A systemd that is played: it has units, writes the files of their cgroups, and can refuse or be silent.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use enforcer_core::workload::{CgroupPath, UnitName};

use super::UnitProperties;
use crate::cpuset::ManagedFile;
use enforcer_host::systemd::{SystemdError, UnitState};

/// Behaviour of the fake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Carries out each call.
    #[default]
    Obliging,
    /// It shows its units and refuses to set anything.
    Refusing,
    /// Nothing.
    Silent,
}

#[derive(Debug, Default)]
struct FakeUnits {
    units: BTreeMap<String, UnitState>,
    mood: Mood,
    asked: Vec<String>,
}

/// Clones are the same systemd.
#[derive(Debug, Clone)]
pub(crate) struct FakeSystemd {
    root: PathBuf,
    inside: Arc<Mutex<FakeUnits>>,
}

impl FakeSystemd {
    /// A systemd with its cgroups below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), inside: Arc::default() }
    }

    /// Starts the unit of a cgroup that is there.
    pub(crate) fn start(&self, cgroup: &str) {
        let unit = UnitName::of_cgroup(&CgroupPath::new(cgroup)).unwrap();
        let state = UnitState { control_group: cgroup.into(), known: true, ..UnitState::default() };
        self.inside.lock().unwrap().units.insert(unit.as_str().into(), state);
    }

    /// A unit that has ended: still known, or gone as a scope is.
    pub(crate) fn end(&self, unit: &str, known: bool) {
        let mut inside = self.inside.lock().unwrap();
        if known {
            inside.units.get_mut(unit).unwrap().control_group.clear();
        } else {
            inside.units.remove(unit);
        }
    }

    pub(crate) fn be(&self, mood: Mood) {
        self.inside.lock().unwrap().mood = mood;
    }

    /// Calls since this was last called.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.inside.lock().unwrap().asked)
    }

    /// Values of `AllowedCPUs` and `AllowedMemoryNodes`.
    pub(crate) fn values(&self, unit: &str) -> (String, String) {
        let state = self.inside.lock().unwrap().units[unit].clone();
        (state.cpus, state.mems)
    }

    /// Plays a daemon-reload: every unit's files get the values of its properties.
    pub(crate) fn reload(&self) {
        for state in self.inside.lock().unwrap().units.values() {
            self.write(state);
        }
    }

    /// As the kernel and systemd have it: no cpuset files where nothing is set.
    fn write(&self, state: &UnitState) {
        if state.control_group.is_empty() {
            return;
        }
        let dir = self.root.join(state.control_group.trim_start_matches('/'));
        for (file, value) in [("cpuset.cpus", &state.cpus), ("cpuset.mems", &state.mems)] {
            if state.cpus.is_empty() && state.mems.is_empty() {
                let _ = fs::remove_file(dir.join(file));
            } else {
                fs::write(dir.join(file), format!("{}\n", value.replace(' ', ","))).unwrap();
            }
        }
    }
}

impl UnitProperties for FakeSystemd {
    fn show(&self, unit: &UnitName) -> Result<UnitState, SystemdError> {
        let mut inside = self.inside.lock().unwrap();
        inside.asked.push(format!("show {unit}"));
        if inside.mood == Mood::Silent {
            return Err(SystemdError::TimedOut { command: "show".into(), limit: Duration::from_secs(1) });
        }
        Ok(inside.units.get(unit.as_str()).cloned().unwrap_or_default())
    }

    fn set(&self, unit: &UnitName, property: ManagedFile, value: &str) -> Result<(), SystemdError> {
        let mut inside = self.inside.lock().unwrap();
        inside.asked.push(format!("{unit} {}={value}", property.name()));
        let refused = || SystemdError::Refused { command: format!("set {unit}"), reason: "no".into() };
        if inside.mood != Mood::Obliging {
            return Err(refused());
        }
        let state = inside.units.get_mut(unit.as_str()).ok_or_else(refused)?;
        // It writes lists in its own way.
        let value = value.replace(',', " ");
        if property == ManagedFile::AllowedCpus {
            state.cpus = value;
        } else {
            state.mems = value;
        }
        let state = state.clone();
        drop(inside);
        self.write(&state);
        Ok(())
    }
}
