//! One file that was written, and what it held before.

use enforcer_core::{self_placement::SelfPlacedThread, workload::CgroupPath};
use serde::{Deserialize, Serialize};

use super::thread_room::threads_after;
use crate::cpuset::ManagedFile;

/// Most bytes of a container's id and cgroup, as the runtime gives them; escaped, six times as many.
pub(super) const LONGEST_NAMES: usize = 64 << 10;

/// A file that was written, and in which life of its cgroup; or a property of the unit that the cgroup
/// belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryKey {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Its name.
    pub file: ManagedFile,
    /// Inode of the cgroup's directory; 0 for a property.
    pub inode: u64,
}

/// Original of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The exact text, newline included.
    pub original: String,
    /// `/proc/sys/kernel/random/boot_id` of that time, where it could be read.
    pub boot_id: Option<String>,
    /// Last two values of a property, the latest last: either may be in force after a crash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Threads in the cgroup and below it that had set memory policies or affinities themselves, as they were
    /// before the first write that changes them; and what they have pinned themselves to since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<SelfPlacedThread>,
}

impl Entry {
    /// A file.
    pub fn of_file(original: impl Into<String>, boot_id: Option<&str>) -> Self {
        Self {
            original: original.into(),
            boot_id: boot_id.map(str::to_owned),
            set: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// The entry for a property that was recorded before and is to be set to something else; `None` where
    /// nothing is new.
    pub(super) fn after(&self, first: &Self) -> Option<Self> {
        let latest = self.set.last().filter(|latest| Some(*latest) != first.set.last());
        let is_known = |thread: &SelfPlacedThread| {
            first.threads.iter().any(|known| known.is(thread) && !known.is_repinned(thread))
        };
        if latest.is_none() && self.threads.iter().all(is_known) {
            return None;
        }
        let threads = threads_after(&first.threads, &self.threads);
        let set = match latest {
            Some(latest) => first.set.last().into_iter().chain([latest]).cloned().collect(),
            None => first.set.clone(),
        };
        let news = Self { set, threads, ..first.clone() };
        (news != *first).then_some(news)
    }
}

/// Is it recorded of another boot than this one, as far as both are known? Then its cgroup is gone, even
/// under the same inode.
pub(crate) fn is_of_another_boot(recorded: Option<&str>, now: Option<&str>) -> bool {
    matches!((recorded, now), (Some(then), Some(now)) if then != now)
}
