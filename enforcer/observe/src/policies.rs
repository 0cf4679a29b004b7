//! Memory policies of processes with memory far from their CPUs.
//!
//! A process that binds its memory itself (`mbind(2)`, `set_mempolicy(2)`, `numactl`) explains far memory,
//! and no cpuset shows that. Only suspects are read, and a bounded number: each read holds the process's mmap
//! lock for a while. Without the iterator `numa_maps` is read, if the configuration allows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
};

use enforcer_core::{
    model::accessed_bytes,
    sample::{NodeBytes, Sample},
    vma::{Vma, VmaFiles},
    workload::CgroupPath,
};
use numa_topology::{Locality, Topology, id::NodeId, set::CpuSet};

use super::numa_maps::{LIMIT, LINE_LIMIT};
use enforcer_host::HostRoot;

/// Far memory, in bytes, from which on a process is suspect: less is too little to judge.
const FAR_BYTES: u64 = 16 << 20;

/// Distances between CPUs and memory.
pub(super) struct MemoryDistances {
    locality: Locality,
    machine: Vec<(NodeId, CpuSet)>,
}

impl MemoryDistances {
    pub(super) fn new(machine: &Topology) -> Self {
        let cpus = machine.nodes.iter().map(|node| (node.id, node.cpus.clone()));
        Self { locality: Locality::new(machine), machine: cpus.collect() }
    }

    /// Processes of workloads with memory on nodes where none of their threads may run, in ascending order.
    pub(super) fn far_processes(&self, sample: &Sample) -> BTreeSet<u32> {
        let mut cgroups: BTreeMap<&CgroupPath, (CpuSet, BTreeSet<u32>)> = BTreeMap::new();
        let mut processes: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for task in &sample.tasks {
            let Some(cpus) = &task.cpus_allowed else { continue };
            if sample.memory_by_process.contains_key(&task.pid) {
                let may_run = processes.entry(task.pid).or_default();
                *may_run = may_run.union(cpus);
            } else if let Some(path) = task.cgroup.as_ref().filter(|path| !path.is_root()) {
                let (may_run, pids) = cgroups.entry(path).or_default();
                *may_run = may_run.union(cpus);
                pids.insert(task.pid);
            }
        }
        let of_cgroups = cgroups.into_iter().filter(|(path, (cpus, _))| {
            let memory = sample.cgroups.get(*path).and_then(|cgroup| cgroup.memory_by_node.as_ref());
            memory.is_some_and(|memory| self.is_far(memory, cpus))
        });
        let of_processes = processes.into_iter().filter(|(pid, cpus)| {
            sample.memory_by_process.get(pid).is_some_and(|memory| self.is_far(memory, cpus))
        });
        let pids = of_cgroups.flat_map(|(_, (_, pids))| pids);
        pids.chain(of_processes.map(|(pid, _)| pid)).collect()
    }

    fn is_far(&self, memory: &BTreeMap<NodeId, NodeBytes>, cpus: &CpuSet) -> bool {
        let nodes =
            self.machine.iter().filter(|(_, of_node)| !of_node.is_disjoint(cpus)).map(|(node, _)| *node);
        let nodes = nodes.collect();
        let far = memory.iter().filter(|(node, _)| self.locality.is_far(**node, &nodes));
        far.fold(0u64, |sum, (_, bytes)| sum.saturating_add(accessed_bytes(bytes))) >= FAR_BYTES
    }
}

/// The mappings of a process, read from its files.
pub(super) fn read_mappings(host: &HostRoot, pid: u32) -> io::Result<Vec<Vma>> {
    let mut files = VmaFiles::default();
    each_line(host, pid, "maps", |line| files.add_map(line))?;
    each_line(host, pid, "numa_maps", |line| files.add_numa_map(line))?;
    Ok(files.into_mappings())
}

/// Passes each line of a process's file to `take`; lines and files are bounded.
pub(super) fn each_line(host: &HostRoot, pid: u32, name: &str, mut take: impl FnMut(&str)) -> io::Result<()> {
    let path = host.proc.join(format!("{pid}/{name}"));
    let mut reader = BufReader::new(File::open(path.as_path())?).take(LIMIT);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        take(String::from_utf8_lossy(&line).trim_end());
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::sample::{CgroupSample, TaskSample};
    use numa_topology::{MemoryKind, synth::Machine};

    use super::*;

    /// CPUs 0-3 on node 0, 4-7 on node 1, and a CXL node 2 beside node 1.
    fn distances() -> MemoryDistances {
        let machine = Machine::new().sockets(2).threads(1);
        MemoryDistances::new(&machine.memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build())
    }

    fn task(pid: u32, path: &str, cpus: &str) -> TaskSample {
        TaskSample {
            tid: pid,
            pid,
            command: "x".into(),
            cgroup: Some(CgroupPath::new(path)),
            cpu: None,
            cpus_allowed: Some(cpus.parse().unwrap()),
            cpu_time_ns: None,
            preferred_node: None,
            faults_by_node: None,
        }
    }

    fn on(node: u32, mebibytes: u64) -> BTreeMap<NodeId, NodeBytes> {
        [(NodeId(node), NodeBytes { anon: mebibytes << 20, ..NodeBytes::default() })].into()
    }

    #[test]
    fn only_processes_with_much_memory_away_from_all_their_threads_are_asked() {
        let mut sample = Sample::default();
        for (path, node, mebibytes) in
            [("/far", 0, 16), ("/little", 0, 15), ("/near", 1, 900), ("/cxl", 2, 900)]
        {
            let memory_by_node = Some(on(node, mebibytes));
            sample
                .cgroups
                .insert(CgroupPath::new(path), CgroupSample { memory_by_node, ..CgroupSample::default() });
        }
        sample.cgroups.insert(CgroupPath::new("/unknown"), CgroupSample::default());
        sample.tasks =
            [(10, "/far"), (11, "/far"), (20, "/little"), (30, "/near"), (40, "/cxl"), (50, "/unknown")]
                .map(|(pid, path)| task(pid, path, "4-7"))
                .into();
        sample.tasks.extend([task(60, "/", "4-7"), task(70, "/", "4-7")]);
        sample.memory_by_process = [(60, on(0, 64)), (70, on(1, 64))].into();
        assert_eq!(distances().far_processes(&sample), [10, 11, 60].into());
        sample.tasks.push(task(12, "/far", "0"));
        assert_eq!(distances().far_processes(&sample), [60].into(), "one thread may run there");
    }

    #[test]
    fn this_process_has_mappings_with_a_policy() {
        // A kernel without NUMA has no such file.
        if std::path::Path::new("/proc/self/numa_maps").is_file() {
            let mappings = read_mappings(&HostRoot::live(), std::process::id()).unwrap();
            assert!(mappings.iter().any(|vma| vma.file) && mappings.iter().any(|vma| !vma.file));
            assert!(mappings.iter().all(|vma| vma.start < vma.end));
        }
        assert!(read_mappings(&HostRoot::live(), 4_194_304).is_err());
    }
}
