//! `exec`: another program under a memory policy.
//!
//! A memory policy belongs to a task: the kernel lets no other process set it, a daemon neither. So a unit or
//! an entry point starts its program through this command, which sets the policy and becomes the program. All
//! that the program starts inherits it.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use enforcer_core::{memory_policy::PolicyMode, named::Named as _, parse::task_status::TaskStatus};
use enforcer_host::{HostRoot, topology::read_topology};
use enforcer_kernel::linux::{become_program, set_memory_policy};
use numa_placement::settings::MemoryType;
use numa_topology::{MemoryClass, Topology, set::NodeSet};

use super::{UsageError, args::ExecArgs, exit};
use crate::exit::Exit;

/// "Operation not permitted": the call itself needs no privilege, a filter of calls says so.
const EPERM: i32 = 1;

/// Weights of weighted interleaving, one file for each node (Linux 6.9,
/// Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave).
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// Sets the policy and becomes the program; returns only if it could not.
pub(super) fn run(args: &ExecArgs) -> Result<Exit> {
    let mode = args.policy.mode();
    let nodes = match mode {
        PolicyMode::Local if args.nodes.is_some() || !args.memory_types.is_empty() => {
            bail!(UsageError("the policy local has no nodes: it follows the CPU".to_owned()));
        }
        PolicyMode::Local => NodeSet::new(),
        _ => nodes(args)?,
    };
    let number = mode.number().context("a memory policy without a number")?;
    if let Err(error) = set_memory_policy(number, &nodes, args.keep_nodes) {
        let needs = needs(mode, &error);
        let what = format!("set the memory policy {} of NUMA nodes {nodes}{needs}", mode.name());
        return Err(error).context(what);
    }
    if mode == PolicyMode::WeightedInterleave {
        warn_of_equal_weights(&nodes);
    }
    let Some(program) = args.command.first() else { bail!("no command") };
    let cause = become_program(&args.command);
    // As a shell and env(1) end.
    let code = if cause.kind() == io::ErrorKind::NotFound { Exit::NoProgram } else { Exit::NotRun };
    let _of_other_commands =
        exit::of_error(&anyhow::Error::new(cause).context(format!("run {}", Path::new(program).display())));
    Ok(code)
}

/// What the kernel or the container lacks.
fn needs(mode: PolicyMode, error: &io::Error) -> &'static str {
    if error.raw_os_error() == Some(EPERM) {
        return ": a seccomp profile refuses set_mempolicy; those of container runtimes allow it with CAP_SYS_NICE";
    }
    match mode {
        PolicyMode::WeightedInterleave => ", which needs Linux 6.9",
        PolicyMode::PreferredMany => ", which needs Linux 5.15",
        _ => "",
    }
}

/// Nodes of the policy: as given, or those that the cpuset allows, of the kinds that were asked for.
fn nodes(args: &ExecArgs) -> Result<NodeSet> {
    let (machine, _) = read_topology(&HostRoot::live()).context("read the machine")?;
    let status = "/proc/self/status";
    let text = fs::read_to_string(status).with_context(|| format!("read {status}"))?;
    let mut fields = TaskStatus::default();
    text.lines().try_for_each(|line| fields.add_line(line)).with_context(|| format!("read {status}"))?;
    let allowed = fields.mems_allowed.unwrap_or_else(|| machine.memory_nodes());
    let wanted = match &args.nodes {
        Some(nodes) => nodes.clone(),
        None => of_types(&machine, &args.kinds()).intersection(&allowed),
    };
    let beyond = wanted.difference(&allowed);
    if !beyond.is_empty() {
        bail!(UsageError(format!(
            "the cpuset allows memory of NUMA nodes {allowed} alone, and not of {beyond}"
        )));
    }
    if wanted.is_empty() {
        bail!(UsageError(format!("of NUMA nodes {allowed}, which the cpuset allows, none has such memory")));
    }
    Ok(wanted)
}

/// Ordinary memory nodes of these kinds; all of them if none is given.
fn of_types(machine: &Topology, types: &[MemoryType]) -> NodeSet {
    let ordinary = machine.ordinary_memory_nodes();
    if types.is_empty() {
        return ordinary;
    }
    let has = |kind| types.contains(&kind);
    let is_asked_for = |class| match class {
        MemoryClass::Dram => has(MemoryType::Dram),
        MemoryClass::Slow => has(MemoryType::Pmem),
        MemoryClass::HighBandwidth => has(MemoryType::Hbm),
    };
    let of_kind = machine.nodes.iter().filter(|node| node.memory_class().is_some_and(is_asked_for));
    of_kind.map(|node| node.id).collect::<NodeSet>().intersection(&ordinary)
}

/// Equal weights spread as interleaving does, which is seldom what was meant.
fn warn_of_equal_weights(nodes: &NodeSet) {
    let weights = nodes.iter().filter_map(|node| {
        let text = fs::read_to_string(format!("{WEIGHTS}/node{node}")).ok()?;
        text.trim().parse::<u8>().ok()
    });
    let weights: Vec<u8> = weights.collect();
    let are_equal = weights.windows(2).all(|pair| pair[0] == pair[1]);
    if nodes.len() > 1 && weights.len() == nodes.len() && are_equal {
        let _ = writeln!(
            std::io::stderr(),
            "numa-enforcer: the weights of NUMA nodes {nodes} are equal; {WEIGHTS}/nodeN has them"
        );
    }
}

#[cfg(test)]
mod tests {
    use numa_topology::{MemoryKind, id::NodeId, synth::Machine};

    use super::*;

    #[test]
    fn refusal_by_a_filter_of_calls_is_named_as_such() {
        let said = |code| needs(PolicyMode::WeightedInterleave, &io::Error::from_raw_os_error(code));
        assert!(said(EPERM).contains("seccomp") && said(EPERM).contains("CAP_SYS_NICE"));
        assert!(said(22).contains("Linux 6.9"));
    }

    #[test]
    fn nodes_are_chosen_by_their_kind_of_memory() {
        let machine = Machine::new().sockets(2).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1));
        let machine = machine.memory_only(NodeId(3), 64, MemoryKind::Gpu, NodeId(1)).build();
        for (types, expected) in [
            (&[][..], "0-2"),
            (&[MemoryType::Dram], "0-1"),
            (&[MemoryType::Pmem], "2"),
            (&[MemoryType::Dram, MemoryType::Pmem], "0-2"),
            (&[MemoryType::Hbm], ""),
        ] {
            assert_eq!(of_types(&machine, types).to_string(), expected, "{types:?}");
        }
    }
}
