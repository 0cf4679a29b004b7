//! Huge pages of hugetlbfs, which the memory controller does not count: the cgroup files that show them, if
//! the host has some in use or reserved.
//!
//! Transparent huge pages count as anonymous memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
};

use enforcer_core::{
    parse::{numa_stat::hugetlb_file, scalar},
    sample::NodeSample,
};
use numa_topology::{
    degraded::{Degraded, DegradedTally},
    id::NodeId,
};

use enforcer_host::HostPath;

/// No architecture has more sizes.
const MOST_SIZES: usize = 16;

/// The pool of one size is read again where it changed between its two files, so many times.
const MOST_LOOKS: usize = 3;

const EFFECT: &str = "huge pages of that size are promised to no container there, or on no node";

/// Sizes of which pages are in use or reserved, or of which that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HugepagesInUse {
    kibibytes: Vec<u64>,
    /// Bytes reserved and not in use, by page size in bytes.
    reserved: BTreeMap<u64, u64>,
    /// Sizes of which it is not known how many are reserved, with the reason.
    reserved_unknown: BTreeMap<u64, String>,
    /// Why the sizes that there are could not be listed.
    unlisted: Option<String>,
}

impl HugepagesInUse {
    /// Reads the whole host; empty if the kernel has no such pages.
    pub(super) fn read(sys: &HostPath) -> Self {
        let top = sys.join("kernel/mm/hugepages");
        let mut found = Self::default();
        let sizes = sizes(&top).unwrap_or_else(|unlisted| {
            found.unlisted = Some(unlisted);
            sizes_of_nodes(sys)
        });
        for kib in sizes {
            let Some(size) = kib.checked_mul(1024) else { continue };
            let dir = top.join(format!("hugepages-{kib}kB"));
            let reserved = count(&dir, "resv_hugepages");
            match &reserved {
                Ok(0) => {}
                Ok(pages) => _ = found.reserved.insert(size, pages.saturating_mul(size)),
                Err(reason) => _ = found.reserved_unknown.insert(size, reason.clone()),
            }
            if reserved != Ok(0) || used(&dir) != Ok(0) {
                found.kibibytes.push(kib);
            }
        }
        found.kibibytes.sort_unstable();
        found
    }

    /// Bytes reserved on the host and not in use, by page size.
    pub(super) fn reserved(&self) -> BTreeMap<u64, u64> {
        self.reserved.clone()
    }

    /// Names of the files with a cgroup's huge pages by node.
    pub(super) fn files(&self) -> impl Iterator<Item = String> {
        self.kibibytes.iter().map(|kib| hugetlb_file(kib.saturating_mul(1024)))
    }

    /// Sizes of which it is not known how many pages are reserved; each is said, and that they are not
    /// listed.
    pub(super) fn reserved_unknown(&self, degraded: &mut DegradedTally) -> BTreeSet<u64> {
        if let Some(reason) = &self.unlisted {
            degraded.push(Degraded::new("hugepages", reason, EFFECT));
        }
        for (size, reason) in &self.reserved_unknown {
            degraded.add("hugepages", format_args!("{}kB", size >> 10), reason, EFFECT);
        }
        self.reserved_unknown.keys().copied().collect()
    }

    /// Notes what is in use on a node, and of which sizes that is not known.
    pub(super) fn note(
        &self,
        sys: &HostPath,
        node: NodeId,
        seen: &mut NodeSample,
        degraded: &mut DegradedTally,
    ) {
        // The kernel registers huge pages of nodes with memory alone (`hugetlb_register_node`).
        if seen.mem_total_bytes == Some(0) {
            return;
        }
        let top = sys.join(format!("devices/system/node/node{node}/hugepages"));
        for kib in &self.kibibytes {
            let Some(size) = kib.checked_mul(1024) else { continue };
            match used(&top.join(format!("hugepages-{kib}kB"))) {
                Ok(0) => {}
                Ok(pages) => _ = seen.hugepages_used.insert(size, pages.saturating_mul(size)),
                Err(reason) => {
                    seen.hugepages_unknown.insert(size);
                    degraded.add("hugepages", format_args!("node{node}"), reason, EFFECT);
                }
            }
        }
    }

    /// The degraded entry for huge pages that no cgroup counts.
    pub(super) fn untold(&self) -> Option<Degraded> {
        let files: Vec<String> = self.files().collect();
        let reason = format!(
            "no cgroup has {}: the hugetlb controller is not enabled on cgroup v2, or the kernel is older than 5.17",
            files.join(", ")
        );
        let effect = "memory in huge pages of hugetlbfs is in no figure of a workload";
        (!files.is_empty()).then(|| Degraded::new("hugetlb", reason, effect))
    }
}

/// Sizes in KiB that have a directory here; none where the kernel has no such pages.
fn sizes(dir: &HostPath) -> Result<Vec<u64>, String> {
    let entries = match dir.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("read {}: {error}", dir.display())),
    };
    let kib = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok();
    Ok(entries.iter().filter_map(|(name, _)| kib(name.to_str()?)).take(MOST_SIZES).collect())
}

/// Sizes that any node has.
fn sizes_of_nodes(sys: &HostPath) -> Vec<u64> {
    let top = sys.join("devices/system/node");
    let nodes = top.read_dir().into_iter().flatten();
    let of_node = |(name, _): (std::ffi::OsString, _)| sizes(&top.join(name).join("hugepages")).ok();
    let all: BTreeSet<u64> = nodes.filter_map(of_node).flatten().collect();
    all.into_iter().take(MOST_SIZES).collect()
}

/// Pages that are in use, of one size.
fn used(dir: &HostPath) -> Result<u64, String> {
    let mut counts = (0, 0);
    for _ in 0..MOST_LOOKS {
        counts = (count(dir, "nr_hugepages")?, count(dir, "free_hugepages")?);
        if let Some(used) = counts.0.checked_sub(counts.1) {
            return Ok(used);
        }
    }
    let (all, free) = counts;
    Err(format!("{}: {free} of {all} pages are free", dir.display()))
}

fn count(dir: &HostPath, file: &str) -> Result<u64, String> {
    let path = dir.join(file);
    let text = path.read_text().map_err(|error| error.to_string())?;
    scalar::unsigned(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use enforcer_host::HostRoot;

    fn on_host(sys: &Path) -> HostPath {
        HostRoot::live().at(sys)
    }

    fn size(sys: &Path, size: &str, files: &[(&str, &str)]) {
        let dir = sys.join("kernel/mm/hugepages").join(size);
        pool(&dir, files);
    }

    fn pool(dir: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).unwrap();
        for (file, text) in files {
            fs::write(dir.join(format!("{file}_hugepages")), text).unwrap();
        }
    }

    /// What was noted of node 1, and what was said.
    fn noted(found: &HugepagesInUse, sys: &Path) -> (NodeSample, Vec<String>) {
        let (mut seen, mut degraded) = (NodeSample::default(), DegradedTally::default());
        found.note(&on_host(sys), NodeId(1), &mut seen, &mut degraded);
        (
            seen,
            degraded
                .into_entries()
                .into_iter()
                .map(|entry| format!("{}: {}", entry.source, entry.reason))
                .collect(),
        )
    }

    #[test]
    fn pages_that_are_reserved_are_told_though_none_is_in_use() {
        let dir = tempfile::TempDir::new().unwrap();
        for (kib, reserved) in [("2048", "100\n"), ("1048576", "0\n"), ("64", "nonsense")] {
            let files = [("nr", "512\n"), ("free", "512\n"), ("resv", reserved)];
            size(dir.path(), &format!("hugepages-{kib}kB"), &files);
        }
        let found = HugepagesInUse::read(&on_host(dir.path()));
        assert_eq!(found.reserved(), [(2 << 20, 200 << 20)].into());
        // That none is reserved is not known of a file that makes no sense.
        assert_eq!(found.files().collect::<Vec<_>>(), ["hugetlb.64KB.numa_stat", "hugetlb.2MB.numa_stat"]);
        let mut degraded = DegradedTally::default();
        assert_eq!(found.reserved_unknown(&mut degraded), [64 << 10].into());
        let [entry] = degraded.into_entries().try_into().unwrap();
        assert_eq!(entry.source, "hugepages:64kB");
        assert!(entry.reason.contains("resv_hugepages") && entry.reason.contains("nonsense"), "{entry:?}");
    }

    #[test]
    fn sizes_that_are_in_use_have_their_files() {
        let dir = tempfile::TempDir::new().unwrap();
        assert_eq!(HugepagesInUse::read(&on_host(dir.path())), HugepagesInUse::default());
        assert_eq!(HugepagesInUse::default().untold(), None);
        for (name, total, free) in [
            ("hugepages-64kB", "9\n", "9\n"),
            ("hugepages-1048576kB", "2\n", "1\n"),
            ("hugepages-2048kB", "512\n", "0\n"),
            ("hugepages-32kB", "1\n", "0\n"),
            ("hugepages-x", "1\n", "0\n"),
        ] {
            size(dir.path(), name, &[("nr", total), ("free", free), ("resv", "0\n")]);
        }
        let found = HugepagesInUse::read(&on_host(dir.path()));
        let files: Vec<_> = found.files().collect();
        assert_eq!(files, ["hugetlb.32KB.numa_stat", "hugetlb.2MB.numa_stat", "hugetlb.1GB.numa_stat"]);
        let node = dir.path().join("devices/system/node/node1/hugepages");
        pool(&node.join("hugepages-2048kB"), &[("nr", "256\n"), ("free", "6\n")]);
        pool(&node.join("hugepages-1048576kB"), &[("nr", "1\n"), ("free", "1\n")]);
        pool(&node.join("hugepages-32kB"), &[("nr", "1\n"), ("free", "0\n")]);
        let (seen, said) = noted(&found, dir.path());
        assert_eq!(seen.hugepages_used, [(2 << 20, 500 << 20), (32 << 10, 32 << 10)].into());
        assert_eq!((seen.hugepages_unknown, said), (BTreeSet::new(), vec![]));
        assert!(found.untold().unwrap().reason.contains("hugetlb.2MB.numa_stat"));
    }

    #[test]
    fn a_count_that_is_not_known_is_none_and_is_said() {
        for (nr, free, word) in [
            (Some("nonsense"), Some("0\n"), "nr_hugepages"),
            (Some("9\n"), Some(""), "free_hugepages"),
            (Some("9\n"), None, "free_hugepages"),
            (None, None, "nr_hugepages"),
            // Of different moments, for as often as it is looked at.
            (Some("4\n"), Some("9\n"), "9 of 4 pages are free"),
        ] {
            let dir = tempfile::TempDir::new().unwrap();
            size(dir.path(), "hugepages-2048kB", &[("nr", "512\n"), ("free", "0\n"), ("resv", "0\n")]);
            let files: Vec<_> = [("nr", nr), ("free", free)].into_iter().collect();
            let files: Vec<_> = files.into_iter().filter_map(|(file, text)| Some((file, text?))).collect();
            let node = dir.path().join("devices/system/node/node1/hugepages");
            pool(&node.join("hugepages-2048kB"), &files);
            let (seen, said) = noted(&HugepagesInUse::read(&on_host(dir.path())), dir.path());
            assert_eq!((seen.hugepages_used, seen.hugepages_unknown), (BTreeMap::new(), [2 << 20].into()));
            assert!(said[0].starts_with("hugepages:node1: ") && said[0].contains(word), "{word}: {said:?}");
        }
    }

    #[test]
    fn sizes_whose_counts_of_the_host_are_not_known_are_looked_for_on_each_node() {
        let dir = tempfile::TempDir::new().unwrap();
        // No directory.
        fs::create_dir_all(dir.path().join("kernel/mm")).unwrap();
        fs::write(dir.path().join("kernel/mm/hugepages"), "").unwrap();
        let node = dir.path().join("devices/system/node/node1/hugepages");
        pool(&node.join("hugepages-2048kB"), &[("nr", "256\n"), ("free", "6\n")]);
        let found = HugepagesInUse::read(&on_host(dir.path()));
        assert_eq!(noted(&found, dir.path()).0.hugepages_used, [(2 << 20, 500 << 20)].into());
        let mut degraded = DegradedTally::default();
        assert_eq!(found.reserved_unknown(&mut degraded), [2 << 20].into());
        assert_eq!(degraded.into_entries().len(), 2);
    }
}
