//! CPUs and memory nodes that administrators have set for systemd's units.
//!
//! systemd writes the cpuset of a unit with `AllowedCPUs=` or `AllowedMemoryNodes=` at every start and every
//! daemon-reload. systemd itself tells the files of a unit and the resulting value. Where it cannot be asked,
//! its files are read by its rules ([`files`]).
//!
//! Our own settings are in its files as well, and are skipped.

mod files;

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    owner::{OwnSettings, UnitSetting},
    workload::{UnitName, Workload},
};

use self::files::{UnitFiles, setting_in};
use crate::{
    HostRoot,
    systemd::{Systemd, SystemdError, UnitState},
};

/// Keys that systemd turns into a cpuset.
const KEYS: [&str; 2] = ["AllowedCPUs", "AllowedMemoryNodes"];

/// The units that decide about workloads.
pub fn units_of(workloads: &[Workload]) -> BTreeSet<UnitName> {
    workloads.iter().filter_map(|workload| UnitName::new(workload.settled_by_unit()?)).collect()
}

/// Units with such a setting that is not ours, by name. An unreadable file sets nothing.
pub fn read_units(
    host: &HostRoot,
    own: &OwnSettings,
    units: &BTreeSet<UnitName>,
) -> BTreeMap<String, UnitSetting> {
    // A captured machine has no systemd, and this host's says nothing about it.
    if host.captured || units.is_empty() {
        return BTreeMap::new();
    }
    let units: Vec<&UnitName> = units.iter().collect();
    let told = Systemd::of_host(host).ok().flatten().map(|systemd| systemd.show(&units));
    settings(told, &units, own, UnitFiles::of_host)
}

/// Settings from systemd, or from its files.
fn settings(
    told: Option<Result<Vec<UnitState>, SystemdError>>,
    units: &[&UnitName],
    own: &OwnSettings,
    files: impl FnOnce() -> UnitFiles,
) -> BTreeMap<String, UnitSetting> {
    let states = told.and_then(|told| {
        told.inspect_err(|error| tracing::debug!("{error}: the files of units are read instead")).ok()
    });
    let named = |unit: &UnitName, setting: Option<UnitSetting>| Some((unit.as_str().to_owned(), setting?));
    if let Some(states) = states {
        let each = units.iter().zip(&states);
        return each.filter_map(|(unit, state)| named(unit, told_setting(unit, state, own))).collect();
    }
    let files = files();
    units.iter().filter_map(|unit| named(unit, files.setting(unit.as_str(), own))).collect()
}

/// The value from systemd counts; its files tell where it comes from. Our setting hides that of an
/// administrator, which the files still contain.
fn told_setting(unit: &UnitName, state: &UnitState, own: &OwnSettings) -> Option<UnitSetting> {
    let set = KEYS.into_iter().zip([&state.cpus, &state.mems]).filter(|(_, value)| !value.is_empty());
    let mut settings = set.filter_map(|(key, value)| {
        let found = setting_in(state.files.iter().map(AsRef::as_ref), key, unit.as_str(), own);
        let is_ours = own.has(unit.as_str(), key, value);
        let unnamed = || UnitSetting { file: format!("systemd: {unit}"), line: format!("{key}={value}") };
        found.or_else(|| (!is_ours).then(unnamed))
    });
    settings.next()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_systemd_says_counts_and_its_files_say_where_it_comes_from() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let replaced = file("replaced.service", "[Service]\nAllowedCPUs=0-3\n");
        let below = file("10-below.conf", "[Service]\nAllowedCPUs=4-7\n");
        let ours = file("50-AllowedCPUs.conf", "[Service]\nAllowedCPUs=\nAllowedCPUs=0-1\n");
        let state = |cpus: &str, mems: &str, files: &[&String]| UnitState {
            known: true,
            cpus: cpus.into(),
            mems: mems.into(),
            files: files.iter().map(|path| (*path).clone()).collect(),
            ..UnitState::default()
        };
        let unit = UnitName::new("a.service").unwrap();
        let mut own = OwnSettings::default();
        own.add("a.service", "AllowedCPUs", "0-1");
        let line = |state: &UnitState| told_setting(&unit, state, &own).map(|setting| setting.line);
        for (what, state, expected) in [
            ("what is on the disk and not loaded sets nothing", state("", "", &[&replaced]), None),
            ("a file names it", state("0-3", "", &[&replaced]), Some("AllowedCPUs=0-3")),
            ("no file names it", state("5", "", &[]), Some("AllowedCPUs=5")),
            ("memory nodes alone", state("", "1", &[&replaced]), Some("AllowedMemoryNodes=1")),
            ("ours", state("0-1", "", &[&ours]), None),
            ("ours over an administrator's", state("0-1", "", &[&below, &ours]), Some("AllowedCPUs=4-7")),
            ("changed since", state("0-2", "", &[&ours]), Some("AllowedCPUs=0-2")),
        ] {
            assert_eq!(line(&state).as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn files_are_read_where_systemd_does_not_answer() {
        let unit = UnitName::new("a.service").unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.service"), "[Service]\nAllowedCPUs=0-3\n").unwrap();
        let own = OwnSettings::default();
        let files = || UnitFiles::read([root.path()]);
        let refused = || SystemdError::Refused { command: "show".into(), reason: "no".into() };
        for told in [None, Some(Err(refused()))] {
            let found = settings(told, &[&unit], &own, files);
            assert_eq!(found["a.service"].line, "AllowedCPUs=0-3");
        }
        let told = Some(Ok(vec![UnitState::default()]));
        assert!(settings(told, &[&unit], &own, files).is_empty());
    }
}
