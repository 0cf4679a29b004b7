//! What containers would have been set to without us, as entries of the journal.
//!
//! A container's cgroup is made after its runtime was told what to set it to. The entries are made when the cgroup is
//! there: by a turn, or, where a daemon was killed before its turn, by a restore ([`left_behind`]).
//!
//! Never: anything is written here, or an entry made of a cgroup that is not there.

use std::{collections::BTreeMap, path::Path};

use enforcer_core::{place::Cpuset as Original, workload::CgroupPath};

use super::{
    cpuset::{CpusetError, CpusetFile, CpusetTree},
    journal::{Entry, EntryKey, JournalError, MakingRecord},
};

/// What the files of a cgroup would hold. A runtime leaves a file empty for which
/// it is told nothing, which on v1 it cannot: it takes what the parent has (`cpusetEnsureParent` of runc).
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
        (CpusetFile::Mems, original.mems.as_ref().map(ToString::to_string)),
        (CpusetFile::Cpus, original.cpus.as_ref().map(ToString::to_string)),
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

/// What a daemon knew of containers in the making when it was killed, as far as they have come to be. One that cannot be
/// looked at is left out: nothing is known of what it holds either.
pub fn left_behind(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    state_dir: &Path,
) -> Result<BTreeMap<EntryKey, Entry>, JournalError> {
    let left = MakingRecord::left(state_dir)?;
    let entries =
        left.iter().filter_map(|(cgroup, original)| originals(tree, boot_id, cgroup, original).ok());
    Ok(entries.flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::fixture::Fixture;

    #[test]
    fn who_has_come_to_be_since_the_daemon_was_killed_has_an_entry_and_nobody_else() {
        let host = Fixture::new(true);
        host.cgroup("/there", "0-1\n", "0\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        std::fs::create_dir_all(host.state_dir()).unwrap();
        assert!(left_behind(&tree, None, &host.state_dir()).unwrap().is_empty());
        let (mut record, _) = MakingRecord::open(&host.state_dir()).unwrap();
        let original = Original { cpus: "0-6".parse().ok(), mems: None };
        for cgroup in ["/there", "/not", "/../there"] {
            record.add(&CgroupPath::new(cgroup), &original).unwrap();
        }
        let left = left_behind(&tree, Some("boot"), &host.state_dir()).unwrap();
        let of =
            |(key, entry): (&EntryKey, &Entry)| (key.cgroup.to_string(), key.file, entry.original.clone());
        let expected = [(CpusetFile::Mems, "\n"), (CpusetFile::Cpus, "0-6\n")]
            .map(|(file, text)| ("/there".to_owned(), file, text.to_owned()));
        let mut found: Vec<_> = left.iter().map(of).collect();
        found.sort_by_key(|(_, _, text)| text.len());
        assert_eq!(found, expected);
        assert_eq!(left.values().next().unwrap().boot_id.as_deref(), Some("boot"));
    }
}
