//! What the guest's topology file promises.
//!
//! The file is the one that the virtual machine was made from; from it follows what a correct kernel
//! shows, without any code of the product.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::ids::{self, Ids};

/// Where the guest finds its topologies.
const FOLDER: &str = "/inject/topologies";

/// A topology file, as far as a guest can see it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Topology {
    sockets: u32,
    dies: u32,
    cores: u32,
    threads: u32,
    /// `distances[from][to]`.
    pub distances: Vec<Vec<u32>>,
    /// NUMA nodes by number.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// Latency and bandwidth.
    pub hmat: Option<Hmat>,
}

/// A NUMA node.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Node {
    cpus: Option<String>,
    memory_mib: u64,
    nvdimm_mib: u64,
    /// Best initiator.
    pub initiator: Option<usize>,
}

/// Rows are the nodes with CPUs, columns all nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Hmat {
    /// Nanoseconds.
    pub latency_ns: Vec<Vec<u64>>,
}

impl Topology {
    /// The topology of this name.
    pub fn load(name: &str) -> Result<Self> {
        let path = Path::new(FOLDER).join(format!("{name}.json"));
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("topology {}", path.display()))
    }

    /// All CPUs.
    pub fn cpus(&self) -> Ids {
        (0..self.sockets * self.dies * self.cores * self.threads).collect()
    }

    /// CPUs that share a core with `cpu`.
    pub fn siblings(&self, cpu: u32) -> Ids {
        block(cpu, self.threads)
    }

    /// CPUs that share the last-level cache with `cpu`: its die.
    pub fn cache(&self, cpu: u32) -> Ids {
        block(cpu, self.cores * self.threads)
    }

    /// CPUs in the socket of `cpu`.
    pub fn socket(&self, cpu: u32) -> Ids {
        block(cpu, self.dies * self.cores * self.threads)
    }
}

/// The aligned block of `size` CPUs that holds `cpu`.
fn block(cpu: u32, size: u32) -> Ids {
    let first = cpu / size * size;
    (first..first + size).collect()
}

impl Node {
    /// Its CPUs; none for a memory-only node.
    pub fn cpus(&self) -> Result<Ids> {
        ids::parse(self.cpus.as_deref().unwrap_or_default())
    }

    /// Its memory in MiB.
    pub fn mebibytes(&self) -> u64 {
        self.memory_mib + self.nvdimm_mib
    }

    /// Memory that is slower than a socket's own.
    pub fn is_slow(&self) -> bool {
        self.cpus.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned() {
        assert_eq!(block(5, 2), Ids::from([4, 5]));
        assert_eq!(block(0, 1), Ids::from([0]));
        assert_eq!(block(7, 4), Ids::from([4, 5, 6, 7]));
    }
}
