//! How the programs are attached: what is measured, how, and into maps of which size.

use std::collections::BTreeMap;

use aya::util::nr_cpus;
use enforcer_core::policy::RunTimeSource;
use enforcer_host::HostRoot;
use numa_topology::id::{CpuId, NodeId};

use super::{
    axis::CgroupAxis, columns::NodeColumns, hardware::HardwareEvents, iter::in_host_pid_namespace,
    probes::FunctionTracing, sizes::Sizes,
};

/// Least time between two events of one workload from one CPU.
pub const EVENT_INTERVAL_NS: u64 = 10_000_000;

/// Least time between two pressure events of one kind from one node.
pub const PRESSURE_INTERVAL_NS: u64 = 10_000_000;

/// How to attach.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// NUMA node of each CPU; events on other CPUs are counted as dropped.
    pub cpu_node: BTreeMap<CpuId, NodeId>,
    /// Hierarchy of the watched cgroups.
    pub cgroups: CgroupAxis,
    /// How run time is measured.
    pub run_time: RunTimeSource,
    /// How functions of the kernel are traced.
    pub functions: FunctionTracing,
    /// Counters of memory accesses to open.
    pub hardware: HardwareEvents,
    /// Bring the programs' own diagnostics into the log; when off they are not even loaded.
    pub log: bool,
    /// Sizes of the maps.
    pub sizes: Sizes,
    /// Least time between two events of one workload from one CPU, in ns; 0 sends all.
    pub event_interval_ns: u64,
    /// Least time between two pressure events of one kind from one node, in ns; 0 sends all.
    pub pressure_interval_ns: u64,
    /// Process with separately counted page moves, in the first pid namespace; `None` if unknown.
    pub own_tgid: Option<u32>,
}

impl AttachOptions {
    /// Without diagnostics, with the counters of this host's CPU and maps for a host of few cgroups.
    pub fn new(cpu_node: BTreeMap<CpuId, NodeId>, cgroups: CgroupAxis) -> Self {
        let options = Self {
            sizes: Sizes::new(0, 1, 1),
            cpu_node,
            cgroups,
            run_time: RunTimeSource::default(),
            functions: FunctionTracing::default(),
            hardware: HardwareEvents::of_cpu(&HostRoot::live()),
            log: false,
            event_interval_ns: EVENT_INTERVAL_NS,
            pressure_interval_ns: PRESSURE_INTERVAL_NS,
            own_tgid: in_host_pid_namespace().then(std::process::id),
        };
        options.sized_for(0)
    }

    /// With maps for a host of so many cgroups.
    #[must_use]
    pub fn sized_for(self, cgroups: usize) -> Self {
        let nodes = NodeColumns::new(&self.cpu_node).count() as usize;
        Self { sizes: Sizes::new(cgroups, nodes, nr_cpus().unwrap_or(1)), ..self }
    }
}
