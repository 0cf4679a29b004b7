//! Finds the sandboxes of pods among the workloads when no runtime names them.
//!
//! Problem: each pod has a container that only holds its namespaces, and its cgroup looks like any other
//! container's: an audit without a daemon lists it as a workload without a name. Idea: it runs a single
//! process called `pause`, and holds next to no memory.
//!
//! Invariant: a container with more memory than that is a workload, whatever the name of its process.

use enforcer_core::workload::{Origin, Workload};

use crate::{HostRoot, cgroup::CgroupLayout};

/// Name of the process.
const PAUSE: &str = "pause";

/// Most memory of a sandbox: pages of a program that does nothing.
const LARGEST: u64 = 16 << 20;

/// Removes sandboxes from the workloads; returns their number.
pub fn take_sandboxes(host: &HostRoot, layout: &CgroupLayout, workloads: &mut Vec<Workload>) -> usize {
    workloads.extract_if(.., |workload| is_sandbox(host, layout, workload)).count()
}

fn is_sandbox(host: &HostRoot, layout: &CgroupLayout, workload: &Workload) -> bool {
    let Origin::Pod { container_id: Some(_), .. } = workload.origin else { return false };
    let cgroup = &workload.cgroup;
    let Ok(processes) = layout.cpuset.dir(cgroup).join("cgroup.procs").read_text() else { return false };
    let mut processes = processes.split_ascii_whitespace();
    let (Some(only), None) = (processes.next(), processes.next()) else { return false };
    let is_named = |only: &str| {
        let comm = host.proc.join(only).join("comm").read_text();
        comm.is_ok_and(|comm| comm.trim_end() == PAUSE)
    };
    let memory = layout.memory.as_ref();
    let bytes = memory.and_then(|root| {
        let text = root.dir(cgroup).join(root.files().memory_current).read_text().ok()?;
        text.trim().parse::<u64>().ok()
    });
    is_named(only) && bytes.is_none_or(|bytes| bytes <= LARGEST)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use enforcer_core::workload::{CgroupPath, identify};

    use super::*;
    use crate::cgroup::{CgroupVersion, ControllerRoot};

    #[test]
    fn a_pause_alone_that_holds_nothing_is_a_sandbox_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostRoot::captured(dir.path());
        let cpuset = ControllerRoot { path: host.cgroup.clone(), v2: true, mounted_cgroup: "/".into() };
        let layout = CgroupLayout {
            version: CgroupVersion::V2,
            memory: Some(cpuset.clone()),
            hugetlb: None,
            cpuset,
            systemd: None,
            unified: None,
        };
        let container = "a".repeat(64);
        let of_pod = |uid: u32| {
            let uid = format!("{uid:08}-1111-1111-1111-111111111111");
            CgroupPath::new(&format!("/kubepods/burstable/pod{uid}/{container}"))
        };
        let service = CgroupPath::new("/system.slice/pause.service");
        for (pid, comm) in [(7, "pause\n"), (8, "pause\n"), (9, "postgres\n")] {
            let process = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("comm"), comm).unwrap();
        }
        let (kib, gib) = ("300000\n", "1073741824\n");
        let mut workloads = Vec::new();
        for (cgroup, processes, memory) in [
            (of_pod(1), "7\n", Some(kib)),
            (of_pod(2), "7\n", None),
            (of_pod(3), "7\n8\n", Some(kib)),
            (of_pod(4), "7\n", Some(gib)),
            (of_pod(5), "9\n", Some(kib)),
            (of_pod(6), "", Some(kib)),
            (service, "7\n", Some(kib)),
        ] {
            let cgroup_dir = layout.cpuset.dir(&cgroup);
            fs::create_dir_all(cgroup_dir.as_path()).unwrap();
            fs::write(cgroup_dir.join("cgroup.procs").as_path(), processes).unwrap();
            if let Some(memory) = memory {
                fs::write(cgroup_dir.join("memory.current").as_path(), memory).unwrap();
            }
            let origin = identify(&cgroup).origin;
            workloads.push(Workload { cgroup, cgroup_id: None, name: String::new(), origin });
        }
        assert_eq!(take_sandboxes(&host, &layout, &mut workloads), 2);
        let left: Vec<bool> =
            (1..=6).map(|uid| workloads.iter().any(|one| one.cgroup == of_pod(uid))).collect();
        assert_eq!((left, workloads.len()), (vec![false, false, true, true, true, true], 5));
    }
}
