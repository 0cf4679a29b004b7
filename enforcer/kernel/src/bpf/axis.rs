//! Which cgroup of a task its counters belong to.

use enforcer_common::settings::{AXIS_CPUSET, AXIS_UNIFIED};

/// The cgroup hierarchy with the directories that key all counters, by inode number.
///
/// A task is in one cgroup per hierarchy. Workloads are found in the cpuset controller's hierarchy, so the
/// counters must use it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupAxis {
    /// cgroup v2.
    Unified,
    /// The v1 hierarchy of the cpuset controller.
    Cpuset,
}

impl CgroupAxis {
    /// Number of its hierarchy in the text of `/proc/self/cgroup`, where cgroup v2 is 0 (cgroups(7)).
    pub(super) fn hierarchy(self, text: &str) -> Option<u32> {
        text.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, _) = rest.split_once(':')?;
            let is_it = match self {
                Self::Unified => controllers.is_empty(),
                Self::Cpuset => controllers.split(',').any(|name| name == "cpuset"),
            };
            if is_it { number.parse().ok() } else { None }
        })
    }

    pub(super) fn setting(self) -> u32 {
        match self {
            Self::Unified => AXIS_UNIFIED,
            Self::Cpuset => AXIS_CPUSET,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_the_one_with_the_controller() {
        let text = "12:cpu,cpuset:/a:b\n3:name=systemd:/\n0::/a\nnonsense\n";
        assert_eq!(CgroupAxis::Cpuset.hierarchy(text), Some(12));
        assert_eq!(CgroupAxis::Unified.hierarchy(text), Some(0));
        assert_eq!(CgroupAxis::Cpuset.hierarchy("0::/\n"), None);
        assert_eq!(CgroupAxis::Cpuset.hierarchy("x:cpuset:/\n"), None);
    }
}
