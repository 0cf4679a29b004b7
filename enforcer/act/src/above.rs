//! Which cgroup above another one is too narrow for what that was set to.
//!
//! A plan checks the cgroups above, but one may have been narrowed since. This module only explains the
//! failure: it decides nothing, and leaves unreadable files out.

use enforcer_core::workload::CgroupPath;
use numa_topology::{id::Id, set::IdSet};

use super::cpuset::{CpusetTree, ManagedFile};

/// Names the highest of those that do not have all of this, and what it has.
pub(super) fn too_narrow<T: Id>(
    tree: &CpusetTree,
    cgroup: &CgroupPath,
    file: ManagedFile,
    wanted: &IdSet<T>,
) -> Option<String> {
    let mut narrow = None;
    for path in cgroup.ancestors() {
        let Some(text) = tree.open(&path).ok().and_then(|cpuset| cpuset.read_effective(file).ok()?) else {
            break;
        };
        let has: IdSet<T> = text.trim().parse().ok()?;
        if wanted.is_subset(&has) {
            break;
        }
        narrow = Some(format!("{path} above it allows only {has}"));
    }
    narrow
}
