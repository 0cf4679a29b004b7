//! Originals of containers that are being created, as entries of the journal.
//!
//! The cgroup of a container is created after its runtime was told the cpuset. The entries are made when the
//! cgroup exists: by a turn, or, if the daemon was killed before its turn, by a restore ([`left_behind`]). A
//! restore names pending containers: they will start with the told cpuset.
//!
//! Invariants: nothing is written here, and a cgroup that does not exist gets no entry.

use std::collections::BTreeMap;

use enforcer_core::hosted::Cpuset as Original;
use enforcer_core::workload::CgroupPath;

use super::{
    cpuset::{CpusetError, CpusetTree, ManagedFile},
    journal::{Entry, EntryKey, LeftMaking, Made},
};

/// Contents that the files of a cgroup would have without us. Without a value a runtime leaves a file empty.
/// On v1 that is impossible: there it copies the parent's value (`cpusetEnsureParent` of runc).
pub(super) fn originals(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    cgroup: &CgroupPath,
    original: &Original,
) -> Result<Vec<(EntryKey, Entry)>, CpusetError> {
    let cpuset = tree.open(cgroup)?;
    let parent = cgroup.parent().filter(|_| !cpuset.is_v2());
    let parent = parent.map(|parent| tree.open_or_root(&parent)).transpose()?;
    let mut files = Vec::new();
    for (file, text) in [
        (ManagedFile::Mems, original.mems.as_ref().map(ToString::to_string)),
        (ManagedFile::Cpus, original.cpus.as_ref().map(ToString::to_string)),
    ] {
        let original = match (text, &parent) {
            (Some(text), _) => format!("{text}\n"),
            (None, Some(parent)) => parent.read(file)?,
            (None, None) => "\n".to_owned(),
        };
        let key = EntryKey { cgroup: cgroup.clone(), file, inode: cpuset.inode() };
        files.push((key, Entry::of_file(original, boot_id)));
    }
    Ok(files)
}

/// Entries of those of these cgroups that have any, with what the callers of their runtimes want by now.
pub fn renewed(
    entries: &BTreeMap<EntryKey, Entry>,
    wanted: &BTreeMap<CgroupPath, Original>,
) -> Vec<(EntryKey, Entry)> {
    let renewed = entries.iter().filter_map(|(key, entry)| {
        let wanted = wanted.get(&key.cgroup)?;
        let text = match key.file {
            ManagedFile::Cpus => wanted.cpus.as_ref()?.to_string(),
            ManagedFile::Mems => wanted.mems.as_ref()?.to_string(),
            _ => return None,
        };
        Some((key.clone(), Entry { original: format!("{text}\n"), ..entry.clone() }))
    });
    renewed.collect()
}

/// Pending containers of a killed daemon, by their present state.
#[derive(Debug, Default)]
pub struct LeftBehind {
    /// Entries of created containers.
    pub entries: BTreeMap<EntryKey, Entry>,
    /// New originals of containers in the journal, from later calls of their runtime.
    pub renewed: BTreeMap<CgroupPath, Original>,
    /// Containers that may still be created.
    pub awaited: BTreeMap<CgroupPath, Made>,
    /// Containers with an unknown state.
    pub unseen: BTreeMap<CgroupPath, Made>,
    /// Lines of the record that cannot be read.
    pub damaged: Vec<String>,
    /// Reasons why the state of others, or of all, is unknown.
    pub unusable: Vec<String>,
}

/// States at `now_ns` of the containers of this boot.
pub fn left_behind(tree: &CpusetTree, boot_id: Option<&str>, left: LeftMaking, now_ns: u64) -> LeftBehind {
    let mut found = LeftBehind { damaged: left.damaged, ..LeftBehind::default() };
    for (cgroup, made) in left.made {
        if made.renews {
            found.renewed.insert(cgroup, made.original);
            continue;
        }
        match originals(tree, boot_id, &cgroup, &made.original) {
            Ok(entries) => found.entries.extend(entries),
            Err(error) if error.is_never() => {}
            Err(error) if error.is_gone() => {
                if made.may_come(now_ns) {
                    found.awaited.insert(cgroup, made);
                }
            }
            Err(error) => {
                found.unusable.push(format!("{cgroup} is not put back: {error}"));
                found.unseen.insert(cgroup, made);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture::Fixture, journal::MADE_WITHIN};

    #[test]
    fn created_container_has_an_entry_and_pending_one_is_awaited() {
        let host = Fixture::new(true);
        host.cgroup("/there", "0-1\n", "0\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let of = |told_ns| Made {
            original: Original { cpus: "0-6".parse().ok(), mems: None },
            granted: None,
            renews: false,
            boot_id: None,
            told_ns,
        };
        let now_ns = 2_000_000_000 * MADE_WITHIN.as_secs();
        let made = [("/there", 0), ("/not", now_ns), ("/never", 0)];
        let made = made.map(|(cgroup, told_ns)| (CgroupPath::new(cgroup), of(told_ns)));
        let left = LeftMaking { made: made.into(), damaged: vec!["making line 1: bad".into()] };
        let LeftBehind { entries, awaited, damaged, unusable, .. } =
            left_behind(&tree, Some("boot"), left, now_ns);
        let of =
            |(key, entry): (&EntryKey, &Entry)| (key.cgroup.to_string(), key.file, entry.original.clone());
        let expected = [(ManagedFile::Mems, "\n"), (ManagedFile::Cpus, "0-6\n")]
            .map(|(file, text)| ("/there".to_owned(), file, text.to_owned()));
        let mut found: Vec<_> = entries.iter().map(of).collect();
        found.sort_by_key(|(_, _, text)| text.len());
        assert_eq!(found, expected);
        assert_eq!(entries.values().next().unwrap().boot_id.as_deref(), Some("boot"));
        assert_eq!(awaited.keys().map(CgroupPath::as_str).collect::<Vec<_>>(), ["/not"]);
        assert_eq!((damaged.len(), unusable), (1, vec![]));
    }
}
