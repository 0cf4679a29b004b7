//! The machine's [`Topology`] from sysfs, of the running host and of a captured tree alike.
//!
//! | file | reads |
//! |---|---|
//! | `online.rs` | which CPUs there are: online, offline, isolated |
//! | `cpu.rs` | packages, dies, clusters, cores, threads |
//! | `cache.rs` | groups behind a last-level cache |
//! | `kind.rs` | types of cores, frequencies, what a CPU is to prefer |
//! | `node.rs` | NUMA nodes: CPUs, memory, huge pages, distances, HMAT |
//! | `memory.rs` | what brought a node's memory online, memory tiers, the kind of each node |
//! | `pci.rs` | devices with a place that matters |
//!
//! These are thin: text becomes values in `crate::parse`. Kernels differ by twenty years, so
//! every file is optional. Only a host that names no CPU at all is an error. Everything else that is
//! missing or nonsense is left out and becomes a [`Degraded`] entry with the file and its value.
//!
//! Must never believe more than the kernel says (a CPU in no node has no node), write, or take
//! longer than a few ms: files that are equal for all threads of a core, all cores of a package or
//! all CPUs of a cache are read once for them.

mod cache;
mod cpu;
mod files;
mod kind;
mod memory;
mod node;
mod online;
mod pci;
mod source;

use std::path::PathBuf;

use crate::{Topology, degraded::Degraded};
use thiserror::Error;

pub use files::{Directory, MachineFiles};

use source::Source;

/// Why there is no topology at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// Neither sysfs nor procfs names a CPU.
    #[error("no CPU found: looked in {}, {} and {}", .0[0].display(), .0[1].display(), .0[2].display())]
    NoCpus([PathBuf; 3]),
    /// More CPUs than any kernel has.
    #[error("{path} names {count} CPUs, no kernel has more than {limit}", path = path.display())]
    TooManyCpus {
        /// Where they are named.
        path: PathBuf,
        /// How many.
        count: usize,
        /// The greatest number that is accepted.
        limit: usize,
    },
}

/// Reads the topology of a host.
///
/// # Errors
/// If no CPU is found, or more than any kernel has. Everything else that is missing is in the second value.
pub fn read_topology(files: &dyn MachineFiles) -> Result<(Topology, Vec<Degraded>), TopologyError> {
    let mut source = Source::new(files);
    let sets = online::read(&mut source)?;
    let mut cpus = cpu::read_cpus(&mut source, &sets.online);
    let (mut nodes, distances) = node::read(&mut source, &sets.online, &mut cpus);
    let packages = cpu::read_packages(&mut source, &cpus);
    let llcs = cache::read(&mut source, &cpus);
    let cpu_kinds = kind::read(&mut source, &cpus);
    let memory_tiers = memory::read_tiers(&mut source);
    let gpus = memory::classify(&mut source, &mut nodes, &memory_tiers);
    let devices = pci::read(&mut source, &mut nodes, &gpus);
    let mut topology = Topology {
        nodes,
        distances,
        packages,
        cpus,
        llcs,
        cpu_kinds,
        memory_tiers,
        offline_cpus: sets.offline,
        isolated_cpus: sets.isolated,
        nohz_full_cpus: sets.nohz_full,
        devices,
    };
    topology.note_closest_cpu_nodes();
    Ok((topology, source.into_degraded()))
}
