//! Resets the properties of units that we have set.
//!
//! To be done before the files are put back: systemd writes the file of the unit's cgroup, or switches the
//! controller off, and what then still differs from the original is the business of the files' own
//! [restore](super::super::restore).

use std::collections::BTreeMap;

use enforcer_core::{
    owner::is_same_list,
    workload::{CgroupPath, Origin, UnitName, identify},
};

use super::{UnitProperties, key_of, value_of};
use crate::enforce::{
    journal::{Entry, EntryKey, Journal, JournalContents, is_of_another_boot},
    restore::{ANOTHER_BOOT, RestoreReport, RestoreResult, Restored, skipped},
};

/// Why systemd cannot be asked where there is none.
pub const NO_SYSTEMD: &str = "process 1 is not systemd";

/// systemd, or why it cannot be asked.
pub type SystemdOrReason<'a> = Result<&'a dyn UnitProperties, &'a str>;

/// Gives every property of the journal its original back, or those of one cgroup and what is below it.
pub fn restore(
    systemd: SystemdOrReason<'_>,
    boot_id: Option<&str>,
    journal: &mut Journal,
    top: Option<&CgroupPath>,
) -> RestoreReport {
    let entries = journal.entries().clone();
    let mut report = RestoreReport::default();
    let wanted = |key: &EntryKey| key.file.is_property() && top.is_none_or(|top| key.cgroup.is_within(top));
    // What is recorded of a scope was set by its runtime for us: its files say what it should be.
    let recorded = entries.iter().filter(|(key, _)| wanted(key));
    for (key, entry) in recorded {
        if is_scope_of_container(&key.cgroup) && has_file(&entries, key) {
            if let Err(error) = journal.close(key) {
                report.unusable.push(error.to_string());
            }
            continue;
        }
        let mut result = put_back(systemd, boot_id, key, entry);
        if !matches!(result, RestoreResult::Failed { .. })
            && let Err(error) = journal.close(key)
        {
            result = RestoreResult::Failed { error: format!("it is as it was, but {error}") };
        }
        report.files.push(restored(key, entry, result));
    }
    for (key, entry) in of_scopes(&entries).into_iter().filter(|(key, _)| wanted(key)) {
        let result = match put_back(systemd, boot_id, &key, &entry) {
            // A container without such a scope, or with nothing set of it.
            RestoreResult::Unchanged | RestoreResult::Skipped { .. } => continue,
            RestoreResult::Failed { .. } if matches!(systemd, Err(NO_SYSTEMD)) => continue,
            RestoreResult::Failed { error } => {
                let later =
                    "at the next daemon-reload systemd may write again what a runtime was told for us";
                RestoreResult::Failed { error: format!("{error}; {later}") }
            }
            result => result,
        };
        report.files.push(restored(&key, &entry, result));
    }
    report
}

/// What a runtime has set of the scopes of its containers, because it was told so by us: systemd keeps it as
/// well, and writes it to the files again at the next daemon-reload. It is in the journal by its files alone,
/// or with a value that was told before; what it should be is what the file held.
fn of_scopes(entries: &BTreeMap<EntryKey, Entry>) -> Vec<(EntryKey, Entry)> {
    let of_containers = entries.iter().filter(|(key, _)| is_scope_of_container(&key.cgroup));
    let of_scopes = of_containers.filter_map(|(key, entry)| {
        let original = entry.original.trim().to_owned();
        Some((key_of(&key.cgroup, key.file.property()?), Entry { original, ..entry.clone() }))
    });
    of_scopes.collect()
}

/// Is it the scope of a container that a runtime has made?
fn is_scope_of_container(cgroup: &CgroupPath) -> bool {
    let origin = identify(cgroup).origin;
    let container = matches!(origin, Origin::Pod { container_id: Some(_), .. } | Origin::Container { .. });
    container && cgroup.as_str().strip_suffix(".scope").is_some()
}

/// Is there an entry of the file that says the same as this property?
fn has_file(entries: &BTreeMap<EntryKey, Entry>, property: &EntryKey) -> bool {
    entries.keys().any(|key| key.cgroup == property.cgroup && key.file.property() == Some(property.file))
}

/// What [`restore`] would do.
pub fn preview(
    systemd: SystemdOrReason<'_>,
    boot_id: Option<&str>,
    contents: &JournalContents,
) -> RestoreReport {
    let properties = contents.entries.iter().filter(|(key, _)| key.file.is_property());
    let files = properties.map(|(key, entry)| {
        let result = match look(systemd, boot_id, key, entry) {
            Ok((_, _, from)) => RestoreResult::WouldPutBack { from },
            Err(result) => result,
        };
        restored(key, entry, result)
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
    let (systemd, unit, from) = match look(systemd, boot_id, key, entry) {
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

/// What the property is now, where it is to be put back; else what became of it.
fn look<'a>(
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
            // A unit that systemd no longer knows has nothing set either.
            if is_same_list(&from, &entry.original) {
                Err(RestoreResult::Unchanged)
            } else {
                Ok((systemd, unit, from))
            }
        }
        Err(error) => Err(RestoreResult::Failed { error: error.to_string() }),
    }
}
