//! Huge pages of hugetlbfs, which the memory controller does not count: the cgroup files that show them, if
//! the host has some in use or reserved.
//!
//! Transparent huge pages count as anonymous memory.

use std::{collections::BTreeMap, path::Path};

use enforcer_core::{
    degraded::Degraded,
    id::NodeId,
    parse::{numa_stat::hugetlb_file, scalar},
};

use enforcer_host::{read_dir, read_text};

/// No architecture has more sizes.
const MOST_SIZES: usize = 16;

/// Sizes with pages in use or reserved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HugepagesInUse {
    kibibytes: Vec<u64>,
    /// Bytes reserved and not in use, by page size in bytes.
    reserved: BTreeMap<u64, u64>,
}

impl HugepagesInUse {
    /// Reads the whole host; empty if the kernel has no such pages.
    pub(super) fn read(sys: &Path) -> Self {
        let top = sys.join("kernel/mm/hugepages");
        let sizes = read_dir(&top).into_iter().flatten();
        let sizes = sizes.filter_map(|(name, _)| {
            name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()
        });
        let mut found = Self::default();
        for kib in sizes.take(MOST_SIZES) {
            let count = |file: &str| {
                let text = read_text(&top.join(format!("hugepages-{kib}kB/{file}"))).ok()?;
                scalar::unsigned(&text).ok()
            };
            let reserved = count("resv_hugepages").filter(|pages| *pages > 0);
            if let Some((pages, size)) = reserved.zip(kib.checked_mul(1024)) {
                found.reserved.insert(size, pages.saturating_mul(size));
            }
            if reserved.is_some() || count("nr_hugepages") > count("free_hugepages") {
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

    /// Bytes in use on a node, by page size; without sizes that are unreadable there.
    pub(super) fn on_node(&self, sys: &Path, node: NodeId) -> BTreeMap<u64, u64> {
        let top = sys.join(format!("devices/system/node/node{node}/hugepages"));
        let of_size = |kib: &u64| {
            let count = |file: &str| {
                let text = read_text(&top.join(format!("hugepages-{kib}kB/{file}"))).ok()?;
                scalar::unsigned(&text).ok()
            };
            let used = count("nr_hugepages")?.checked_sub(count("free_hugepages")?)?;
            let size = kib.checked_mul(1024)?;
            Some((size, used.saturating_mul(size)))
        };
        self.kibibytes.iter().filter_map(of_size).filter(|(_, bytes)| *bytes > 0).collect()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pages_that_are_reserved_are_told_though_none_is_in_use() {
        let dir = tempfile::TempDir::new().unwrap();
        for (size, reserved) in [("2048", "100\n"), ("1048576", "0\n"), ("64", "nonsense")] {
            let size = dir.path().join(format!("kernel/mm/hugepages/hugepages-{size}kB"));
            fs::create_dir_all(&size).unwrap();
            fs::write(size.join("nr_hugepages"), "512\n").unwrap();
            fs::write(size.join("free_hugepages"), "512\n").unwrap();
            fs::write(size.join("resv_hugepages"), reserved).unwrap();
        }
        let found = HugepagesInUse::read(dir.path());
        assert_eq!(found.reserved(), [(2 << 20, 200 << 20)].into());
        assert_eq!(found.files().collect::<Vec<_>>(), ["hugetlb.2MB.numa_stat"]);
    }

    #[test]
    fn sizes_that_are_in_use_have_their_files() {
        let dir = tempfile::TempDir::new().unwrap();
        let pages = |size: &str, total: &str, free: &str| {
            let size = dir.path().join("kernel/mm/hugepages").join(size);
            fs::create_dir_all(&size).unwrap();
            fs::write(size.join("nr_hugepages"), total).unwrap();
            fs::write(size.join("free_hugepages"), free).unwrap();
        };
        assert_eq!(HugepagesInUse::read(dir.path()), HugepagesInUse::default());
        assert_eq!(HugepagesInUse::default().untold(), None);
        pages("hugepages-64kB", "9\n", "9\n");
        pages("hugepages-1048576kB", "2\n", "1\n");
        pages("hugepages-2048kB", "512\n", "0\n");
        pages("hugepages-32kB", "1\n", "0\n");
        pages("hugepages-4096kB", "nonsense", "0\n");
        let found = HugepagesInUse::read(dir.path());
        let files: Vec<_> = found.files().collect();
        assert_eq!(files, ["hugetlb.32KB.numa_stat", "hugetlb.2MB.numa_stat", "hugetlb.1GB.numa_stat"]);
        let node = |size: &str, total: &str, free: &str| {
            let size = dir.path().join("devices/system/node/node1/hugepages").join(size);
            fs::create_dir_all(&size).unwrap();
            fs::write(size.join("nr_hugepages"), total).unwrap();
            fs::write(size.join("free_hugepages"), free).unwrap();
        };
        node("hugepages-2048kB", "256\n", "6\n");
        node("hugepages-1048576kB", "1\n", "1\n");
        node("hugepages-32kB", "nonsense", "0\n");
        assert_eq!(found.on_node(dir.path(), NodeId(1)), [(2 << 20, 500 << 20)].into());
        assert_eq!(found.on_node(dir.path(), NodeId(0)), BTreeMap::new());
        assert!(found.untold().unwrap().reason.contains("hugetlb.2MB.numa_stat"));
    }
}
