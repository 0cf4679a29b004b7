//! The workloads of most scenarios: one that is misplaced, and its twin that is not.

use anyhow::Result;

use crate::{cgroup::Cgroup, process::Running};

/// Memory of each workload: enough to outweigh a program's own pages, quick to move.
const MEBIBYTES: usize = 64;

/// Two workloads on a machine with CPUs 0-1 on node 0 and 2-3 on node 1.
pub(super) struct Pair {
    /// Memory on node 0, CPUs of node 1.
    pub(super) away_cgroup: Cgroup,
    /// Its process.
    pub(super) away: Running,
    /// Memory and CPUs on node 0.
    pub(super) home_cgroup: Cgroup,
    /// Its process.
    pub(super) home: Running,
}

impl Pair {
    /// Makes the cgroups and starts the processes, which spin over their memory.
    pub(super) fn start() -> Result<Self> {
        let away_cgroup = Cgroup::with_cpuset("/work/away", "2-3", "0")?;
        let away = Running::hog(&away_cgroup, MEBIBYTES)?;
        let (home_cgroup, home) = home()?;
        Ok(Self { away_cgroup, away, home_cgroup, home })
    }
}

/// A workload with its memory and its CPUs on node 0.
pub(super) fn home() -> Result<(Cgroup, Running)> {
    let cgroup = Cgroup::with_cpuset("/work/home", "0-1", "0")?;
    let process = Running::hog(&cgroup, MEBIBYTES)?;
    Ok((cgroup, process))
}
