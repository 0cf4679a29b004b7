//! Arguments of `exec`.

use std::ffi::OsString;

use clap::ValueEnum;
use enforcer_core::memory_policy::PolicyMode;
use numa_placement::settings::MemoryType;
use numa_topology::set::NodeSet;

const EXEC_HELP: &str = "\
Without --nodes and --memory-types the policy has every ordinary memory node
that the cpuset allows. The program and all that it starts inherit the policy;
a later change of the cpuset moves it along, unless --keep-nodes is given.

Examples:
  numa-enforcer exec --policy interleave -- redis-server
  numa-enforcer exec --policy weighted-interleave --nodes 0,2 -- stream
  numa-enforcer exec --policy bind --memory-types dram -- db
  ExecStart=/usr/bin/numa-enforcer exec --policy interleave -- /usr/bin/db";

/// Arguments of `exec`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXEC_HELP)]
pub struct ExecArgs {
    /// Where the kernel takes memory for it.
    #[arg(long, value_enum, value_name = "POLICY")]
    pub policy: ExecPolicy,
    /// NUMA nodes of the policy, as 0-1.
    #[arg(long, value_name = "LIST", conflicts_with = "memory_types")]
    pub nodes: Option<NodeSet>,
    /// Nodes with these kinds of memory: dram, pmem (CXL too), hbm.
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',')]
    pub memory_types: Vec<MemoryTypeName>,
    /// The policy keeps its nodes when the cpuset gets others.
    #[arg(long)]
    pub keep_nodes: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Policies of `set_mempolicy(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExecPolicy {
    /// The node of the CPU that touches a page first, then others
    Local,
    /// These nodes and no others
    Bind,
    /// Any of these nodes, then others (Linux 5.15)
    PreferredMany,
    /// These nodes in turn
    Interleave,
    /// These nodes in turn, by weights (Linux 6.9)
    WeightedInterleave,
}

/// Kinds of memory, as in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MemoryTypeName {
    /// Ordinary memory
    Dram,
    /// Persistent memory and CXL memory
    Pmem,
    /// High-bandwidth memory
    Hbm,
}

impl ExecArgs {
    /// The kinds of memory that were asked for.
    pub fn kinds(&self) -> Vec<MemoryType> {
        let kind = |name: &MemoryTypeName| match name {
            MemoryTypeName::Dram => MemoryType::Dram,
            MemoryTypeName::Pmem => MemoryType::Pmem,
            MemoryTypeName::Hbm => MemoryType::Hbm,
        };
        self.memory_types.iter().map(kind).collect()
    }
}

impl ExecPolicy {
    /// The kernel's mode.
    pub const fn mode(self) -> PolicyMode {
        match self {
            Self::Local => PolicyMode::Local,
            Self::Bind => PolicyMode::Bind,
            Self::PreferredMany => PolicyMode::PreferredMany,
            Self::Interleave => PolicyMode::Interleave,
            Self::WeightedInterleave => PolicyMode::WeightedInterleave,
        }
    }
}
