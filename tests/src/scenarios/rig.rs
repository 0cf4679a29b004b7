//! Is the machine what its topology file says? Everything else stands on this.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

use super::workloads::Pair;
use crate::{
    check::Checks,
    ids::{self, Ids},
    memory,
    topology::Topology,
};

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";
const TIERS: &str = "/sys/devices/virtual/memory_tiering";

/// Memory that a kernel keeps for itself on a small node, as a share of the node.
const KERNEL_SHARE: u64 = 4;

/// The kernel shows exactly the topology.
pub(super) fn topology(checks: &mut Checks, name: &str) -> Result<()> {
    let wanted = Topology::load(name)?;
    nodes(checks, &wanted)?;
    processors(checks, &wanted)?;
    slow_memory(checks, &wanted)
}

/// Nodes with their CPUs, distances and memory.
pub(super) fn nodes(checks: &mut Checks, wanted: &Topology) -> Result<()> {
    let all: Ids = (0..u32::try_from(wanted.nodes.len())?).collect();
    checks.equal("online nodes", all, list(&format!("{NODES}/online"))?);
    checks.equal("online CPUs", wanted.cpus(), list(&format!("{CPUS}/online"))?);
    for (number, node) in wanted.nodes.iter().enumerate() {
        let folder = format!("{NODES}/node{number}");
        checks.equal(format!("CPUs of node {number}"), node.cpus()?, list(&format!("{folder}/cpulist"))?);
        let distances = read(&format!("{folder}/distance"))?;
        let wanted_distances: Vec<String> = wanted.distances[number].iter().map(u32::to_string).collect();
        checks.equal(format!("distances of node {number}"), wanted_distances.join(" "), distances);
        let mebibytes = total_memory(&folder)?;
        let whole = node.mebibytes();
        let enough = mebibytes <= whole && mebibytes >= whole - whole / KERNEL_SHARE;
        checks.holds(format!("memory of node {number} is about {whole} MiB"), enough, mebibytes);
    }
    Ok(())
}

/// Threads, last-level caches and sockets of every CPU.
fn processors(checks: &mut Checks, wanted: &Topology) -> Result<()> {
    let (mut siblings, mut caches, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in wanted.cpus() {
        let folder = format!("{CPUS}/cpu{cpu}");
        siblings.push((wanted.siblings(cpu), list(&format!("{folder}/topology/thread_siblings_list"))?));
        caches.push((wanted.cache(cpu), list(&format!("{folder}/cache/index3/shared_cpu_list"))?));
        sockets.push((wanted.socket(cpu), list(&format!("{folder}/topology/package_cpus_list"))?));
    }
    for (what, pairs) in
        [("threads of a core", siblings), ("CPUs of an L3", caches), ("CPUs of a socket", sockets)]
    {
        let (wanted, found): (Vec<Ids>, Vec<Ids>) = pairs.into_iter().unzip();
        checks.equal(format!("{what}, for each CPU"), wanted, found);
    }
    Ok(())
}

/// Memory-only nodes are in a slower tier, and HMAT says how slow.
fn slow_memory(checks: &mut Checks, wanted: &Topology) -> Result<()> {
    let nodes = |slow: bool| -> Ids {
        let chosen = wanted.nodes.iter().zip(0..).filter(|(node, _)| node.is_slow() == slow);
        chosen.map(|(_, number)| number).collect()
    };
    let mut tiers = memory_tiers()?;
    tiers.sort();
    let expected: Vec<Ids> =
        [nodes(false), nodes(true)].into_iter().filter(|tier| !tier.is_empty()).collect();
    checks.equal(
        "nodes of each memory tier, fastest first",
        expected,
        tiers.into_iter().map(|t| t.1).collect(),
    );
    let Some(hmat) = &wanted.hmat else { return Ok(()) };
    for (number, node) in wanted.nodes.iter().enumerate() {
        let best = node.initiator.context("a node of HMAT without initiator")?;
        let latency = read(&format!("{NODES}/node{number}/access0/initiators/read_latency"))?;
        checks.equal(
            format!("latency of node {number} in ns"),
            hmat.latency_ns[best][number].to_string(),
            latency,
        );
    }
    Ok(())
}

/// Number of each tier (mm/memory-tiers.c: higher is slower) and its nodes.
fn memory_tiers() -> Result<Vec<(u32, Ids)>> {
    let mut tiers = Vec::new();
    for entry in fs::read_dir(TIERS).with_context(|| format!("list {TIERS}"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("memory_tier").and_then(|number| number.parse().ok()) {
            tiers.push((number, list(&format!("{}/nodelist", path.display()))?));
        }
    }
    Ok(tiers)
}

/// A workload's memory is where its cgroup says, and stays there without the daemon.
pub(super) fn hog(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    std::thread::sleep(Duration::from_secs(1));
    checks.above("share of the misplaced hog on node 0", 0.9, Some(memory::share_on(pair.away.pid(), 0)?));
    checks.equal("CPUs of the misplaced hog", Ids::from([2, 3]), pair.away.cpus_allowed()?);
    checks.equal("nodes of the misplaced hog", Ids::from([0]), pair.away.mems_allowed()?);
    checks.above("share of the aligned hog on node 0", 0.9, Some(memory::share_on(pair.home.pid(), 0)?));
    checks.equal("CPUs of the aligned hog", Ids::from([0, 1]), pair.home.cpus_allowed()?);
    Ok(())
}

fn total_memory(folder: &str) -> Result<u64> {
    let text = read(&format!("{folder}/meminfo"))?;
    let line = text.lines().find(|line| line.contains("MemTotal:")).context("meminfo without MemTotal")?;
    let kib: u64 = line.split_whitespace().rev().nth(1).context("MemTotal without a value")?.parse()?;
    Ok(kib / 1024)
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    Ok(text.trim_end().to_owned())
}

fn list(path: &str) -> Result<Ids> {
    ids::parse(&read(path)?).with_context(|| path.to_owned())
}
