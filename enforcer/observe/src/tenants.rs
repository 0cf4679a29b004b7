//! Memory of a cgroup's processes by node, read when a node is nearly full.
//!
//! Reading `numa_maps` walks the page tables of a process with its mmap lock held for reading. Since 6.4 page
//! faults do not wait for that where the kernel locks each mapping. So it is read only for cgroups that may
//! have to give pages, and for a bounded number of processes. A process that has ended has no memory.

use std::path::Path;

use enforcer_core::widening::ProcessMemory;

use super::policies::each_line;
use enforcer_host::{HostPath, HostRoot, processes::processes_in};

/// Most processes of a cgroup that are read.
const MOST: usize = 1_024;

/// Reads processes of a host.
#[derive(Debug, Clone)]
pub struct ResidentsReader(HostRoot);

impl ResidentsReader {
    /// Reader for this host.
    pub fn new(host: &HostRoot) -> Self {
        Self(host.clone())
    }

    /// The directory of processes.
    pub fn proc(&self) -> &HostPath {
        &self.0.proc
    }

    /// Processes of a cgroup, by its directory, and of the cgroups below it.
    pub fn of(&self, cgroup: &Path) -> Result<Vec<ProcessMemory>, String> {
        let processes = processes_in(cgroup)?;
        let tenant = |pid: u32| {
            let mut tenant = ProcessMemory::new(pid);
            each_line(&self.0, pid, "numa_maps", |line| tenant.add_line(line)).ok()?;
            Some(tenant)
        };
        Ok(processes.into_iter().take(MOST).filter_map(tenant).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn processes_below_are_read_and_those_that_ended_are_not() {
        let dir = tempfile::TempDir::new().unwrap();
        let put = |file: &str, text: &str| {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("cgroup/cgroup.procs", "4\n");
        put("cgroup/leaf/cgroup.procs", "5\n6\n");
        put("proc/4/numa_maps", "1000 bind:0 anon=2 N0=2 kernelpagesize_kB=4\n");
        put("proc/5/numa_maps", "1000 default anon=2 N0=2 kernelpagesize_kB=4\n");
        let tenants = ResidentsReader::new(&HostRoot::captured(dir.path()));
        let found = tenants.of(&dir.path().join("cgroup")).unwrap();
        let seen: Vec<_> = found.iter().map(|one| (one.pid, one.bound_bytes())).collect();
        assert_eq!(seen, [(4, 8192), (5, 0)]);
        assert!(tenants.of(&dir.path().join("gone")).unwrap_err().contains("cgroup.procs"));
    }
}
