//! Originals as they would be now: what the kubelet wants of its containers, in place of what they had when
//! they were made.

use std::collections::BTreeMap;

use enforcer_core::{
    owner::{Kubelet, is_same_list},
    workload::{CgroupPath, Origin, identify},
};

use super::RestoreReport;
use crate::{
    cpuset::ManagedFile,
    journal::{Entry, EntryKey, Journal, JournalError},
};

/// Reads the kubelet's state; why it is unknown comes with it.
pub type ReadKubelet<'a> = &'a dyn Fn() -> (Kubelet, Option<String>);

/// Asks the kubelet, where there is anything of its containers to put back. Its state that cannot be read
/// is named.
pub(super) fn ask_kubelet<'a>(
    keys: impl Iterator<Item = &'a EntryKey>,
    read: ReadKubelet<'_>,
) -> (Kubelet, RestoreReport) {
    let mut containers = keys.filter(|key| is_of_kubelet(key));
    if containers.next().is_none() {
        return Default::default();
    }
    let (kubelet, unread) = read();
    let unread = unread.map(|reason| {
        format!(
            "{reason}; what the kubelet wants of its containers now is not known, and what they had is taken \
             instead, which may be CPUs of another container by now: name its directory as kubelet.root_dir \
             in the file of --config, and restore again"
        )
    });
    (kubelet, RestoreReport { unusable: unread.into_iter().collect(), ..RestoreReport::default() })
}

/// Is it a file of a container that a kubelet has told its runtime to make?
pub(super) fn is_of_kubelet(key: &EntryKey) -> bool {
    let of_pod = matches!(identify(&key.cgroup).origin, Origin::Pod { container_id: Some(_), .. });
    of_pod && matches!(key.file, ManagedFile::Cpus | ManagedFile::Mems)
}

/// Entries with an outdated original.
pub(super) fn changed(entries: &BTreeMap<EntryKey, Entry>, kubelet: &Kubelet) -> Vec<(EntryKey, Entry)> {
    let changed = entries.iter().filter_map(|(key, entry)| {
        let had = entry.original.trim();
        let wants = match key.file {
            ManagedFile::Cpus => {
                let wants = kubelet.wants_now(&key.cgroup, &had.parse().ok()?)?;
                wants.to_string()
            }
            ManagedFile::Mems => {
                let wants = kubelet.wants_memory_now(&key.cgroup, &had.parse().ok()?)?;
                wants.to_string()
            }
            _ => return None,
        };
        let is_another = !wants.is_empty() && !is_same_list(&wants, had);
        is_another.then(|| (key.clone(), Entry { original: format!("{wants}\n"), ..entry.clone() }))
    });
    changed.collect()
}

/// Records them, so that a restore that is interrupted goes on with them. Says what is not known.
pub(super) fn renew(
    journal: &mut Journal,
    read: ReadKubelet<'_>,
    top: Option<&CgroupPath>,
) -> Result<RestoreReport, JournalError> {
    let keys = journal.entries().keys().filter(|key| top.is_none_or(|top| key.cgroup.is_within(top)));
    let (kubelet, said) = ask_kubelet(keys, read);
    let changed = changed(journal.entries(), &kubelet);
    journal.renew_all(changed)?;
    Ok(said)
}
