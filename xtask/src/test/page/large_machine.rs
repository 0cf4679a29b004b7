//! A captured machine as large as the page promises: 64 nodes, 2,000 containers, and names that want to break
//! out.
//!
//! Files as `capture` takes them, made here for lack of such a machine. Four nodes have memory and no CPUs.
//! Of the containers every fifth has its memory on another package, every seventh may run on two nodes, the
//! others are where they should be.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Containers of pods.
pub(super) const CONTAINERS: u32 = 2000;
/// NUMA nodes.
pub(super) const NODES: u32 = 64;
/// Nodes with CPUs, before the others.
const CPU_NODES: u32 = 60;
/// CPUs of one.
const CPUS: u32 = 8;
/// Nodes of one package.
const NODES_OF_PACKAGE: u32 = 4;

/// Names of units that must be plain text on the page. None has a slash or a new line, which cgroups refuse.
pub(super) const HOSTILE: [&str; 5] = [
    "<script>hacked=1<",
    "<img src=x onerror=hacked=1>.service",
    "\"><svg onload=hacked=1>.service",
    "'-hacked=1-'\u{202e}gpj.service",
    "\u{1b}[2J\trow&lt;b&gt;.service",
];

/// Writes the machine into a folder.
pub(super) fn write(root: &Path) -> Result<()> {
    let tree = CapturedTree(root.to_owned());
    cpus(&tree)?;
    nodes(&tree)?;
    let all_cpus = format!("0-{}", CPU_NODES * CPUS - 1);
    let all_nodes = format!("0-{}", NODES - 1);
    tree.put("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n")?;
    tree.put("proc/sys/kernel/numa_balancing", "1\n")?;
    tree.put("proc/sys/kernel/hostname", "large-1\n")?;
    tree.cgroup("", &all_cpus, &all_nodes, None)?;
    for (place, name) in (0..).zip(HOSTILE) {
        tree.cgroup(&format!("/system.slice/{name}"), "0-7", "0-1", Some((place, 64)))?;
    }
    (0..CONTAINERS).try_for_each(|number| container(&tree, number))
}

fn cpus(tree: &CapturedTree) -> Result<()> {
    let all = format!("0-{}\n", CPU_NODES * CPUS - 1);
    for list in ["online", "present", "possible"] {
        tree.put(&format!("sys/devices/system/cpu/{list}"), &all)?;
    }
    for cpu in 0..CPU_NODES * CPUS {
        let package = cpu / CPUS / NODES_OF_PACKAGE;
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        tree.put(&format!("{topology}/physical_package_id"), &format!("{package}\n"))?;
        tree.put(&format!("{topology}/core_id"), &format!("{cpu}\n"))?;
    }
    Ok(())
}

fn nodes(tree: &CapturedTree) -> Result<()> {
    tree.put("sys/devices/system/node/online", &format!("0-{}\n", NODES - 1))?;
    for node in 0..NODES {
        let folder = format!("sys/devices/system/node/node{node}");
        let cpus = format!("{}-{}\n", node * CPUS, node * CPUS + CPUS - 1);
        tree.put(&format!("{folder}/cpulist"), if node < CPU_NODES { &cpus } else { "\n" })?;
        let (total, free) = (64 << 20, (node % 8 + 1) * (8 << 20));
        let sizes = [("MemTotal", total), ("MemFree", free), ("Active(file)", 0), ("Inactive(file)", 0)];
        let meminfo = sizes.map(|(name, kb)| format!("Node {node} {name}: {kb} kB\n")).concat();
        tree.put(&format!("{folder}/meminfo"), &meminfo)?;
        let distances: Vec<String> = (0..NODES).map(|other| distance(node, other).to_string()).collect();
        tree.put(&format!("{folder}/distance"), &(distances.join(" ") + "\n"))?;
    }
    Ok(())
}

const fn distance(from: u32, to: u32) -> u32 {
    if from == to {
        10
    } else if from / NODES_OF_PACKAGE == to / NODES_OF_PACKAGE {
        12
    } else if from >= CPU_NODES || to >= CPU_NODES {
        40
    } else {
        21
    }
}

fn container(tree: &CapturedTree, number: u32) -> Result<()> {
    let node = number % CPU_NODES;
    let beside = (node + 1) % CPU_NODES;
    let first = node * CPUS;
    let (cpus, nodes) = if number.is_multiple_of(7) && node + 1 < CPU_NODES {
        (format!("{first}-{}", first + 2 * CPUS - 1), format!("{node}-{beside}"))
    } else {
        (format!("{first}-{}", first + CPUS - 1), node.to_string())
    };
    let away = (node + 2 * NODES_OF_PACKAGE) % CPU_NODES;
    let home = if number.is_multiple_of(5) { away } else { node };
    let pod = format!("5f1c{number:04}_4a5b_4c1d_9e2f_0123456789ab");
    let id = format!("{number:04x}").repeat(16);
    let path = format!(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{id}.scope"
    );
    tree.cgroup(&path, &cpus, &nodes, Some((home, 100 + number)))
}

/// A folder that stands for the root of a machine.
struct CapturedTree(PathBuf);

impl CapturedTree {
    fn put(&self, path: &str, text: &str) -> Result<()> {
        let path = self.0.join(path);
        let folder = path.parent().context("a file has a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    /// A cgroup of version 2; with memory in MiB on one node, and some on node 0, there is a process in it.
    fn cgroup(&self, path: &str, cpus: &str, nodes: &str, memory: Option<(u32, u32)>) -> Result<()> {
        let put = |file: &str, text: &str| self.put(&format!("sys/fs/cgroup{path}/{file}"), text);
        put("cpuset.cpus.effective", &format!("{cpus}\n"))?;
        put("cpuset.mems.effective", &format!("{nodes}\n"))?;
        let Some((home, mebibytes)) = memory else { return put("cgroup.procs", "") };
        put("cgroup.procs", &format!("{}\n", 1000 + mebibytes))?;
        put("cpuset.cpus", &format!("{cpus}\n"))?;
        put("cpuset.mems", &format!("{nodes}\n"))?;
        put("memory.current", &format!("{}\n", u64::from(mebibytes + 1) << 20))?;
        let (mut anon, mut file) = ("anon".to_owned(), "file".to_owned());
        for node in 0..NODES {
            let bytes = if node == home { u64::from(mebibytes) << 20 } else { 0 };
            let cached = if node == 0 { 1 << 20 } else { 0 };
            // Writing into a string does not fail.
            let _ = write!(anon, " N{node}={bytes}");
            let _ = write!(file, " N{node}={cached}");
        }
        put("memory.numa_stat", &format!("{anon}\n{file}\n"))
    }
}
