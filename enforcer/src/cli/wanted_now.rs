//! Originals as they would be now: what the kubelet wants of its containers, in place of what they had when
//! they were made.

use std::collections::BTreeMap;

use enforcer_core::{
    owner::Kubelet,
    policy::KubeletSettings,
    set::CpuSet,
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
pub(super) fn ask_kubelet<'a>(keys: impl Iterator<Item = &'a EntryKey>) -> Kubelet {
    let mut pods = keys.filter(|key| matches!(identify(&key.cgroup).origin, Origin::Pod { .. }));
    pods.next().map_or_else(Kubelet::default, |_| kubelet::look(&KubeletSettings::default()).kubelet)
}

/// Entries whose original is another one by now.
pub(super) fn changed(entries: &BTreeMap<EntryKey, Entry>, kubelet: &Kubelet) -> Vec<(EntryKey, Entry)> {
    let of_cpus = entries.iter().filter(|(key, _)| key.file == CpusetFile::Cpus);
    let changed = of_cpus.filter_map(|(key, entry)| {
        let had: CpuSet = entry.original.trim().parse().ok()?;
        let wants =
            kubelet.wants_now(&key.cgroup, &had).filter(|wants| *wants != had && !wants.is_empty())?;
        Some((key.clone(), Entry { original: format!("{wants}\n"), ..entry.clone() }))
    });
    changed.collect()
}

/// Records them, so that a restore that is interrupted goes on with them.
pub(super) fn renew(journal: &mut Journal) -> Result<(), JournalError> {
    let kubelet = ask_kubelet(journal.entries().keys());
    let changed = changed(journal.entries(), &kubelet);
    journal.renew_all(changed)
}
