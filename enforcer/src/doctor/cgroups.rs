//! The cgroup hierarchy: its version, the place of the cpuset controller, and whether it can be written.

use std::path::Path;

use super::writable;
use enforcer_host::{HostRoot, cgroup::CgroupLayout};
use enforcer_report::checks::Check;

pub(super) fn checks(host: &HostRoot) -> Vec<Check> {
    let layout = match CgroupLayout::read(host) {
        Ok(layout) => layout,
        Err(error) => {
            let advice = "mount a cgroup hierarchy with the cpuset controller; in a container, mount the host's /sys/fs/cgroup";
            return vec![Check::missing("cgroups", error.to_string(), advice)];
        }
    };
    let cpuset = &layout.cpuset.path;
    let mut checks = vec![
        Check::ok("cgroups", layout.version.as_str()),
        match writable(cpuset.join("cgroup.procs").as_path()) {
            Ok(()) => Check::ok("cpuset", format!("{} may be written", cpuset.display())),
            Err(error) => Check::degraded(
                "cpuset",
                format!("{} may not be written: {error}", cpuset.display()),
                "`run --mode enforce` and `restore` need root and a hierarchy that is mounted read-write; the rest does not",
            ),
        },
    ];
    checks.push(match &layout.memory {
        Some(memory) => memory_check(memory.path.join("memory.numa_stat").as_path(), memory.v2),
        None => Check::missing(
            "memory-controller",
            "no hierarchy has the memory controller",
            "boot with cgroup_enable=memory: without it nothing says where a workload's memory is",
        ),
    });
    checks
}

fn memory_check(path: &Path, v2: bool) -> Check {
    let path = path.display();
    if v2 {
        Check::ok("memory-controller", format!("{path} of each cgroup, v2"))
    } else {
        Check::degraded(
            "memory-controller",
            format!("{path}, v1: no kernel memory per node, no memory.events, no memory.pressure"),
            "boot with systemd.unified_cgroup_hierarchy=1",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use enforcer_report::checks::Status;

    #[test]
    fn a_host_without_a_hierarchy_says_so() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
        let checks = checks(&HostRoot::captured(root.path()));
        assert_eq!(checks.len(), 1);
        assert_eq!((checks[0].name.as_str(), checks[0].status), ("cgroups", Status::Missing));
    }
}
