//! Distance of cgroups from their own memory limits, read only when a cgroup runs short.
//!
//! The nearest limit of a cgroup or its ancestors ends its growth. A workload that reaches it before its
//! nodes are full gains nothing from another node: its own OOM killer acts, wherever its pages are. The files
//! are held open, and a read allocates nothing.

use std::{collections::BTreeMap, iter};

use enforcer_core::workload::CgroupPath;

use enforcer_host::{cgroup::ControllerRoot, repeated::RepeatedFile};

/// Longest text of a file: a number of 64 bits and a newline.
const LONGEST: usize = 32;
/// A larger limit of cgroup v1 means none: v1 shows `PAGE_COUNTER_MAX` in bytes then.
const NO_LIMIT: u64 = 1 << 62;

/// Open files of the followed cgroups.
#[derive(Debug, Default)]
pub struct MemoryLimits {
    root: Option<ControllerRoot>,
    files: BTreeMap<CgroupPath, LimitFiles>,
}

#[derive(Debug)]
struct LimitFiles {
    usage: RepeatedFile,
    limit: RepeatedFile,
}

impl MemoryLimits {
    /// Limits in the memory controller's hierarchy; without it no cgroup has a limit.
    pub fn new(root: Option<ControllerRoot>) -> Self {
        Self { root, files: BTreeMap::new() }
    }

    /// Opens the files of these cgroups and their ancestors, and closes all others.
    pub fn follow<'a>(&mut self, cgroups: impl Iterator<Item = &'a CgroupPath> + Clone) {
        self.files.retain(|path, _| cgroups.clone().any(|cgroup| cgroup.is_within(path)));
        let Some(root) = &self.root else { return };
        let (usage, limit) = if root.v2 {
            ("memory.current", "memory.max")
        } else {
            ("memory.usage_in_bytes", "memory.limit_in_bytes")
        };
        for cgroup in cgroups {
            let here_and_above = iter::once(cgroup.clone()).chain(cgroup.ancestors());
            for path in here_and_above.filter(|path| !path.is_root()) {
                if self.files.contains_key(&path) {
                    continue;
                }
                let dir = root.path.join(path.relative());
                let open = |name: &str| RepeatedFile::open(dir.join(name), LONGEST).ok();
                // A cgroup without a memory controller has no limit.
                if let Some((usage, limit)) = open(usage).zip(open(limit)) {
                    self.files.insert(path, LimitFiles { usage, limit });
                }
            }
        }
    }

    /// Bytes by which a cgroup may still grow; `None` without a limit.
    pub fn left(&mut self, cgroup: &CgroupPath) -> Option<u64> {
        let files = self.files.iter_mut().filter(|(path, _)| cgroup.is_within(path));
        files.filter_map(|(_, pair)| pair.left()).min()
    }
}

impl LimitFiles {
    fn left(&mut self) -> Option<u64> {
        let number = |file: &mut RepeatedFile| file.text().ok()?.trim().parse::<u64>().ok();
        let limit = number(&mut self.limit).filter(|limit| *limit < NO_LIMIT)?;
        Some(limit.saturating_sub(number(&mut self.usage)?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_nearest_limit_counts() {
        let dir = tempfile::TempDir::new().unwrap();
        let put = |path: &str, usage: &str, limit: &str| {
            let dir = dir.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("memory.current"), usage).unwrap();
            fs::write(dir.join("memory.max"), limit).unwrap();
        };
        put("pod", "60\n", "100\n");
        put("pod/one", "50\n", "max\n");
        put("pod/two", "9\n", "10\n");
        put("free", "9\n", "max\n");
        let path = enforcer_host::HostRoot::live().at(dir.path());
        let root = ControllerRoot { path, v2: true, mounted_cgroup: "/".into() };
        let mut limits = MemoryLimits::new(Some(root));
        let paths = ["/pod/one", "/pod/two", "/free", "/gone"].map(CgroupPath::new);
        limits.follow(paths.iter());
        let left = |limits: &mut MemoryLimits| paths.each_ref().map(|path| limits.left(path));
        assert_eq!(left(&mut limits), [Some(40), Some(1), None, None]);
        put("pod/one", "50\n", "30\n");
        assert_eq!(limits.left(&paths[0]), Some(0), "it is above its limit");
        limits.follow(paths[2..].iter());
        assert_eq!(limits.left(&paths[0]), None);
        let mut none = MemoryLimits::new(None);
        none.follow(paths.iter());
        assert_eq!(left(&mut none), [None; 4]);
    }
}
