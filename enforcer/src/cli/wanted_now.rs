//! Originals as they would be now: what the kubelet wants of its containers, in place of what they had when
//! they were made.

use std::collections::BTreeMap;

use enforcer_core::{
    owner::{Kubelet, is_same_list},
    policy::KubeletSettings,
    workload::{Origin, identify},
};

use crate::{
    discover::kubelet,
    enforce::{
        Journal,
        cpuset::CpusetFile,
        journal::{Entry, EntryKey, JournalError},
    },
};

/// Asks the kubelet, where there is anything of its containers to put back.
pub(super) fn ask_kubelet<'a>(
    keys: impl Iterator<Item = &'a EntryKey>,
    settings: &KubeletSettings,
) -> Kubelet {
    let mut pods = keys.filter(|key| matches!(identify(&key.cgroup).origin, Origin::Pod { .. }));
    pods.next().map_or_else(Kubelet::default, |_| kubelet::look(settings).kubelet)
}

/// Entries whose original is another one by now.
pub(super) fn changed(entries: &BTreeMap<EntryKey, Entry>, kubelet: &Kubelet) -> Vec<(EntryKey, Entry)> {
    let changed = entries.iter().filter_map(|(key, entry)| {
        let had = entry.original.trim();
        let wants = match key.file {
            CpusetFile::Cpus => {
                let wants = kubelet.wants_now(&key.cgroup, &had.parse().ok()?)?;
                wants.to_string()
            }
            CpusetFile::Mems => {
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

/// Records them, so that a restore that is interrupted goes on with them.
pub(super) fn renew(journal: &mut Journal, settings: &KubeletSettings) -> Result<(), JournalError> {
    let kubelet = ask_kubelet(journal.entries().keys(), settings);
    let changed = changed(journal.entries(), &kubelet);
    journal.renew_all(changed)
}
