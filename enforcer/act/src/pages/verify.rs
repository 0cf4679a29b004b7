//! Looks where the pages are after a move: what is still on the nodes that they were to leave.
//!
//! One reading of `numa_maps` for each process, and the cgroup's `memory.numa_stat` where it is beside the
//! cpuset (the unified hierarchy). An ended process has no pages. Unreadable places are unknown: then the
//! results of the calls alone decide whether a move succeeded.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use enforcer_core::{
    parse::{numa_maps::Mapping, numa_stat::parse_numa_stat_v2},
    residue::Residue,
};
use enforcer_host::HostPath;
use numa_topology::set::NodeSet;

/// What of these processes, and of their cgroup's files, is on these nodes.
pub(super) fn residue(proc: &HostPath, processes: &[u32], cgroup: &Path, from: &NodeSet) -> Residue {
    let mut residue = Residue::default();
    for pid in processes {
        let Ok(file) = File::open(proc.join(format!("{pid}/numa_maps")).as_path()) else { continue };
        for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
            if let Ok(mapping) = Mapping::parse(&String::from_utf8_lossy(&line)) {
                residue.add(&mapping, from);
            }
        }
    }
    let account = fs::read_to_string(cgroup.join("memory.numa_stat"));
    if let Some(account) = account.ok().and_then(|text| parse_numa_stat_v2(&text).ok()) {
        residue.add_account(&account, from);
    }
    residue
}
