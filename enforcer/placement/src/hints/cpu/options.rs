//! Options of CPU assignment, and their checks against a policy and a machine.

use numa_topology::set::CpuSet;
use thiserror::Error;

use crate::{
    CpuLayout,
    settings::{HintsSettings, TopologyPolicy},
};

/// Options of CPU assignment; with all off, CPUs are packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, with the name people know")]
pub struct CpuOptions {
    /// `full-pcpus-only`.
    pub full_pcpus_only: bool,
    /// `distribute-cpus-across-numa`.
    pub distribute_across_numa: bool,
    /// `distribute-cpus-across-cores`.
    pub distribute_across_cores: bool,
    /// `align-by-socket`.
    pub align_by_socket: bool,
    /// `prefer-align-cpus-by-uncorecache`.
    pub align_by_uncore_cache: bool,
}

/// Why options cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CpuOptionsError {
    /// Hints by socket are wider than one node.
    #[error("align-by-socket cannot be used with the policy single-numa-node")]
    SocketOnSingleNode,
    /// A socket is not wider than a node.
    #[error("align-by-socket cannot be used on a machine with more sockets ({sockets}) than nodes ({nodes})")]
    MoreSocketsThanNodes {
        /// Sockets with CPUs.
        sockets: usize,
        /// Nodes with CPUs.
        nodes: usize,
    },
}

impl CpuOptions {
    /// Are the options compatible with the policy and the machine? The settings check whether they are
    /// compatible with each other.
    ///
    /// # Errors
    /// The first option that the policy or the machine does not allow.
    pub(crate) fn validate_for(
        self,
        policy: TopologyPolicy,
        layout: &CpuLayout,
    ) -> Result<(), CpuOptionsError> {
        let (sockets, nodes) = (layout.sockets.len(), layout.nodes.len());
        match policy {
            _ if !self.align_by_socket => Ok(()),
            TopologyPolicy::SingleNumaNode => Err(CpuOptionsError::SocketOnSingleNode),
            _ if sockets > nodes => Err(CpuOptionsError::MoreSocketsThanNodes { sockets, nodes }),
            _ => Ok(()),
        }
    }
}

impl CpuOptions {
    /// Do CPUs meet what the options say of cores? Preferences for NUMA nodes, sockets and caches depend on
    /// what was free, so they do not count.
    pub fn are_met_by(self, layout: &CpuLayout, cpus: &CpuSet) -> bool {
        let of_cores = |is: fn(&CpuSet, &CpuSet) -> bool| layout.cores.iter().all(|(_, core)| is(core, cpus));
        let are_whole = || of_cores(|core, cpus| core.is_disjoint(cpus) || core.is_subset(cpus));
        let are_apart = || of_cores(|core, cpus| core.intersection(cpus).len() <= 1);
        (!self.full_pcpus_only || are_whole()) && (!self.distribute_across_cores || are_apart())
    }
}

impl From<&HintsSettings> for CpuOptions {
    fn from(settings: &HintsSettings) -> Self {
        Self {
            full_pcpus_only: settings.full_pcpus_only,
            distribute_across_numa: settings.distribute_cpus_across_numa,
            distribute_across_cores: settings.distribute_cpus_across_cores,
            align_by_socket: settings.align_by_socket,
            align_by_uncore_cache: settings.prefer_align_cpus_by_uncore_cache,
        }
    }
}

#[cfg(test)]
mod tests {
    use numa_topology::synth::Machine;

    use super::*;

    #[test]
    fn options_are_met_by_whole_cores_or_by_one_cpu_of_each() {
        // CPU n and n+8 are one core.
        let layout = CpuLayout::of(&Machine::new().sockets(2).build());
        let whole = CpuOptions { full_pcpus_only: true, ..CpuOptions::default() };
        let apart = CpuOptions { distribute_across_cores: true, ..CpuOptions::default() };
        for (cpus, is_whole, is_apart) in
            [("0,8", true, false), ("0-1", false, true), ("0-1,8", false, false), ("", true, true)]
        {
            let cpus: CpuSet = cpus.parse().unwrap();
            assert_eq!(
                (whole.are_met_by(&layout, &cpus), apart.are_met_by(&layout, &cpus)),
                (is_whole, is_apart),
                "{cpus}"
            );
            assert!(CpuOptions::default().are_met_by(&layout, &cpus));
        }
    }
}
