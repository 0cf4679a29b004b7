//! Offsets of the fields that the programs read in this kernel's structures.
//!
//! The names on both ends are `enforcer_common::settings`. A hook with a missing field is not attached: an
//! offset of 0 would load and count nonsense.

use enforcer_common::{limit::MIGRATE_REASONS, tally::reason};

use super::{
    axis::CgroupAxis,
    btf::{KernelTypes, Missing},
};

/// Size of a pointer, the element of `css_set.subsys`, in the kernel.
const POINTER: u32 = 8;

/// From a task to the id of its cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CgroupWalk {
    pub(super) task_cgroups: u32,
    pub(super) css_set_slot: u32,
    pub(super) css_cgroup: u32,
    pub(super) cgroup_kn: u32,
    pub(super) kn_id: u32,
}

/// From a cgroup to its parent and to its hierarchy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CgroupTree {
    pub(super) cgroup_self: u32,
    pub(super) css_parent: u32,
    pub(super) cgroup_root: u32,
    pub(super) root_hierarchy: u32,
}

impl CgroupTree {
    pub(super) fn resolve(types: &KernelTypes) -> Result<Self, Missing> {
        Ok(Self {
            cgroup_self: types.offset("cgroup", &["self"])?,
            css_parent: types.offset("cgroup_subsys_state", &["parent"])?,
            cgroup_root: types.offset("cgroup", &["root"])?,
            root_hierarchy: types.offset("cgroup_root", &["hierarchy_id"])?,
        })
    }
}

impl CgroupWalk {
    pub(super) fn resolve(types: &KernelTypes, axis: CgroupAxis) -> Result<Self, Missing> {
        let css_set_slot = match axis {
            CgroupAxis::Unified => types.offset("css_set", &["dfl_cgrp"])?,
            CgroupAxis::Cpuset => {
                let index = types.enumerator("cgroup_subsys_id", "cpuset_cgrp_id")?;
                let slots = types.offset("css_set", &["subsys"])?;
                index
                    .checked_mul(POINTER)
                    .and_then(|offset| offset.checked_add(slots))
                    .ok_or_else(|| Missing(format!("slot {index} of css_set.subsys")))?
            }
        };
        Ok(Self {
            task_cgroups: types.offset("task_struct", &["cgroups"])?,
            css_set_slot,
            css_cgroup: types.offset("cgroup_subsys_state", &["cgroup"])?,
            cgroup_kn: types.offset("cgroup", &["kn"])?,
            kn_id: types.offset("kernfs_node", &["id"])?,
        })
    }
}

/// The thread id of a task.
pub(super) fn task_pid(types: &KernelTypes) -> Result<u32, Missing> {
    types.offset("task_struct", &["pid"])
}

/// From an open file of a cgroup to the file's name and its cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CgroupFile {
    pub(super) open_file_kn: u32,
    pub(super) kn_parent: u32,
    pub(super) kn_name: u32,
}

impl CgroupFile {
    pub(super) fn resolve(types: &KernelTypes) -> Result<Self, Missing> {
        let parent = |name| types.offset("kernfs_node", &[name]);
        Ok(Self {
            open_file_kn: types.offset("kernfs_open_file", &["kn"])?,
            kn_parent: parent("parent").or_else(|_| parent("__parent"))?,
            kn_name: types.offset("kernfs_node", &["name"])?,
        })
    }
}

/// Bytes of a mask of nodes, which is that of the most nodes that the kernel is built for.
pub(super) fn node_mask_bytes(types: &KernelTypes) -> Result<u32, Missing> {
    types.size("nodemask_t")
}

/// From a zone of an allocation to its node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ZoneWalk {
    pub(super) zoneref_zone: u32,
    pub(super) zone_node: u32,
}

impl ZoneWalk {
    pub(super) fn resolve(types: &KernelTypes) -> Result<Self, Missing> {
        Ok(Self {
            zoneref_zone: types.offset("zoneref", &["zone"])?,
            zone_node: types.offset("zone", &["node"])?,
        })
    }
}

/// What bounds an allocation, in the OOM killer.
pub(super) fn oom_constraint(types: &KernelTypes) -> Result<u32, Missing> {
    types.offset("oom_control", &["constraint"])
}

/// Class of each value of `enum migrate_reason`: the later ones came in different releases.
pub(super) fn migrate_reasons(types: &KernelTypes) -> Result<[u8; MIGRATE_REASONS], Missing> {
    let mut classes = [reason::OTHER; MIGRATE_REASONS];
    for (name, class, always) in [
        ("MR_COMPACTION", reason::COMPACTION, true),
        ("MR_SYSCALL", reason::SYSCALL, true),
        ("MR_MEMPOLICY_MBIND", reason::MEMPOLICY, true),
        ("MR_NUMA_MISPLACED", reason::BALANCING, true),
        ("MR_DEMOTION", reason::DEMOTION, false),
        ("MR_DAMON", reason::DAMON, false),
    ] {
        match types.enumerator("migrate_reason", name) {
            Ok(value) => {
                if let Some(place) = classes.get_mut(value as usize) {
                    *place = class;
                }
            }
            Err(missing) if always => return Err(missing),
            Err(_) => {}
        }
    }
    Ok(classes)
}

/// The reason of a mapping that may not be scanned for hinting faults.
pub(super) fn skip_unsuitable(types: &KernelTypes) -> Result<u32, Missing> {
    types.enumerator("numa_vmaskip_reason", "NUMAB_SKIP_UNSUITABLE")
}

/// The CPU of a task: in `thread_info` since 5.16 on every architecture, before in `task_struct` on
/// x86 and arm64.
pub(super) fn task_cpu(types: &KernelTypes) -> Result<u32, Missing> {
    types.offset("task_struct", &["cpu"]).or_else(|_| types.offset("task_struct", &["thread_info", "cpu"]))
}
