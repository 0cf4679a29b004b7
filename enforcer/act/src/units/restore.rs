//! Resets the properties of units that we have set.
//!
//! Runs before the files are restored: systemd writes the file of the unit's cgroup, or disables the
//! controller, and the [restore](super::super::restore) of files handles remaining differences.

use std::collections::BTreeMap;

use enforcer_core::{
    owner::is_same_list,
    workload::{CgroupPath, Origin, UnitName, identify},
};

use super::{UnitProperties, key_of, value_of};
use crate::{
    journal::{Entry, EntryKey, Journal, JournalContents, is_of_another_boot},
    restore::{ANOTHER_BOOT, RestoreReport, RestoreResult, Restored, skipped},
};

/// Why systemd cannot be asked where there is none.
pub const NO_SYSTEMD: &str = "process 1 is not systemd";

/// systemd, or why it cannot be asked.
pub type SystemdOrReason<'a> = Result<&'a dyn UnitProperties, &'a str>;

/// Restores every property of the journal, or those of one cgroup and below.
pub fn restore(
    systemd: SystemdOrReason<'_>,
    boot_id: Option<&str>,
    journal: &mut Journal,
    top: Option<&CgroupPath>,
) -> RestoreReport {
    let entries = journal.entries().clone();
    let mut report = RestoreReport::default();
    let is_wanted = |key: &EntryKey| top.is_none_or(|top| key.cgroup.is_within(top));
    // What is recorded of a scope was set by its runtime for us: its files say what it should be.
    for key in entries.keys().filter(|key| is_wanted(key) && is_said_by_file(&entries, key)) {
        if let Err(error) = journal.close(key) {
            report.unusable.push(error.to_string());
        }
    }
    for due in due(&entries).filter(|due| is_wanted(&due.key)) {
        let Some(mut result) = due.shown(systemd, put_back(systemd, boot_id, &due.key, &due.entry)) else {
            continue;
        };
        let is_failed = matches!(result, RestoreResult::Failed { .. });
        let noted = match (is_failed, due.of_files) {
            (false, true) | (true, false) => Ok(()),
            (false, false) => journal.close(&due.key),
            // The files are put back and closed: without an entry of its own the next restore knows nothing
            // of it.
            (true, true) => journal.record(due.key.clone(), due.entry.clone()),
        };
        if let Err(error) = noted {
            let error = match result {
                RestoreResult::Failed { error: before } => format!("{before}; {error}"),
                _ => format!("it is as it was, but {error}"),
            };
            result = RestoreResult::Failed { error };
        }
        report.files.push(restored(&due.key, &due.entry, result));
    }
    report
}

/// A property to restore.
struct DueProperty {
    key: EntryKey,
    entry: Entry,
    /// It has no entry of its own; the entries of the cgroup's files imply it.
    of_files: bool,
}

impl DueProperty {
    /// Result to report; `None` for a container without such a scope, or without a set property.
    fn shown(&self, systemd: SystemdOrReason<'_>, result: RestoreResult) -> Option<RestoreResult> {
        match result {
            result if !self.of_files => Some(result),
            RestoreResult::Unchanged | RestoreResult::Skipped { .. } => None,
            RestoreResult::Failed { .. } if matches!(systemd, Err(NO_SYSTEMD)) => None,
            RestoreResult::Failed { error } => {
                let later =
                    "at the next daemon-reload systemd may write again what a runtime was told for us";
                Some(RestoreResult::Failed { error: format!("{error}; {later}") })
            }
            result => Some(result),
        }
    }
}

/// All properties to restore; for a restore and for a dry run.
fn due(entries: &BTreeMap<EntryKey, Entry>) -> impl Iterator<Item = DueProperty> {
    let recorded = entries.iter().filter(|(key, _)| key.file.is_property() && !is_said_by_file(entries, key));
    let recorded =
        recorded.map(|(key, entry)| DueProperty { key: key.clone(), entry: entry.clone(), of_files: false });
    let of_files =
        of_scopes(entries).into_iter().map(|(key, entry)| DueProperty { key, entry, of_files: true });
    recorded.chain(of_files)
}

/// What a runtime has set of the scopes of its containers, because it was told so by us: systemd keeps it as
/// well, and writes it to the files again at the next daemon-reload. It is in the journal by its files alone,
/// or with a value that was told before; what it should be is what the file held.
fn of_scopes(entries: &BTreeMap<EntryKey, Entry>) -> Vec<(EntryKey, Entry)> {
    let of_containers = entries.iter().filter(|(key, _)| is_scope_of_container(&key.cgroup));
    let of_scopes = of_containers.filter_map(|(key, entry)| {
        let original = entry.original.trim().to_owned();
        let boot_id = entry.boot_id.as_deref();
        Some((key_of(&key.cgroup, key.file.property()?), Entry::of_file(original, boot_id)))
    });
    of_scopes.collect()
}

/// Is it the scope of a container that a runtime has made?
fn is_scope_of_container(cgroup: &CgroupPath) -> bool {
    let origin = identify(cgroup).origin;
    let container = matches!(origin, Origin::Pod { container_id: Some(_), .. } | Origin::Container { .. });
    container && cgroup.as_str().strip_suffix(".scope").is_some()
}

/// Is it a property of such a scope, with an entry of the file that says the same?
fn is_said_by_file(entries: &BTreeMap<EntryKey, Entry>, property: &EntryKey) -> bool {
    let says = |key: &EntryKey| key.cgroup == property.cgroup && key.file.property() == Some(property.file);
    property.file.is_property() && is_scope_of_container(&property.cgroup) && entries.keys().any(says)
}

/// Reports what [`restore`] would do.
pub fn preview(
    systemd: SystemdOrReason<'_>,
    boot_id: Option<&str>,
    contents: &JournalContents,
) -> RestoreReport {
    let files = due(&contents.entries).filter_map(|due| {
        let result = match read_set_property(systemd, boot_id, &due.key, &due.entry) {
            Ok((_, _, from)) => RestoreResult::WouldPutBack { from },
            Err(result) => result,
        };
        Some(restored(&due.key, &due.entry, due.shown(systemd, result)?))
    });
    RestoreReport { files: files.collect(), ..RestoreReport::default() }
}

fn restored(key: &EntryKey, entry: &Entry, result: RestoreResult) -> Restored {
    Restored { cgroup: key.cgroup.clone(), file: key.file, original: entry.original.clone(), result }
}

fn put_back(
    systemd: SystemdOrReason<'_>,
    boot_id: Option<&str>,
    key: &EntryKey,
    entry: &Entry,
) -> RestoreResult {
    let (systemd, unit, from) = match read_set_property(systemd, boot_id, key, entry) {
        Ok(found) => found,
        Err(result) => return result,
    };
    let set = systemd.set(&unit, key.file, &entry.original).and_then(|()| systemd.show(&unit));
    match set.as_ref().map(|now| value_of(now, key.file)) {
        Ok(now) if is_same_list(now, &entry.original) => RestoreResult::PutBack { from },
        Ok(now) => RestoreResult::Failed {
            error: format!(
                "{unit}: {} was set to {:?}, systemd says {now:?}",
                key.file.name(),
                entry.original
            ),
        },
        Err(error) => RestoreResult::Failed { error: error.to_string() },
    }
}

/// Present value of the property if it is to be restored; else its result.
fn read_set_property<'a>(
    systemd: SystemdOrReason<'a>,
    boot_id: Option<&str>,
    key: &EntryKey,
    entry: &Entry,
) -> Result<(&'a dyn UnitProperties, UnitName, String), RestoreResult> {
    if is_of_another_boot(entry.boot_id.as_deref(), boot_id) {
        return Err(skipped(ANOTHER_BOOT));
    }
    let Some(unit) = UnitName::of_cgroup(&key.cgroup) else {
        return Err(skipped("it is no unit of systemd's"));
    };
    let systemd = systemd.map_err(|error| RestoreResult::Failed { error: error.to_owned() })?;
    match systemd.show(&unit) {
        Ok(state) => {
            let from = value_of(&state, key.file).to_owned();
            // A unit that systemd no longer knows has nothing set either, whatever it had.
            if !state.known && from.is_empty() {
                Err(skipped("systemd does not know the unit any longer"))
            } else if is_same_list(&from, &entry.original) {
                Err(RestoreResult::Unchanged)
            } else {
                Ok((systemd, unit, from))
            }
        }
        Err(error) => Err(RestoreResult::Failed { error: error.to_string() }),
    }
}
