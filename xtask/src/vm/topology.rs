//! The shape of a virtual machine, as data.
//!
//! A topology is a TOML file: sockets, dies, cores and threads; the NUMA nodes with their CPUs and
//! memory; the distances, which may differ by direction. A node without CPUs is memory-only. It is slow
//! memory when the `hmat` table gives it worse numbers, and an NVDIMM that the guest turns
//! into a node of RAM when `nvdimm-mib` is set. Each die has a last-level cache of its own.
//!
//! CPUs are numbered as the guest will number them: threads of a core first, then cores, dies,
//! sockets. Nodes are numbered in the order of the file.

use std::{fs, ops::RangeInclusive, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Distance of a node to itself (ACPI 6.5, 5.2.17).
const LOCAL_DISTANCE: u8 = 10;

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct GuestTopology {
    /// One line for people.
    pub(crate) description: String,
    /// Processor packages.
    pub(crate) sockets: u32,
    /// Dies in a socket.
    #[serde(default = "one")]
    pub(crate) dies: u32,
    /// Cores in a die.
    pub(crate) cores: u32,
    /// Threads in a core.
    #[serde(default = "one")]
    pub(crate) threads: u32,
    /// `distances[from][to]`.
    pub(crate) distances: Vec<Vec<u8>>,
    /// NUMA nodes by number.
    #[serde(rename = "node")]
    pub(crate) nodes: Vec<GuestNode>,
    /// Latency and bandwidth, if the firmware tells them.
    pub(crate) hmat: Option<GuestHmat>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct GuestNode {
    /// Its CPUs in the kernel's list format; `None` for a memory-only node.
    pub(crate) cpus: Option<String>,
    /// Ordinary memory.
    #[serde(default)]
    pub(crate) memory_mib: u32,
    /// Memory of an NVDIMM; such a node has no ordinary memory.
    #[serde(default)]
    pub(crate) nvdimm_mib: u32,
    /// With HMAT: the node with the best path from its CPUs to this memory.
    pub(crate) initiator: Option<usize>,
}

/// ACPI's Heterogeneous Memory Attribute Table. Rows are the nodes with CPUs, columns all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct GuestHmat {
    /// Access latency in nanoseconds.
    pub(crate) latency_ns: Vec<Vec<u32>>,
    /// Access bandwidth in GiB/s.
    pub(crate) bandwidth_gib: Vec<Vec<u32>>,
}

const fn one() -> u32 {
    1
}

impl GuestTopology {
    /// Reads a shipped topology by name, or any other by the path of its file.
    pub(crate) fn load(shipped: &Path, name: &str) -> Result<Self> {
        let file = shipped.join(format!("{name}.toml"));
        let path = if file.is_file() { file.as_path() } else { Path::new(name) };
        let text = fs::read_to_string(path).with_context(|| {
            format!(
                "no topology {name}: neither a file nor one of {}",
                names(shipped).unwrap_or_default().join(" ")
            )
        })?;
        Self::parse(&text).with_context(|| format!("topology {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let topology: Self = toml::from_str(text)?;
        topology.check()?;
        Ok(topology)
    }

    /// Logical CPUs.
    pub(crate) fn cpu_count(&self) -> u32 {
        self.sockets * self.dies * self.cores * self.threads
    }

    /// Numbers of the nodes that have CPUs.
    pub(crate) fn initiators(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].cpus.is_some()).collect()
    }

    /// Are there NVDIMMs?
    pub(crate) fn has_nvdimms(&self) -> bool {
        self.nodes.iter().any(|node| node.nvdimm_mib > 0)
    }

    fn check(&self) -> Result<()> {
        ensure!(self.cpu_count() > 0, "no CPUs: sockets, dies, cores and threads must be above 0");
        ensure!(!self.nodes.is_empty(), "no nodes");
        self.check_cpus()?;
        self.check_distances()?;
        for (number, node) in self.nodes.iter().enumerate() {
            ensure!(
                node.nvdimm_mib == 0 || (node.memory_mib == 0 && node.cpus.is_none()),
                "node {number}: a node of NVDIMM has neither CPUs nor other memory"
            );
            // A block of memory is 128 MiB in the guest, and a node is made of whole ones.
            ensure!(node.nvdimm_mib % 128 == 0, "node {number}: nvdimm-mib is not a multiple of 128");
        }
        self.hmat.as_ref().map_or(Ok(()), |hmat| self.check_hmat(hmat))
    }

    fn check_cpus(&self) -> Result<()> {
        let mut seen = vec![false; usize::try_from(self.cpu_count())?];
        for (number, node) in self.nodes.iter().enumerate() {
            for cpu in node.cpu_ranges().with_context(|| format!("node {number}"))?.into_iter().flatten() {
                let slot = seen
                    .get_mut(usize::try_from(cpu)?)
                    .with_context(|| format!("node {number}: the machine has no CPU {cpu}"))?;
                ensure!(!*slot, "node {number}: CPU {cpu} is in two nodes");
                *slot = true;
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(cpu) => bail!("CPU {cpu} is in no node"),
            None => Ok(()),
        }
    }

    fn check_distances(&self) -> Result<()> {
        let count = self.nodes.len();
        ensure!(self.distances.len() == count, "distances: {count} nodes need {count} rows");
        for (from, row) in self.distances.iter().enumerate() {
            ensure!(row.len() == count, "distances: row {from} has {} columns, not {count}", row.len());
            for (to, &distance) in row.iter().enumerate() {
                ensure!(
                    (distance == LOCAL_DISTANCE) == (from == to) && distance >= LOCAL_DISTANCE,
                    "distances: {distance} from {from} to {to}; {LOCAL_DISTANCE} is the node itself, others are above"
                );
            }
        }
        Ok(())
    }

    fn check_hmat(&self, hmat: &GuestHmat) -> Result<()> {
        let (rows, columns) = (self.initiators().len(), self.nodes.len());
        for (name, table) in [("latency-ns", &hmat.latency_ns), ("bandwidth-gib", &hmat.bandwidth_gib)] {
            ensure!(
                table.len() == rows && table.iter().all(|row| row.len() == columns),
                "hmat: {name} must have {rows} rows of {columns} columns"
            );
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let initiator =
                node.initiator.with_context(|| format!("node {number}: hmat needs an initiator"))?;
            ensure!(
                self.initiators().contains(&initiator),
                "node {number}: initiator {initiator} has no CPUs"
            );
        }
        Ok(())
    }
}

impl GuestNode {
    /// Its CPUs as ranges.
    pub(crate) fn cpu_ranges(&self) -> Result<Vec<RangeInclusive<u32>>> {
        self.cpus.iter().flat_map(|list| list.split(',')).map(parse_range).collect()
    }
}

fn parse_range(text: &str) -> Result<RangeInclusive<u32>> {
    let number = |text: &str| text.trim().parse::<u32>().with_context(|| format!("CPU {text:?}"));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first)?..=number(last)?;
    ensure!(!range.is_empty(), "CPUs {text:?}: the first is above the last");
    Ok(range)
}

/// Names of the shipped topologies.
pub(crate) fn names(shipped: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(shipped).with_context(|| format!("list {}", shipped.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    const TWO: &str = "description = 'two'\nsockets = 2\ncores = 1\ndistances = [[10, 20], [20, 10]]\n\
                       [[node]]\ncpus = '0'\nmemory-mib = 64\n[[node]]\ncpus = '1'\nmemory-mib = 64\n";

    #[test]
    fn every_shipped_topology_is_sound() {
        let shipped = Workspace::find().unwrap().topologies();
        let names = names(&shipped).unwrap();
        assert!(names.iter().any(|name| name == "2s"), "{names:?}");
        for name in names {
            GuestTopology::load(&shipped, &name).unwrap();
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, wanted) in [
            ("cpus = '1'", "cpus = '0'", "CPU 0 is in two nodes"),
            ("cpus = '1'", "cpus = '1-2'", "no CPU 2"),
            ("cpus = '1'", "cpus = '3-1'", "first is above the last"),
            ("cpus = '1'", "cpus = 'x'", "CPU \"x\""),
            ("cpus = '1'\n", "", "CPU 1 is in no node"),
            ("[10, 20]", "[10]", "row 0 has 1 columns"),
            ("[10, 20]", "[10, 10]", "10 from 0 to 1"),
            ("[10, 20]", "[10, 9]", "9 from 0 to 1"),
            ("cores = 1", "cores = 0", "no CPUs"),
            ("cores = 1", "cores = 1\nrings = 2", "unknown field `rings`"),
        ] {
            let error = GuestTopology::parse(&TWO.replacen(from, to, 1)).unwrap_err();
            assert!(format!("{error:#}").contains(wanted), "{to}: {error:#}");
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = GuestTopology::load(&Workspace::find().unwrap().topologies(), "nonesuch").unwrap_err();
        assert!(format!("{error:#}").contains("2s"), "{error:#}");
    }
}
